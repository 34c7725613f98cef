"""The command `keras-vit`. Rooms that need Keras are imported by the commands that use them."""

import contextlib
import dataclasses
import importlib
import os
import shlex
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from keras_vit._version import __version__
from keras_vit.console import Console
from keras_vit.data.datasets.schemes import describe_schemes
from keras_vit.errors import KerasVitError
from keras_vit.export.formats import NAMES, QUANTIZE
from keras_vit.text import without_secrets

app = typer.Typer(
    name="keras-vit",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # a frame's variables may be secrets: a plain traceback shows none
    pretty_exceptions_show_locals=False,
    help="ViT, hybrid and ResNet (BiT) models of *An Image is Worth 16x16 Words* in Keras.\n\n"
    "Exit codes: 0 done, 1 the input could not be used (one sentence on standard error), 2 the command line was wrong.",
)
console = Console()


def show_version(value: bool):
    if value:
        print(f"keras-vit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
):
    pass


@contextlib.contextmanager
def quiet():
    """Keeps what TensorFlow's C++ prints while it is imported off the terminal."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def job(name):
    """The module keras_vit.commands.NAME, which does a command's work with Keras."""
    with quiet():
        import keras  # noqa: F401, brings TensorFlow in while nothing is printed

        return importlib.import_module(f"keras_vit.commands.{name}")


class Family(StrEnum):
    vit = "ViT"
    hybrid = "hybrid"
    resnet = "ResNet"


@app.command("list")
def list_command(
    pattern: Annotated[str, typer.Argument(help="Shell pattern over names, such as `'R50*'` or `'*:augreg*'`.")] = "*",
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Only models with public weights.")] = False,
    family: Annotated[Family | None, typer.Option(help="Only one family.")] = None,
    max_params: Annotated[int | None, typer.Option(help="Only models with at most so many parameters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
):
    """The models and checkpoints of the zoo, as a table.

    Example: keras-vit list 'ViT-*' --pretrained --max-params 90000000
    """
    from keras_vit.zoo.names import listed_models

    rows = listed_models.list(pattern, pretrained=pretrained or None, family=family, max_params=max_params)
    print(listed_models.as_json(rows)) if as_json else console.print(listed_models.as_table(rows))


def card(row):
    """What is known of one model, a line a fact."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for field, value in dataclasses.asdict(row).items():
        if value not in (None, (), ""):
            grid.add_row(field, said(value))
    return grid


def said(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="A name of `keras-vit list`, with or without a tag.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
):
    """Everything known about one model: sizes, weights, accuracy and where the numbers come from."""
    from keras_vit.zoo.names import listed_models

    row = listed_models.info(name)
    print(listed_models.as_json([row])) if as_json else console.print(card(row))


Model = Annotated[str, typer.Option(help="A name of `keras-vit list`, a checkpoint, or the folder of a run.")]


@app.command()
def predict(
    images: Annotated[list[str], typer.Argument(help="Images: JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or JPEG 2000.")],
    model: Model = "ViT-B/16",
    top: Annotated[int, typer.Option(min=1, help="Classes to show for each picture.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line a picture.")] = False,
):
    """Classifies pictures: the likeliest classes of each, with probabilities.

    A picture that cannot be read is named, the others are classified, and the exit code is 1.

    Example: keras-vit predict cat.jpg dog.png --model ViT-B/16
    """
    failed = job("predict").run(images, model, top, as_json, console)
    raise typer.Exit(1 if failed else 0)


Out = Annotated[Path, typer.Option(help="Folder of the run.")]
Dataset = Annotated[str, typer.Option("--data", help=describe_schemes())]
Recipe = Annotated[
    str | None,
    typer.Option(help="A row of the recipes: finetune-pets, bit-hyperrule and the like; by default the data's own."),
]


class Split(StrEnum):
    train = "train"
    everything = "train+validation"


Trained = Annotated[Split, typer.Option("--split", help="What to train on; of everything, nothing is held out.")]
Test = Annotated[bool, typer.Option("--test", help="At the end judge the last weights, once, on the test split.")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the training pictures, in place of the recipe's.")]
Steps = Annotated[int | None, typer.Option(help="Updates, in place of the recipe's.")]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Images per update, over all devices; steps and learning rate follow, so that the images seen stay. By "
        "default the recipe's, less where the dataset is small.",
    ),
]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate, used as it is.")]
Size = Annotated[
    int | None,
    typer.Option(
        help="Side of the images in pixels; by default the recipe's, 384 say, on the paper's data; the model's."
    ),
]
Augmentation = Annotated[str | None, typer.Option(help="none, inception, bit, light1, medium2, strong1 and the like.")]
Microbatches = Annotated[
    int | None,
    typer.Option(
        min=1, help="Parts of each device's batch, one after the other; by default of 32 images of 224 pixels."
    ),
]
Grid = Annotated[bool, typer.Option("--grid-search", help="First try the recipe's learning rates, a training each.")]
Strategy = Annotated[str, typer.Option(help="auto, tpu, multi_worker, mirrored or one_device.")]
Precision = Annotated[str, typer.Option(help="float32; mixed_bfloat16 or mixed_float16 where the device has it.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, bit for bit.")]
Every = Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")]


@app.command()
def finetune(
    dataset: Dataset,
    out: Out,
    model: Model = "ViT-B/16",
    recipe: Recipe = None,
    split: Trained = Split.train,
    test: Test = False,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    learning_rate: Rate = None,
    image_size: Size = None,
    augmentation: Augmentation = None,
    microbatches: Microbatches = None,
    grid_search: Grid = False,
    strategy: Strategy = "auto",
    precision: Precision = "float32",
    seed: int = 0,
    every: Every = 200,
    resume: Resume = False,
):
    """Fine-tunes a model on your pictures: a new head, the paper's recipe, and a folder with everything of the run.

    The folder gets checkpoints, the best weights, metrics.csv, curves.png, TensorBoard files, and at the end
    model.keras, model.npz and mistakes.png (confusion matrix and surest mistakes). Files of that name that are there
    already are refused, not overwritten. Ctrl-C saves, and --resume goes on.

    A bare name starts from weights of ImageNet-21k. The paper's final numbers are those of
    `--split train+validation --test`, with `--grid-search` to choose the learning rate on the development set first.

    Example: keras-vit finetune --data folder:photos --out runs/1 --model ViT-B/16
    """
    train(out, resume, every, **settings(locals(), pretrain=False))


@app.command()
def pretrain(
    dataset: Dataset,
    out: Out,
    model: Annotated[str, typer.Option(help="A variant of `keras-vit list`.")] = "ViT-S/16",
    recipe: Recipe = None,
    split: Trained = Split.train,
    test: Test = False,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    learning_rate: Rate = None,
    image_size: Size = None,
    augmentation: Augmentation = None,
    microbatches: Microbatches = None,
    grid_search: Grid = False,
    strategy: Strategy = "auto",
    precision: Precision = "float32",
    seed: int = 0,
    every: Every = 200,
    resume: Resume = False,
):
    """Trains a model from random weights; otherwise as `finetune`.

    Example: keras-vit pretrain --data digits --out runs/2 --model ViT-Test/4 --image-size 16 --learning-rate 0.002
    """
    train(out, resume, every, **settings(locals(), pretrain=True))


def settings(arguments, pretrain):
    """The part of a command's arguments that describes the training."""
    return {
        **{key: value for key, value in arguments.items() if key not in ("out", "resume", "every")},
        "pretrain": pretrain,
    }


def train(out, resume, every, **fields):
    finetune = job("finetune")
    try:
        finetune.run(finetune.Settings(**fields), out, resume=resume, every=every, console=console)
    except (finetune.training.Interrupted, finetune.training.Preempted):
        command = ["keras-vit", *sys.argv[1:], *([] if resume else ["--resume"])]
        print(f"Go on with: {shlex.join(map(without_secrets, command))}", flush=True)
        raise


Format = StrEnum("Format", NAMES)
Quantize = StrEnum("Quantize", QUANTIZE)


class Endpoint(StrEnum):
    features = "features"
    attention = "attention"


@app.command("export")
def export_command(
    model: Annotated[str, typer.Argument(help="A name of `keras-vit list`, a checkpoint, or the folder of a run.")],
    out: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    to: Annotated[list[Format] | None, typer.Option(help="Formats, all by default: --to onnx tflite.")] = None,
    quantize: Annotated[Quantize | None, typer.Option(help="Smaller weights; a SavedModel stays float32.")] = None,
    calibration: Annotated[
        str | None, typer.Option(help="Dataset to calibrate and compare on; names as in `finetune --data`.")
    ] = None,
    endpoints: Annotated[
        list[Endpoint] | None,
        typer.Option(help="More signatures in the SavedModel: --endpoints features attention."),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the images in pixels; the model's by default.")
    ] = None,
    latency: Annotated[bool, typer.Option("--latency", help="Measure milliseconds beside the float original.")] = False,
):
    """Exports a model to a bundle: artefacts compared with the model, model.json, a card and a runnable predict.py.

    What a former export wrote into the folder is replaced; everything else there stays, and a file in the way that no
    export wrote is an error that names it.

    Example: keras-vit export runs/1 --to onnx tflite saved_model --quantize int8 --calibration folder:photos --out dist
    """
    job("export").run(
        model,
        out,
        [str(name) for name in to or Format],
        quantize and str(quantize),
        calibration,
        latency,
        image_size,
        console,
        [str(name) for name in endpoints or ()],
    )


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `keras-vit export` wrote.")],
):
    """Proves a bundle again, anywhere: checksums, and every artefact in its runtime against stored examples.

    It shows that nothing was damaged or edited since the export. It cannot show who made a bundle: whoever makes one
    makes its checksums too. Artefacts that hold more than computation are refused unopened; predict.py is not run.

    Example: keras-vit verify dist
    """
    job("export").verify(folder, console)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, exports and picture.")] = Path("keras-vit-demo"),
):
    """The main job in a minute or two, without a network: train, export three ways, prove equal.

    Trains a small ViT on the handwritten digits of scikit-learn, exports it to SavedModel, TFLite and ONNX, compares
    each with the model in its own runtime, and draws predictions and attention. Exit code 1 below 96 % accuracy.
    """
    work = job("demo")
    accuracy = work.run(out, console=console)
    if accuracy < work.TARGET_ACCURACY:
        raise KerasVitError(f"The held-out accuracy is {accuracy:.1%}; {work.TARGET_ACCURACY:.0%} was expected.")


SEVERAL = {"--to": list(Format), "--endpoints": list(Endpoint)}


def spread(arguments):
    """`--to a b` as `--to a --to b`, which the command line library wants."""
    result, option = [], None
    for argument in arguments:
        if argument in SEVERAL:
            option = argument
        elif argument not in SEVERAL.get(option, ()):
            option = None
        elif result[-1] != option:
            result.append(option)
        result.append(argument)
    return result


def main():
    """Runs the command; errors of the package become one sentence and exit code 1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of a damaged picture that is named, or read in spite of it
    try:
        app(spread(sys.argv[1:]))
    except KerasVitError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        print("keras-vit: TensorFlow is not installed. Install one: pip install 'keras-vit-zoo[cpu]'.", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)

"""`keras-vit demo`: fine-tunes shipped weights, exports them for every runtime, and shows where they look."""

import contextlib
import dataclasses
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from PIL import Image

from keras_vit import data, evaluation, inference
from keras_vit.commands.export import export_to_bundle
from keras_vit.commands.inspect import PAGE, inspect_model
from keras_vit.commands.options import spell_option
from keras_vit.commands.shared import import_keras, try_folder
from keras_vit.console import Console, list_pairs, make_table
from keras_vit.data.datasets.arrays import read_digits
from keras_vit.errors import ExportError, KerasVitError
from keras_vit.files import make_folder
from keras_vit.owned import OwnFolder, files_in
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.folder import require_writable

if TYPE_CHECKING:
    from keras_vit.evaluation import Share

VARIANT = "ViT-Mini/4"
MODEL = f"{VARIANT}:fashion-mnist"  # the weights that ship
DATA = "digits"
# Both trainings have these settings, and differ in the weights that they begin with.
TRAINING: dict[str, Any] = {
    "dataset": DATA,
    "recipe": "mini-vit",
    "split": "train+validation",
    "augmentation": "shift",
    "examples": 300,
    "steps": 120,
    "batch_size": 16,
    "learning_rate": 0.002,
}
TARGET_ACCURACY = 0.85
# A row for each bundle: the options of its export. The first is the one to look at.
BUNDLES: dict[str, dict[str, Any]] = {
    "dist": {"formats": ("onnx", "tflite", "saved_model"), "web": True},
    "int8": {"formats": ("onnx", "tflite"), "quantize": "int8"},
}
FINETUNED, SCRATCH = "fine-tuned", "from random weights"
# In the demo's folder, and what each part is.
PARTS = {
    "finetuned": "the run from the shipped weights, with curves.png",
    "scratch": "the run from random weights",
    "dist": "three formats, a page for browsers, predict.py and a model card",
    "int8": "ONNX and TFLite in int8",
    "report": "index.html: what it learned, and where it looks",
    "digits": "ten pictures to ask it about",
}


class DemoFolder(OwnFolder):
    """The files of a demo. The next demo replaces them all, and refuses to start if others' files are among them."""

    record, writer, error = "keras-vit-demo.json", "a demo", ExportError
    names = re.compile(f"({'|'.join(PARTS)})/.+", re.DOTALL)

    def list_parts(self):
        """The names of all files of PARTS, whoever wrote them."""
        names = []
        for part in PARTS:
            self.require_plain_folders(f"{part}/file")
            names += [f"{part}/{name}" for name in files_in(self.path / part)]
        return names


@contextlib.contextmanager
def replace_parts(out: Path) -> Iterator[None]:
    """Removes the files of an earlier demo in `out`, and records those of this one, however it ends.

    Raises:
        ExportError: when a file is in the way that no demo has written.
        RunError: when nothing can be written there.
    """
    require_writable(out)
    folder = DemoFolder(out)
    folder.require_own(folder.list_parts())
    with make_folder(out):
        folder.remove(folder.digests())
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ExportError):
                folder.enter(folder.list_parts())
                if not folder.digests():
                    (out / folder.record).unlink()


def spell_training(settings: Settings, out: Path) -> str:
    """The command of a training.

    >>> spell_training(Settings(dataset="digits", model="ViT-B/16", batch_size=8, test=True), Path("runs/1"))
    'keras-vit finetune --data digits --model ViT-B/16 --test --batch-size 8 --out runs/1'
    """
    words = ["keras-vit", "pretrain" if settings.pretrain else "finetune"]
    for field in dataclasses.fields(Settings):
        value = getattr(settings, field.name)
        if value != field.default and field.name != "pretrain":
            words.append(spell_option(field.name))
            words += [] if value is True else [str(value)]
    return shlex.join([*words, "--out", str(out)])


def spell_export(run: Path, out: Path, formats: Sequence[str], **options: str | bool) -> str:
    """The command of an export that is compared on DATA.

    >>> spell_export(Path("runs/1"), Path("dist"), ["onnx", "tflite"], quantize="int8")
    'keras-vit export runs/1 --to onnx tflite --quantize int8 --calibration digits --out dist'
    """
    words = ["keras-vit", "export", str(run), "--to", *formats]
    for name, value in options.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return shlex.join([*words, "--calibration", DATA, "--out", str(out)])


def print_heading(console, sentence):
    console.print()
    console.print(sentence, style="bold", soft_wrap=True)


def train_run(settings, out, console):
    """Trains as `finetune` and `pretrain` do; the seconds that it took."""
    from keras_vit.commands.progress import FitProgress
    from keras_vit.trainers.plan import prepare
    from keras_vit.trainers.train import train
    from keras_vit.training.runs.folder import RunFolder

    console.print_command(spell_training(settings, out), "$ ")
    begun = time.monotonic()
    folder = RunFolder(out)
    train(prepare(settings, folder, resume=False), folder, tell=None, progress=FitProgress)
    return time.monotonic() - begun


def save_digits(out):
    """Saves the first test digit of each class as 0.png to 9.png."""
    images, labels = read_digits("test")
    out.mkdir(exist_ok=True)
    for name in np.unique(labels):
        Image.fromarray(images[np.argmax(labels == name), :, :, 0]).save(out / f"{name}.png")


def judge(models):
    """{name: Share of the test digits that the model classifies correctly}; models are what `open_classifier` takes."""
    test = data.load(DATA, "test")
    return {name: evaluation.evaluate(inference.open_classifier(model), test).top1 for name, model in models.items()}


def tabulate_shares(shares, seconds):
    """A line for each model: its accuracy, how sure that is, and its training."""
    count = next(iter(shares.values())).count
    title = f"Judged by {count} digits that no training saw"
    table = make_table(title, "model", "accuracy", "95% interval", "training")
    for name, share in shares.items():
        trained = f"{TRAINING['steps']} updates, {seconds[name]:.0f} s" if name in seconds else ""
        table.add_row(name, f"{share.value:.1%}", "{:.1%} to {:.1%}".format(*share.interval), trained)
    return table


def list_next_commands(out):
    digits, int8 = shlex.quote(str(out / "digits")), shlex.quote(str(out / "int8"))
    return [
        f"keras-vit predict {digits} --model {int8}/model.onnx",
        f"keras-vit verify {int8}",
        f"keras-vit serve {shlex.quote(str(out / 'dist'))}",
        "keras-vit finetune --data folder:PHOTOS --model ViT-B/16 --out runs/1",
    ]


def print_summary(out, shares, seconds, console):
    """Accuracies, files, how to open the page, and what to type next."""
    pretrained, scratch = (shares[name] for name in (FINETUNED, SCRATCH))
    console.print()
    console.print(tabulate_shares(shares, seconds))
    console.print(f"Pre-training gained {100 * (pretrained.value - scratch.value):.1f} points in as many updates.")
    console.print()
    console.print(list_pairs(((str(out / name), meaning) for name, meaning in PARTS.items()), "What there is now"))
    console.print()
    console.print("Open in a browser:")
    console.print(f"  {(out / 'report' / PAGE).absolute().as_uri()}", soft_wrap=True)
    console.print("Next:")
    for command in list_next_commands(out):
        console.print_command(command)


def run_demo(out: Path, *, model: str = MODEL, console: Console | None = None) -> "dict[str, Share]":
    """Fine-tunes the shipped weights on handwritten digits, and shows all that the package makes of the result.

    The same training from random weights shows what the pre-training was worth. Then follow exports to SavedModel,
    TFLite and ONNX, in float32 and int8, each compared with the model, and the page of `inspect`.

    Args:
        out: folder of `PARTS`; those of an earlier demo are replaced.
        model: the weights to fine-tune, of VARIANT, as `finetune --model` takes them.
        console: prints what happens; None prints to the terminal.

    Returns:
        The share of the test digits that each model classifies correctly: the fine-tuned one, the one from random
        weights, and the int8 files.

    Raises:
        ExportError: when nothing can be written in `out`, or a file is in the way that no demo has written.
        ParityError: when the outputs of an artefact differ from the model's.

    >>> run_demo(Path("keras-vit-demo"))[FINETUNED].value > 0.85  # about a minute on two cores  # doctest: +SKIP
    True
    """
    console, seconds = console or Console(), {}
    run, scratch = out / "finetuned", out / "scratch"
    with replace_parts(out):
        import_keras()
        print_heading(console, f"1. {model} learns digits, from {TRAINING['examples']} pictures.")
        seconds[FINETUNED] = train_run(Settings(**TRAINING, model=model), run, console)
        print_heading(console, "2. So does a model of random weights, from the same pictures.")
        seconds[SCRATCH] = train_run(Settings(**TRAINING, model=VARIANT, pretrain=True), scratch, console)
        print_heading(console, "3. The first becomes files for every runtime.")
        for name, options in BUNDLES.items():
            console.print_command(spell_export(run, out / name, **options), "$ ")
            export_to_bundle(str(run), out / name, console, calibration=DATA, **options)
        print_heading(console, "4. What has it learned, and where does it look?")
        page = ["keras-vit", "inspect", str(run), "--data", DATA, "--split", "test", "--out", str(out / "report")]
        console.print_command(shlex.join(page), "$ ")
        inspect_model(str(run), dataset=DATA, split="test", out=out / "report")
        save_digits(out / "digits")
        models = {FINETUNED: run, SCRATCH: scratch}
        models |= {f"{FINETUNED}, {form} int8": out / "int8" / f"model.{form}" for form in ("onnx", "tflite")}
        shares = judge(models)
    print_summary(out, shares, seconds, console)
    return shares


def demonstrate(
    out: Annotated[Path, typer.Option(callback=try_folder, help="Folder for all that the demo makes.")] = Path(
        "keras-vit-demo"
    ),
) -> None:
    """Shows the main job in a minute or two, without a network: fine-tune, export, prove equal, look inside.

    Fine-tunes a small ViT on 300 handwritten digits of scikit-learn; its weights come with the package and were trained
    on clothes (Fashion-MNIST). Trains the same model from random weights to compare. Exports the fine-tuned one to
    SavedModel, TFLite and ONNX, the latter two also in int8, and compares each with the model in its own runtime.
    Writes two pages: one shows where the model looks, the other runs it in a browser. Prints the command of every step.
    The exit code is 1 if the fine-tuned model classifies less than 85 % of 360 other digits correctly.

    Example: keras-vit demo --out keras-vit-demo
    """
    accuracy = run_demo(out)[FINETUNED].value
    if accuracy < TARGET_ACCURACY:
        raise KerasVitError(f"The fine-tuned accuracy is {accuracy:.1%}; {TARGET_ACCURACY:.0%} was expected.")

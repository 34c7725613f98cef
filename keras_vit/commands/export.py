"""`keras-vit export` and `verify`: make a bundle of artefacts proved equal to the model, and check it again later."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from keras_vit import export, zoo
from keras_vit.commands.parsing import Command
from keras_vit.commands.shared import Model, ToFolder, complete_dataset, import_keras, require_model
from keras_vit.console import Console, say
from keras_vit.data.datasets.schemes import require_dataset
from keras_vit.errors import ConfigError, KerasVitError, printable
from keras_vit.export.formats import NAMES, QUANTIZE, USUAL
from keras_vit.export.verification import require_manifest
from keras_vit.export.web import FOLDER as PAGE
from keras_vit.export.web import WEB_LAYOUTS
from keras_vit.images.pixels import read_any_image
from keras_vit.inference.listing import list_images
from keras_vit.trainers.provenance import describe_provenance, read_dataset
from keras_vit.training.runs.run_folder import WEIGHTS, describe_weights

Format = StrEnum("Format", NAMES)
Quantize = StrEnum("Quantize", QUANTIZE)
Weights = StrEnum("Weights", WEIGHTS)
WebLayout = StrEnum("WebLayout", WEB_LAYOUTS)
Endpoint = StrEnum("Endpoint", ("features", "attention"))

CALIBRATED = 64  # images for calibration
PICTURES = 4  # sample images on a page
DENSE: dict[str, Any] = {"num_classes": 0, "classifier": "patches"}
CLASS_VECTORS = ("class_vectors", "scale", "labels", "bias", "probabilities")
SEVERAL: dict[str, list] = {"--to": list(Format), "--endpoints": list(Endpoint)}


def repeat_options(arguments):
    """Repeats the name of an option before each of its values, as the command line library expects.

    >>> repeat_options(["--to", "onnx", "tflite", "--out", "onnx"])
    ['--to', 'onnx', '--to', 'tflite', '--out', 'onnx']
    """
    result, option = [], ""
    for argument in arguments:
        if argument in SEVERAL:
            option = argument
        elif argument not in SEVERAL.get(option, ()):
            option = ""
        elif result[-1] != option:
            result.append(option)
        result.append(argument)
    return result


class ExportCommand(Command):
    """A command that takes `--to a b` as well as `--to a --to b`."""

    def parse_args(self, context, arguments):
        return super().parse_args(context, repeat_options(arguments))


COMMAND = ExportCommand  # for the commands of this file, in place of `parsing.Command`


def load_calibration(dataset, model):
    """CALIBRATED training images of a dataset as the model's inputs, (n, h, w, c); None for no dataset."""
    if dataset is None:
        return None
    from keras_vit import data

    batches = data.load(dataset, "train").train(CALIBRATED, model.preprocessing, augmentation="none")
    with data.data_errors():
        return np.asarray(next(iter(batches))[0])


def read_pictures(path, calibration, channels):
    """Sample images for a page: some held out by the run, else some of the calibration dataset, else None."""
    from keras_vit import data

    dataset, split = read_dataset(path), "validation"
    if dataset is None:
        dataset, split = calibration, "train"
    if dataset is None:
        return None
    try:
        with data.data_errors():
            count = min(PICTURES, data.load(dataset, split).num_examples)
            found = data.read_images(data.load(dataset, split, examples=count), range(count), channels)
    except KerasVitError as error:
        say(f"web: the page has no images of {dataset}: {error}")
        return None
    say(f"web: the page shows {count} images of {dataset} ({split})")
    return found


def open_class_vectors(path, needed):
    """The arrays that `zero_shot` takes, by name, of an .npz file from tools/class_vectors.py; some are `needed`."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in CLASS_VECTORS if name in needed or name in file.files}
    except Exception as error:  # a damaged archive raises anything
        raise ConfigError(
            f"{path} has no class vectors. Make a file: python tools/class_vectors.py owner/model {path} cat dog."
        ) from error


def find_references(model, examples):
    """(names, vectors) to compare with on a page of vectors: pictures of a folder, or class vectors of an .npz file."""
    from keras_vit.models.vectors import vector_reader

    needed = model.gives_vectors and model.config.classifier != "patches"
    if needed != (examples is not None):
        raise ConfigError(
            "A page of an embedding model shows what is nearest: give it --examples, a folder of pictures or an .npz "
            "file of class vectors; or make a classifier by --class-vectors. A classifier's page takes no --examples."
        )
    if examples is None:
        return None
    if examples.suffix == ".npz":
        found = open_class_vectors(examples, ("class_vectors", "labels"))
        return found["labels"], found["class_vectors"]
    paths, read = list_images([str(examples)]), vector_reader(model, "output")
    images = (model.preprocessing(read_any_image(path, model.config.num_channels)[None]) for path in paths)
    return [Path(path).stem for path in paths], np.concatenate([read(image) for image in images])


def tabulate_reports(reports: "list[export.Report]", title: str) -> Group:
    """A table with the title and a line for each artefact."""
    timed = any(report.latency_ms for report in reports)
    grid = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("format", "kind", "size", "max diff", "cosine", "top-1", *(["ms at batch 1, 8"] if timed else [])):
        grid.add_column(column, overflow="fold")
    for report in reports:
        grid.add_row(
            report.format,
            report.quantize or "float32",
            f"{report.bytes / 1e6:.2f} MB",
            f"{report.max_abs_diff:.1e}",
            f"{report.cosine:.6f}",
            "" if report.top1_agreement is None else f"{report.top1_agreement:.1%}",
            *([", ".join(f"{ms:.1f}" for ms in report.latency_ms.values())] if timed else []),
        )
    return Group(Text(printable(title), style="italic"), grid)


def value_of(choice):
    """What the library takes in place of an option's choice; None for none."""
    return choice and str(choice)


def export_model(
    model: Model,
    out: Annotated[Path, ToFolder(help="The folder of the bundle.")],
    weights: Annotated[
        Weights | None,
        typer.Option(
            help="The weights of a run to take: those of its best epoch, of its last step, or averaged over its steps; "
            "by default best, if images were held out."
        ),
    ] = None,
    to: Annotated[
        list[Format] | None,
        typer.Option(help=f"The formats to write: --to onnx tflite. By default {', '.join(USUAL)}."),
    ] = None,
    quantize: Annotated[
        Quantize | None, typer.Option(help="Store smaller weights; a SavedModel and StableHLO stay in float32.")
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="A dataset to calibrate with and to compare on, named as in `finetune --data`.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    endpoints: Annotated[
        list[Endpoint] | None,
        typer.Option(
            help="Outputs besides the logits: --endpoints features attention. A SavedModel has both as signatures, "
            "the other formats have attention as a second output."
        ),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Height and width of the images in pixels; by default the model's.")
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="The model's name on the page, in the model card and in model.json; by default its architecture and "
            "the dataset of the run.",
        ),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            help="The licence that the model card states, such as apache-2.0; by default that of public weights."
        ),
    ] = None,
    latency: Annotated[
        bool, typer.Option("--latency", help="Measure the milliseconds of each artefact and of the float32 model.")
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Also make a page that runs the model in a browser: keras-vit serve OUT.")
    ] = False,
    vendor: Annotated[
        bool, typer.Option("--vendor", help="Copy onnxruntime-web beside the page, so that it needs no network.")
    ] = False,
    examples: Annotated[
        Path | None,
        typer.Option(
            help="What the page of an embedding model, such as CLIP or DINOv2, compares a picture with: a folder of "
            "pictures, or an .npz file of class vectors."
        ),
    ] = None,
    dense: Annotated[
        bool,
        typer.Option(
            "--dense",
            help="Export the vectors of the patches in place of what the head makes of them; the page shows their "
            "principal components as colours.",
        ),
    ] = False,
    class_vectors: Annotated[
        Path | None,
        typer.Option(
            help="An .npz file of tools/class_vectors.py that makes an embedding model a classifier: `zoo.zero_shot`."
        ),
    ] = None,
    web_layout: Annotated[
        WebLayout | None, typer.Option(help="Add the folder transformers/, an image classifier for transformers.js.")
    ] = None,
) -> None:
    """Exports a model to a bundle: artefacts compared with the model, model.json, a card and a runnable predict.py.

    An export replaces the files of an earlier export in the folder. Artefacts of other formats stay if they belong to
    the same model; if they belong to another model, nothing is written. Other files are not touched: if one is in the
    way, the export stops with an error that names it.

    Example: keras-vit export runs/1 --to onnx tflite saved_model --quantize int8 --calibration folder:photos --out dist
    """
    path = require_model(model, value_of(weights))
    if calibration is not None:
        require_dataset(calibration)
    if examples is not None and not web:
        raise ConfigError("--examples is for the page of an embedding model. Add --web.")
    import_keras()
    if of_run := describe_weights(path):
        say(of_run)
    loaded = zoo.load(path, image_size=image_size, **(DENSE if dense else {}))
    if class_vectors is not None:
        loaded = zoo.zero_shot(loaded, **open_class_vectors(class_vectors, ("class_vectors", "scale")))
    metadata = describe_provenance(model, path, loaded.config, licence)
    if title is not None:
        metadata["name"] = title
    if image_size is not None or dense or class_vectors is not None:
        metadata.pop("evaluated", None)  # it was measured with the run's own head, at its own size
    images = load_calibration(calibration, loaded)
    page = {}
    if web:
        page["pictures"] = read_pictures(path, calibration, loaded.config.num_channels)
        page["references"] = find_references(loaded, examples)
    reports = export.bundle(
        loaded,
        out,
        [str(name) for name in to or USUAL],
        value_of(quantize),
        endpoints=[str(name) for name in endpoints or ()],
        web=web,
        vendor=vendor,
        web_layout=value_of(web_layout),
        images=images,
        metadata=metadata,
        latency=latency,
        progress=say,
        **page,
    )
    Console().print(tabulate_reports(reports, "Exports, each compared with the model in its own runtime"))
    say(f"The bundle is in {out}; check it again anywhere with:")
    say(f"  {shlex.join(['keras-vit', 'verify', str(out)])}")
    if web:
        say(f"The page is in {out / PAGE}; open it with:")
        say(f"  {shlex.join(['keras-vit', 'serve', str(out)])}")


def verify_bundle(folder: Annotated[Path, typer.Argument(help="A folder that `keras-vit export` wrote.")]) -> None:
    """Checks a bundle again, on any machine: its checksums, and every artefact in its runtime on stored examples.

    It shows that nothing was damaged or edited since the export. It cannot show who made the bundle, since its maker
    also makes the checksums. Artefacts that do more than compute are not opened; predict.py is not run.

    Example: keras-vit verify dist
    """
    require_manifest(folder)
    import_keras()
    notes = []
    reports = export.verify(folder, progress=notes.append)
    Console().print(tabulate_reports(reports, f"{folder}: every artefact computes what the model computed"))
    for line in notes:
        say(line)

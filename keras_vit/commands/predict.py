"""`keras-vit predict`: the most likely classes of images."""

import csv
import glob
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from keras_vit.commands.shared import (
    AskedModel,
    BatchSize,
    Like,
    ToFile,
    ToFolder,
    import_keras,
    require_model,
    show_count,
    skip_unreadable,
)
from keras_vit.console import Console, say
from keras_vit.errors import ConfigError, ImageError
from keras_vit.export.formats import recognise
from keras_vit.files import as_cell, make_folder, name_address, write_whole
from keras_vit.images.pillow import describe_missing
from keras_vit.images.pixels import paint_classes
from keras_vit.models.variants import VARIANTS

if TYPE_CHECKING:
    from keras_vit.inference import Prediction


def write_csv(predictions: "Iterable[Prediction]", file: IO[str]) -> None:
    """Writes a header and a line for each prediction: image, class_1, probability_1, class_2, ..."""
    writer = csv.writer(file, lineterminator="\n")
    for number, prediction in enumerate(predictions):
        if not number:
            places = range(1, len(prediction) + 1)
            writer.writerow(["image", *(f"{what}_{i}" for i in places for what in ("class", "probability"))])
        cells = (cell for name, p in prediction for cell in (as_cell(name), f"{p:.6f}"))
        writer.writerow([as_cell(prediction.image), *cells])


def write_lines(predictions: "Iterable[Prediction]", file: IO[str]) -> None:
    """Writes a line of JSON for each, as `Prediction.as_dict`."""
    for prediction in predictions:
        file.write(json.dumps(prediction.as_dict()) + "\n")


def write_list(predictions: "Iterable[Prediction]", file: IO[str]) -> None:
    """Writes one JSON list, with a line for each prediction."""
    before = "[\n"
    for prediction in predictions:
        file.write(before + json.dumps(prediction.as_dict()))
        before = ",\n"
    file.write("\n]\n" if before == ",\n" else "[]\n")


MASKS_AT_A_TIME = 8  # their logits are large
WRITERS = {".csv": write_csv, ".json": write_list, ".jsonl": write_lines}


def print_classes(predictions, console):
    """Prints the path of each image, and a line for each class."""
    for prediction in predictions:
        console.print(prediction.image, style="bold", soft_wrap=True)
        table = Table(box=None, show_header=False)
        for name, share in prediction:
            table.add_row(f"{share:.1%}", str(name))
        console.print(table)


def choose_writer(out, as_json, as_csv):
    """The function that writes predictions to a file, and the file's path, None for standard output."""
    if as_json and as_csv:
        raise ConfigError("Give --json or --csv, not both.")
    if out is None:
        return write_lines if as_json else write_csv if as_csv else None
    if as_json or as_csv:
        raise ConfigError(f"The ending of {out} chooses the format. Leave --json and --csv out.")
    if out.suffix.lower() not in WRITERS:
        raise ConfigError(f"A file of predictions ends in {' or '.join(WRITERS)}. Received: {out}.")
    return WRITERS[out.suffix.lower()]


def predict_images(model, paths, writer, out, top, batch_size):
    """Writes or prints the classes of every image; returns the number of those that could not be read."""
    from keras_vit import inference

    skip, unreadable = skip_unreadable()
    console = Console()
    if len(paths) == 1 and hasattr(model, "run_eagerly"):
        import keras

        # Tracing a graph takes TensorFlow longer than computing one image without it.
        model.run_eagerly = keras.backend.backend() == "tensorflow"
    nothing_printed = out is not None or not console.is_terminal
    with show_count("images", len(paths), nothing_printed) as tell:
        predictions = tell_each(inference.predict_each(model, paths, top, batch_size, skip), unreadable, tell)
        if out is not None:
            with (
                make_folder(out.absolute().parent),
                write_whole(out) as path,
                open(path, "w", encoding="utf-8") as file,
            ):
                writer(predictions, file)
                if len(unreadable) == len(paths):
                    raise ImageError(f"None of the images can be read; {out} is not written.")
        elif writer is not None:
            writer(predictions, sys.stdout)
        else:
            print_classes(predictions, console)
    if out is not None:
        missing = f" {len(unreadable):,} could not be read." if unreadable else ""
        say(f"{out}: {len(paths) - len(unreadable):,} of {len(paths):,} images.{missing}")
    return len(unreadable)


def write_masks(model, names, folder, batch_size):
    """Writes the class of every pixel of every image of `name_masks`; returns how many could not be read."""
    from keras_vit import inference

    skip, unreadable = skip_unreadable()
    found = inference.segment_each(model, names, batch_size, skip)
    with make_folder(folder / "masks"), make_folder(folder / "painted"), show_count("images", len(names)) as tell:
        for number, (path, pixels, mask) in enumerate(found, 1):
            write_mask(folder, f"{names[path]}.png", pixels / 255, mask, model.config.num_classes)
            tell(number + len(unreadable))
    say(f"{folder}: {len(names) - len(unreadable):,} of {len(names):,} images.")
    say("masks/ has class numbers, 255 outside the model's crop; painted/ has their colours.", one_line=False)
    return len(unreadable)


def write_mask(folder, name, image, mask, count):
    """Writes masks/NAME, class numbers (h, w), and painted/NAME, these in colour over the image (h, w, c) in [0, 1]."""
    from PIL import Image

    image = image if image.shape[-1] >= 3 else image.repeat(3, axis=-1)
    painted = (255 * paint_classes(image[..., :3], mask, count)).round().astype("uint8")
    for part, pixels in (("masks", mask), ("painted", painted)):
        with write_whole(folder / part / name) as path:
            Image.fromarray(pixels).save(path, format="PNG")


def name_masks(paths):
    """{path of an image: its name without the ending}; refuses equal names."""
    names = {path: Path(path).stem for path in paths}
    first = {name: path for path, name in reversed(names.items())}
    for path, name in names.items():
        if first[name] != path:
            raise ConfigError(f"{first[name]} and {path} would have the same mask, {name}.png. Rename one of them.")
    return names


def tell_each(predictions, unreadable, tell):
    for number, prediction in enumerate(predictions, 1):
        yield prediction
        tell(number + len(unreadable))


def require_new(folder, writer, top):
    """Refuses a folder that is not empty: writing there could replace hand-made masks of the same names."""
    if folder is not None and (writer is not None or top is not None):
        raise ConfigError("Give --masks, or what is for an image's classes (--out, --json, --csv, --top), not both.")
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty. Give --masks a new folder.")


def require_images(places):
    """Refuses a model as first argument, as in other commands, and images that are all missing."""
    for place in places:
        path = Path(place)
        names = ("model.keras", "best.weights.npz", "model.json")
        is_name = place.partition(":")[0] in VARIANTS and not path.exists()
        if is_name or path.suffix in (".keras", ".npz") or recognise(path) or any((path / x).is_file() for x in names):
            raise ConfigError(
                f"{place} is a model, not an image. Give it as --model: keras-vit predict IMAGE --model {place}"
            )
    plain = [place for place in places if place != "-" and not name_address(place) and not glob.has_magic(place)]
    missing = [place for place in plain if not os.path.lexists(place)]
    if len(missing) == len(places):
        raise ImageError(" ".join(map(describe_missing, missing)))


def predict(
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images to classify (JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or JPEG 2000 files), folders of them, or "
            "patterns in quotes such as `'photos/**/*.jpg'`; https addresses; - for standard input."
        ),
    ],
    model: AskedModel = "ViT-B/16",
    top: Annotated[
        int | None, typer.Option(min=1, help="How many classes to show for each image; 5 by default.")
    ] = None,
    out: Annotated[
        Path | None, ToFile(help="A file for the predictions, .csv, .json or .jsonl; an existing one is replaced.")
    ] = None,
    masks: Annotated[
        Path | None,
        ToFolder(
            help="For a model that segments, a new folder for the class of every pixel: masks/ gets PNG of class "
            "numbers, and painted/ shows them as colours over the images. "
            f"At most {MASKS_AT_A_TIME} images are read at a time."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each image.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line for each image.")] = False,
    batch_size: BatchSize = 32,
    like: Like = None,
) -> None:
    """Classifies images: prints the most likely classes of each, with probabilities.

    An image that cannot be read is named on standard error, the others are classified, and the exit code is 1.
    In CSV, control characters of names are escaped, and a name that a spreadsheet would read as a formula gets an
    apostrophe.

    Example: keras-vit predict photos --model runs/1 --out predictions.csv
    """
    writer = choose_writer(out, as_json, as_csv)
    require_images(images)
    require_model(model)
    require_new(masks, writer, top)
    import_keras()
    from keras_vit.inference import open_classifier
    from keras_vit.inference.listing import list_images

    paths = list_images(images)
    names = name_masks(paths) if masks else {}
    opened = open_classifier(model, like)
    if masks:
        failed = write_masks(opened, names, masks, min(batch_size, MASKS_AT_A_TIME))
    else:
        failed = predict_images(opened, paths, writer, out, top or 5, batch_size)
    raise typer.Exit(1 if failed else 0)

"""`keras-vit inspect`: a page that shows what a model has learned, and where it looks."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import data, inspection, zoo
from keras_vit.commands.shared import Model, import_keras, require_model, try_folder
from keras_vit.data.datasets.schemes import describe_schemes, require_dataset
from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import read_image
from keras_vit.trainers.provenance import name_model, read_dataset
from keras_vit.training.runs.folder import model_of

PAGE = "index.html"
MOST = 128  # images, as many as the paper averages attention distances over (Figure 11)


def read_some(dataset, split, channels):
    """{name: image} of at most 128 examples of a split, always the same ones."""
    import tensorflow as tf

    count, found = min(MOST, data.load(dataset, split).num_examples), {}
    some = data.load(dataset, split, examples=count)
    for number in range(count):
        try:
            (found[f"{split} {number}"],) = data.read_images(some, [number], channels)
        except (ImageError, tf.errors.OpError):
            print(f"keras-vit: an image of {dataset} ({split}) cannot be read, and is left out.", file=sys.stderr)
    return found


def inspect_model(
    model: Model,
    more: Annotated[list[str] | None, typer.Argument(metavar="IMAGE...", help="The same as --images.")] = None,
    images: Annotated[list[str] | None, typer.Option(help="Images to look at; the paper averages over 128.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--data", help=f"{MOST} images of a dataset, chosen at random. {describe_schemes()}"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="The split of --data; by default train, and of a run's own data validation.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(callback=try_folder, help="The folder for the page, index.html; an existing one is replaced."),
    ] = Path("report"),
) -> None:
    """Writes one HTML page about a model: filters, position embeddings, attention, features or class activation.

    If none are named, a run's held-out images are shown. The page needs no other file and no network. An image that
    cannot be read is named on standard error and left out; the exit code is then 1.

    Example: keras-vit inspect ViT-B/16 --images cat.jpg dog.jpg --data folder:photos --out report
    """
    paths = [*(images or []), *(more or [])]
    require_model(model)
    path_of_model = model_of(model)
    if not paths and not dataset:
        dataset, split = read_dataset(path_of_model), split or "validation"
    if not paths and not dataset:
        raise ConfigError(
            "There is no image to look at. Name some: keras-vit inspect MODEL --images cat.jpg dog.jpg, or a dataset: "
            "--data folder:photos."
        )
    if dataset:
        require_dataset(dataset)
    import_keras()
    loaded = zoo.load(path_of_model)
    readable = read_some(dataset, split or "train", loaded.config.num_channels) if dataset else {}
    unreadable = 0
    for path in paths:
        try:
            readable[path] = read_image(path, loaded.config.num_channels)
        except ImageError as error:
            unreadable += 1
            print(f"keras-vit: {error}", file=sys.stderr)
    if not readable:
        raise ConfigError(f"None of {len(paths)} images could be read.")
    names = [Path(path).name for path in readable]
    name = name_model(path_of_model, loaded.config).get("name", loaded.name)
    title = f"{name}: {len(names):,} image{'s' * (len(names) > 1)}"
    if dataset and not paths:
        title += f" of {Path(dataset.partition(':')[2] or dataset).name} ({split or 'train'})"
    inspection.report(loaded, list(readable.values()), out / PAGE, names, title=title)
    print(out / PAGE)
    if unreadable:
        raise typer.Exit(1)

"""`keras-vit inspect`: a page that shows what a model has learned, and where it looks."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import inspection, zoo
from keras_vit.commands import Model, import_keras
from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import read_image
from keras_vit.training.runs.folder import model_of

PAGE = "index.html"


def inspect_model(
    model: Model,
    more: Annotated[list[str] | None, typer.Argument(metavar="IMAGE...", help="Images, as after --images.")] = None,
    images: Annotated[list[str] | None, typer.Option(help="Images to look at; the paper averages over 128.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the page, index.html, which is replaced.")] = Path("report"),
) -> None:
    """Writes one HTML page about a model: filters, position embeddings, attention, features or class activation.

    The page needs no other file and no network. An image that cannot be read is named on standard error and left out;
    the exit code is then 1.

    Example: keras-vit inspect ViT-B/16 --images cat.jpg dog.jpg --out report
    """
    paths = [*(images or []), *(more or [])]
    if not paths:
        raise ConfigError("There is no image to look at. Name some: keras-vit inspect MODEL --images cat.jpg dog.jpg")
    import_keras()
    loaded, readable = zoo.load(model_of(model)), {}
    for path in paths:
        try:
            readable[path] = read_image(path, loaded.config.num_channels)
        except ImageError as error:
            print(f"keras-vit: {error}", file=sys.stderr)
    if not readable:
        raise ConfigError(f"None of {len(paths)} images could be read.")
    names = [Path(path).name for path in readable]
    inspection.report(loaded, list(readable.values()), out / PAGE, names)
    print(out / PAGE)
    if len(readable) < len(paths):
        raise typer.Exit(1)

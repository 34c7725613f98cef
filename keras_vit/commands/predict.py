"""`keras-vit predict`: images in, the likeliest classes out."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table

from keras_vit import zoo
from keras_vit.commands import import_keras
from keras_vit.console import Console
from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import read_image
from keras_vit.training.runs.folder import describe_weights, model_of

if TYPE_CHECKING:
    import keras


def classify(model: "keras.Model", image: np.ndarray, top: int = 5) -> list[tuple[str | int, float]]:
    """The `top` likeliest classes of a uint8 image (h, w, c), as (name, or index where it has none, probability).

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, image_size=16, labels=["cat", "dog"])
    >>> classify(model, np.zeros((40, 50, 3), "uint8"))  # random weights, with a zero head
    [('cat', 0.5), ('dog', 0.5)]
    """
    if not model.config.num_classes:
        raise ConfigError(f"{model.name} has no head: its output is features, not classes. Choose a model with a head.")
    logits = model.predict(model.preprocessing(image[None]), verbose=0)[0].astype("float32")
    shares = np.exp(logits - logits.max())
    probabilities = shares / shares.sum()
    best = np.argsort(-probabilities, kind="stable")[:top]
    return [(model.labels[i] if model.labels else int(i), float(probabilities[i])) for i in best]


def print_classes(path, classes, as_json, console):
    if as_json:
        rows = [{"class": name, "probability": round(p, 6)} for name, p in classes]
        print(json.dumps({"image": str(path), "classes": rows}))
        return
    console.print(str(path), style="bold", soft_wrap=True)
    table = Table(box=None, show_header=False)
    for name, p in classes:
        table.add_row(f"{p:.1%}", str(name))
    console.print(table)


def predict_images(paths, name, top, as_json, console):
    """Prints the classes of every image; returns the number of those that could not be read."""
    path = model_of(name)
    if (of_run := describe_weights(path)) and not as_json:
        console.print(of_run, soft_wrap=True)
    model = zoo.load(path)
    failed = 0
    for image in paths:
        try:
            classes = classify(model, read_image(image, model.config.num_channels), top)
        except ImageError as error:
            print(f"keras-vit: {error}", file=sys.stderr)
            failed += 1
            continue
        print_classes(image, classes, as_json, console)
    return failed


def predict(
    images: Annotated[
        list[str], typer.Argument(help="Images to classify: JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or JPEG 2000 files.")
    ],
    model: Annotated[
        str, typer.Option(help="A name that `keras-vit list` shows, a checkpoint, or the folder of a run.")
    ] = "ViT-B/16",
    top: Annotated[int, typer.Option(min=1, help="How many classes to show for each image.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each image.")] = False,
) -> None:
    """Classifies images: the likeliest classes of each, with probabilities.

    An image that cannot be read is named on standard error, the others are classified, and the exit code is 1.

    Example: keras-vit predict cat.jpg dog.png --model ViT-B/16
    """
    import_keras()
    failed = predict_images(images, model, top, as_json, Console())
    raise typer.Exit(1 if failed else 0)

"""`keras-vit predict`: pictures in, the likeliest classes out."""

import json
import sys

import keras
import numpy as np
from rich.table import Table

from keras_vit import zoo
from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import read_image
from keras_vit.training.runs.folder import model_of


def classify(model, image, top=5):
    """The `top` likeliest classes of a uint8 picture (h, w, c): [(name or index, probability), ...].

    >>> classify(model, keras_vit.images.pillow.read_image("cat.jpg"))[0]
    ('tabby, tabby cat', 0.71)
    """
    if not model.config.num_classes:
        raise ConfigError(f"{model.name} gives features, not classes: it has no head. Choose a model that has one.")
    logits = model.predict(model.preprocessing(image[None]), verbose=0)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits[0].astype("float32")))
    best = np.argsort(-probabilities)[:top]
    return [(model.labels[i] if model.labels else int(i), float(probabilities[i])) for i in best]


def run(paths, name, top, as_json, console):
    """Prints the classes of every picture; gives the number of pictures that could not be read."""
    model = zoo.load(model_of(name))
    failed = 0
    for path in paths:
        try:
            classes = classify(model, read_image(path, model.config.num_channels), top)
        except ImageError as error:
            print(f"keras-vit: {error}", file=sys.stderr)
            failed += 1
            continue
        show(path, classes, as_json, console)
    return failed


def show(path, classes, as_json, console):
    if as_json:
        rows = [{"class": name, "probability": round(p, 6)} for name, p in classes]
        print(json.dumps({"image": str(path), "classes": rows}))
        return
    console.print(str(path), style="bold", soft_wrap=True)
    table = Table(box=None, show_header=False)
    for name, p in classes:
        table.add_row(f"{p:.1%}", str(name))
    console.print(table)

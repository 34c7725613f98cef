"""*.keras: whole models as Keras saves them. The archive holds the weights as a .weights.h5 file."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from keras_vit.zoo.formats.bounds import MOST_JSON, open_archive, parse_json
from keras_vit.zoo.formats.checkpoint import CONFIGS, Fault, blame_file, read_description
from keras_vit.zoo.formats.keras_weights import open_weights

COMPLAINT = "cannot be read as a Keras model"


def require_our_model(description):
    """Refuses the description of a model of any class that this package does not register with Keras."""
    is_object = isinstance(description, dict)
    if is_object and description.get("registered_name") in [f"keras_vit>{name}" for name in CONFIGS]:
        return
    kind = description.get("class_name") if is_object else type(description).__name__
    raise Fault(f"holds a {kind}, not a model of this package. Read it with keras.saving.load_model.")


def read_trainable(config):
    """Which parts of the model train: a bool, or {path: bool}."""
    trainable = config.get("trainable")
    values = trainable.values() if isinstance(trainable, dict) else [trainable]
    if not all(isinstance(value, bool) for value in values):
        raise Fault("does not say by True and False which parts of its model train.")
    return trainable


def read(path, hints):
    """The file, of one of our models, as an `OpenCheckpoint`."""
    with open_archive(path, COMPLAINT) as archive, tempfile.TemporaryDirectory() as folder:
        with blame_file(COMPLAINT), archive.open("config.json") as stream:
            text = stream.read(MOST_JSON + 1)
        description = parse_json(text)
        require_our_model(description)
        facts, trainable = read_description(description), read_trainable(description["config"])
        weights = Path(folder, "model.weights.h5")
        with blame_file(COMPLAINT), archive.open(weights.name) as stream, open(weights, "wb") as copy:
            shutil.copyfileobj(stream, copy)
        return dataclasses.replace(open_weights(path, weights, *facts), trainable=trainable)


def write(model, path):
    """Writes the whole model as Keras does."""
    model.save(path)

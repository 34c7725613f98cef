"""The golden files: checkpoints of other libraries, with images and the logits that the libraries compute for them."""

import pathlib

import keras
import numpy as np

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def reference(name):
    """(images, logits) of a golden checkpoint."""
    with np.load(GOLDEN / f"{name}.io.npz") as io:
        return io["images"], io["logits"]


def logits(model, images):
    """What a model answers, as a numpy array."""
    return keras.ops.convert_to_numpy(model(images))

"""SavedModels in TensorFlow."""

import numpy as np

from keras_vit.export.proof.runtimes import literal


def load_saved_model(path, names=None):
    """A function from a list of arrays to the list of outputs."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    return lambda inputs: [np.asarray(x) for x in tf.nest.flatten(loaded.serve(*inputs))]


def load(path, names=None):
    """The same for a path of any characters."""
    with literal(path) as place:
        return load_saved_model(place, names)

"""What tracing follows in place of a layer's `call`.

A layer may say its computation in fewer operations by an `export_call` of its own. Some layers of Keras have none, and
a `call` that fails on symbolic tensors because it is written in code of the backend; theirs stands here, in keras.ops.
"""

import keras
import numpy as np
from keras import layers, ops


def batch_normalization(layer, x):
    """By the moving moments. Keras' own call fails on symbolic tensors where only one of scale and center is set."""
    mean = np.asarray(layer.moving_mean)
    gamma = np.asarray(layer.gamma) if layer.scale else np.ones_like(mean)
    beta = np.asarray(layer.beta) if layer.center else np.zeros_like(mean)
    variance = np.asarray(layer.moving_variance)
    return ops.batch_normalization(x, mean, variance, layer.axis, offset=beta, scale=gamma, epsilon=layer.epsilon)


def rescaling(layer, x):
    return ops.add(ops.multiply(ops.cast(x, layer.compute_dtype), np.float32(layer.scale)), np.float32(layer.offset))


def normalization(layer, x):
    """(x - mean) / deviation; Keras keeps the deviation at or above its epsilon."""
    if layer.invert:
        raise ValueError("a Normalization layer with invert=True")
    deviation = np.maximum(np.sqrt(np.asarray(layer.variance)), keras.config.epsilon())
    return ops.divide(ops.subtract(ops.cast(x, layer.compute_dtype), np.asarray(layer.mean)), deviation)


def activation(layer, x):
    is_hard_silu = layer.activation is keras.activations.hard_silu
    return ops.hard_silu(x) if is_hard_silu else layer.activation(x)


def unchanged(layer, x):
    return x


# Augmentation inside a model changes images in training alone; RandomCrop, which also resizes, is not among them.
AUGMENTATIONS = [getattr(layers, name) for name in dir(layers) if name.startswith("Random") and name != "RandomCrop"]
CALLS = {
    layers.Activation: activation,
    layers.BatchNormalization: batch_normalization,
    layers.Normalization: normalization,
    layers.Rescaling: rescaling,
    **dict.fromkeys(AUGMENTATIONS, unchanged),
}


def export_call(layer):
    """The function that tracing calls for `layer`. A subclass of a layer above may compute something else: `call`."""
    if hasattr(layer, "export_call"):
        return layer.export_call
    if type(layer) in CALLS:
        return lambda x, **kwargs: CALLS[type(layer)](layer, x)  # masks and `training` change nothing at inference
    return layer.call

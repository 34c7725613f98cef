"""ONNX for the layers that stay whole: Keras has no operation, or none that can be traced, for what they compute.

They are known by name, since this package's own are of a room that `export` does not import.
"""

import keras
import numpy as np

from keras_vit.export.onnx.emit.linear import convolve


def grouped_conv(g, layer, out, x):
    """Conv2D with groups; keras.ops.conv of symbolic tensors wants a kernel of all input channels."""
    bias = np.asarray(layer.bias) if layer.use_bias else None
    return convolve(g, layer, out, x, np.asarray(layer.kernel), bias, layer.groups)


def is_grouped_conv(layer):
    return layer.groups > 1 and layer.rank == 2 and layer.activation is keras.activations.linear


def group_norm(g, layer, out, x, relu=False):
    """Instance normalization over merged groups: (n, c, h, w) -> (n, groups, c / groups * h, w) and back; then ReLU."""
    if len(x.shape) != 4 or getattr(layer, "axis", -1) % 4 != 3:
        raise ValueError("group normalization of anything but channels-last images")
    n, h, w, c = x.shape
    x = g.channels_first(x)
    groups = layer.groups if layer.groups > 0 else c
    ones, zeros = np.ones(groups, x.dtype), np.zeros(groups, x.dtype)
    merged = g.add("Reshape", [x, np.array([0, groups, -1, 0])], (n, groups, None, w), x.dtype)
    merged = g.add("InstanceNormalization", [merged, ones, zeros], merged.shape, x.dtype, epsilon=float(layer.epsilon))
    x = g.add("Reshape", [merged, np.array([0, c, -1, 0])], x.shape, x.dtype, True)
    for op, weight in (("Mul", getattr(layer, "gamma", None)), ("Add", getattr(layer, "beta", None))):
        if weight is not None:
            x = g.add(op, [x, np.asarray(weight).reshape(1, c, 1, 1)], x.shape, x.dtype, True)
    return g.add("Relu", [x], x.shape, x.dtype, True) if relu else x

"""ONNX for the layers that are not entered: those that random numbers, groups or backend code keep from being traced.

Emitters are called as `emit(graph, layer, out, x)`.
"""

import numpy as np

from keras_vit.export.onnx.emit.linear import batch_norm_layer, convolved, group_norm_layer
from keras_vit.export.onnx.emit.math import binary, cast, hard_sigmoid, hard_silu, identity


def grouped_conv_layer(g, layer, out, x):
    """Conv2D with groups, whose operation Keras cannot trace."""
    bias = np.asarray(layer.bias) if layer.use_bias else None
    return convolved(g, layer, out, x, np.asarray(layer.kernel), bias, layer.groups)


def rescaling(g, layer, out, x):
    x = cast(g, layer, out, x)
    scale, offset = (np.asarray(value, out.dtype) for value in (layer.scale, layer.offset))
    if scale.ndim or (scale != 1).any():
        x = binary("Mul")(g, layer, out, x, scale)
    return binary("Add")(g, layer, out, x, offset) if offset.any() else x


def normalization(g, layer, out, x):
    """(x - mean) / deviation with the deviation bounded as Keras does."""
    if layer.invert:
        raise ValueError("an inverted Normalization layer")
    deviation = np.maximum(np.sqrt(np.asarray(layer.variance)), 1e-7)
    x = binary("Sub")(g, layer, out, x, np.asarray(layer.mean))
    return binary("Div")(g, layer, out, x, deviation)


def resizing(g, layer, out, x):
    """Bilinear, pixels being squares with their values in the middle."""
    x = g.channels_first(cast(g, layer, out, x))
    size = np.array([layer.height, layer.width])
    attributes = {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "axes": (2, 3)}
    return g.add("Resize", [x, None, None, size], out.shape, out.dtype, True, **attributes)


def is_plain_resizing(layer):
    whole = not (layer.crop_to_aspect_ratio or layer.pad_to_aspect_ratio or layer.antialias)
    return whole and layer.interpolation == "bilinear" and layer.data_format == "channels_last"


def is_grouped_conv(layer):
    return layer.groups > 1 and layer.rank == 2 and layer.activation.__name__ == "linear"


def is_hard(layer):
    return layer.activation.__name__ in HARD


HARD = {"hard_sigmoid": hard_sigmoid, "hard_silu": hard_silu}


def hard_activation(g, layer, out, x):
    return HARD[layer.activation.__name__](g, layer, out, x)


def always(layer):
    return True


# Layers of these names, after "Random", change pictures in training alone.
AUGMENTATIONS = "Brightness Contrast Erasing Flip Hue Rotation Saturation Shear Translation Zoom".split()

# Class of layer: (whether this layer stays whole, emitter).
LAYERS = {
    "Activation": (is_hard, hard_activation),
    "ActivityRegularization": (always, identity),
    "AlphaDropout": (always, identity),
    "BatchNormalization": (always, batch_norm_layer),
    "Conv2D": (is_grouped_conv, grouped_conv_layer),
    "Dropout": (always, identity),
    "GaussianDropout": (always, identity),
    "GaussianNoise": (always, identity),
    "GroupNormalization": (always, group_norm_layer),
    "Normalization": (always, normalization),
    "Rescaling": (always, rescaling),
    "Resizing": (is_plain_resizing, resizing),
    "SpatialDropout1D": (always, identity),
    "SpatialDropout2D": (always, identity),
    **{f"Random{name}": (always, identity) for name in AUGMENTATIONS},
}


def is_leaf(layer):
    """Whether an emitter above takes this layer whole; a namesake from elsewhere is entered."""
    row = LAYERS.get(type(layer).__name__)
    ours = type(layer).__module__.split(".")[0] in ("keras", "keras_vit")
    return row is not None and ours and row[0](layer)

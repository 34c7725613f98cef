"""The emitters of Keras operations and layers as ONNX nodes, a row each, with the libraries whose models need it.

An emitter is called as `emit(graph, operation, out, *args, **kwargs)`. `out` is the traced output, or the list of them,
with shape and dtype; the arguments are those of the Keras operation, tensors as Values, and as arrays where they depend
on weights alone. It returns the Value of the output, or the list of them. It raises ValueError for an operation that it
cannot write. Operations that no library's models need have no emitter: a model with one goes through tf2onnx
(`fallback.py`). The models are those of tests/support/any_models.py; tests/export/test_any_model.py compares the column
with their traces.
"""

from collections.abc import Callable
from typing import NamedTuple

from keras_vit.export.onnx.emit import linear, math, shape
from keras_vit.export.onnx.emit.math import binary, reduction, unary

OURS, APPS, HUB, ZERO = "keras_vit", "keras.applications", "keras_hub", "zeromodels"


class Row(NamedTuple):
    """An emitter, the libraries that need it, and a function that tells whether a layer stays whole."""

    emit: Callable
    needed_by: tuple
    stays_whole: Callable = lambda layer: True


def row(emit, *needed_by):
    return Row(emit, needed_by)


OPERATIONS = {
    "Absolute": row(unary("Abs"), OURS),
    "Add": row(binary("Add"), OURS, APPS, HUB, ZERO),
    "AveragePool": row(linear.pool("AveragePool", count_include_pad=0), OURS, APPS, HUB, ZERO),
    "BatchNorm": row(linear.batch_norm, APPS, HUB, ZERO),
    "Cast": row(math.cast, OURS, APPS, HUB, ZERO),
    "Concatenate": row(shape.concatenate, OURS, APPS, HUB, ZERO),
    "Conv": row(linear.conv, OURS, APPS, HUB, ZERO),
    "ConvertToTensor": row(math.cast, OURS, APPS, HUB, ZERO),
    "Cos": row(unary("Cos"), OURS),
    "DepthwiseConv": row(linear.depthwise_conv, APPS, HUB, ZERO),
    "Divide": row(binary("Div"), APPS),
    "DotProductAttention": row(linear.attention, HUB),
    "Einsum": row(linear.einsum, HUB, ZERO),
    "Gelu": row(math.gelu, OURS, APPS, HUB, ZERO),
    "GetItem": row(shape.get_item, OURS, APPS, HUB, ZERO),
    "HardSigmoid": row(unary("HardSigmoid", alpha=1 / 6, beta=0.5), HUB, ZERO),
    "HardSilu": row(unary("HardSwish"), APPS, HUB, ZERO),
    "LayerNorm": row(linear.layer_norm, OURS, APPS, HUB, ZERO),
    "LeakyRelu": row(math.leaky_relu, HUB),
    "Matmul": row(linear.matmul, OURS, APPS, HUB, ZERO),
    "MaxPool": row(linear.pool("MaxPool"), OURS, APPS, HUB, ZERO),
    "Maximum": row(binary("Max"), OURS, ZERO),
    "Mean": row(reduction("ReduceMean"), OURS, APPS, HUB, ZERO),
    "Minimum": row(binary("Min"), OURS),
    "Multiply": row(binary("Mul"), OURS, APPS, HUB, ZERO),
    "Negative": row(unary("Neg"), OURS),
    "Normalize": row(math.normalize, OURS),
    "Pad": row(shape.pad, OURS, APPS, HUB, ZERO),
    "ReLU": row(math.relu_with_bounds, OURS, APPS, HUB, ZERO),
    "Relu": row(unary("Relu"), OURS),
    "Relu6": row(math.relu6, ZERO),
    "Reshape": row(shape.reshape, OURS, APPS, HUB, ZERO),
    "Roll": row(shape.roll, HUB, ZERO),
    "SeparableConv": row(linear.separable_conv, APPS, HUB),
    "Sigmoid": row(unary("Sigmoid"), APPS, ZERO),
    "Sin": row(unary("Sin"), OURS),
    "Silu": row(math.silu, APPS, ZERO),
    "Softmax": row(math.softmax, OURS, HUB, ZERO),
    "Split": row(shape.split, ZERO),
    "Sqrt": row(unary("Sqrt"), ZERO),
    "Square": row(math.square, ZERO),
    "Subtract": row(binary("Sub"), OURS, APPS, HUB, ZERO),
    "Sum": row(reduction("ReduceSum"), OURS, ZERO),
    "Swapaxes": row(shape.swapaxes, OURS, ZERO),
    "Tanh": row(unary("Tanh"), OURS, ZERO),
    "Transpose": row(shape.transpose, OURS, HUB, ZERO),
    "TrueDivide": row(binary("Div"), OURS, HUB, ZERO),
    "Unstack": row(shape.unstack, HUB, ZERO),
}


LAYERS = {
    "Conv2D": Row(linear.grouped_conv, (APPS, HUB, ZERO), linear.is_grouped_conv),
    "GroupNormalization": row(linear.group_norm, OURS, ZERO),
    "PatchPlaces": row(shape.patch_places, OURS),
}


def is_leaf(layer):
    """Whether an emitter writes this layer as a whole; another library's layer of the same name is traced."""
    found = LAYERS.get(type(layer).__name__)
    ours = type(layer).__module__.split(".")[0] in ("keras", "keras_vit")
    return found is not None and ours and found.stays_whole(layer)

"""ONNX for elementwise operations, activations, reductions, casts.

Every emitter is called as `emit(graph, operation, out, *args, **kwargs)`: `out` is the traced output (shape, dtype),
the arguments are those of the Keras operation with tensors as Values or arrays. It gives the Value of the output.
"""

import keras
import numpy as np

from keras_vit.export.onnx.graph import TO_FIRST, Spec, Value

BINARY = {
    "Add": "Add",
    "Subtract": "Sub",
    "Multiply": "Mul",
    "Divide": "Div",
    "TrueDivide": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
    "Power": "Pow",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "Equal": "Equal",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
}
UNARY = {
    "Relu": "Relu",
    "Sigmoid": "Sigmoid",
    "Tanh": "Tanh",
    "Softplus": "Softplus",
    "Softsign": "Softsign",
    "Exp": "Exp",
    "Log": "Log",
    "Sqrt": "Sqrt",
    "Erf": "Erf",
    "Abs": "Abs",
    "Absolute": "Abs",
    "Negative": "Neg",
    "Reciprocal": "Reciprocal",
    "Floor": "Floor",
    "Ceil": "Ceil",
    "Round": "Round",
    "Sign": "Sign",
    "Sin": "Sin",
    "Cos": "Cos",
    "LogicalNot": "Not",
}
REDUCTIONS = {"Mean": "ReduceMean", "Sum": "ReduceSum", "Max": "ReduceMax", "Min": "ReduceMin"}
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def scalar(value, dtype="float32"):
    return np.array(value, dtype)


def aligned(g, values):
    """Operands of a broadcast in one order of axes: (operands, channels_first)."""
    first = any(isinstance(x, Value) and x.channels_first for x in values)
    if first and any(isinstance(x, Value) and len(x.shape) != 4 for x in values):
        return [g.channels_last(x) if isinstance(x, Value) else x for x in values], False
    if not first:
        return values, False
    return [g.channels_first(x) if isinstance(x, Value) else constant_first(x) for x in values], True


def constant_first(array):
    """A constant that broadcasts over (n, h, w, c), stored to broadcast over (n, c, h, w)."""
    if array.ndim == 0:
        return array
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_FIRST)


def promoted(g, out, *values):
    """Operands in the type in which Keras computes: the result's, or of a comparison the one that holds both."""
    dtype = out.dtype
    if dtype == "bool":
        dtype = keras.backend.result_type(*(str(x.dtype) if hasattr(x, "dtype") else type(x) for x in values))
    return [convert_type(g, x, dtype) if isinstance(x, Value) else np.asarray(x, dtype) for x in values]


def broadcast_shape(a, b):
    """Shape of an elementwise result; Keras' own has holes after layers that do not infer theirs."""
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(shape)) + tuple(shape) for shape in (a, b))
    return tuple(n if m == 1 else m if n in (1, None) else n for n, m in zip(a, b, strict=True))


def binary(onnx_op):
    def emit(g, operation, out, x1, x2):
        x1, x2 = promoted(g, out, x1, x2)
        shape = broadcast_shape(x1.shape, x2.shape)
        (x1, x2), first = aligned(g, [x1, x2])
        return g.add(onnx_op, [x1, x2], shape, out.dtype, first)

    return emit


def unary(onnx_op, **attributes):
    def emit(g, operation, out, x):
        return g.add(onnx_op, [x], x.shape, out.dtype, x.channels_first, **attributes)

    return emit


def with_alpha(onnx_op, name):
    """An activation whose `alpha` is the Keras operation's attribute `name`."""

    def emit(g, operation, out, x):
        alpha = float(getattr(operation, name))
        return g.add(onnx_op, [x], x.shape, out.dtype, x.channels_first, alpha=alpha)

    return emit


def identity(g, operation, out, x, *args, **kwargs):
    return x


def gelu(g, operation, out, x):
    form = "tanh" if operation.approximate else "none"
    return g.add("Gelu", [x], x.shape, out.dtype, x.channels_first, approximate=form)


def silu(g, operation, out, x):
    y = g.add("Sigmoid", [x], x.shape, x.dtype, x.channels_first)
    return g.add("Mul", [x, y], x.shape, x.dtype, x.channels_first)


def hard_sigmoid(g, operation, out, x):
    return g.add("HardSigmoid", [x], x.shape, x.dtype, x.channels_first, alpha=1 / 6, beta=0.5)


def hard_silu(g, operation, out, x):
    return g.add("HardSwish", [x], x.shape, x.dtype, x.channels_first)


def clip(g, operation, out, x, low=None, high=None):
    bounds = [None if bound is None else scalar(bound, x.dtype) for bound in (low, high)]
    return g.add("Clip", [x, *bounds], x.shape, x.dtype, x.channels_first)


def clip_operation(g, operation, out, x):
    return clip(g, operation, out, x, operation.x_min, operation.x_max)


def relu6(g, operation, out, x):
    return clip(g, operation, out, x, 0, 6)


def relu_with_bounds(g, operation, out, x):
    """keras.activations.relu with any slope and bound; a threshold other than 0 has no operator."""
    if operation.threshold:
        raise ValueError(f"relu with threshold {operation.threshold}")
    slope, bound = operation.negative_slope, operation.max_value
    if slope:
        x = g.add("LeakyRelu", [x], x.shape, x.dtype, x.channels_first, alpha=float(slope))
        return x if bound is None else clip(g, operation, out, x, None, bound)
    return unary("Relu")(g, operation, out, x) if bound is None else clip(g, operation, out, x, 0, bound)


def selu(g, operation, out, x):
    return g.add("Selu", [x], x.shape, x.dtype, x.channels_first, alpha=SELU_ALPHA, gamma=SELU_SCALE)


def softmax(g, operation, out, x):
    return along_axis(g, "Softmax", x, operation.axis)


def log_softmax(g, operation, out, x):
    return along_axis(g, "LogSoftmax", x, operation.axis)


def along_axis(g, onnx_op, x, axis):
    if not isinstance(axis, int):
        raise ValueError(f"{onnx_op} over the axes {axis}")
    x = g.channels_last(x)
    return g.add(onnx_op, [x], x.shape, x.dtype, axis=-1 if axis == len(x.shape) - 1 else axis)


def rsqrt(g, operation, out, x):
    y = g.add("Sqrt", [x], x.shape, x.dtype, x.channels_first)
    return g.add("Reciprocal", [y], x.shape, x.dtype, x.channels_first)


def square(g, operation, out, x):
    return g.add("Mul", [x, x], x.shape, x.dtype, x.channels_first)


def cast(g, operation, out, x):
    return convert_type(g, x, out.dtype)


def convert_type(g, x, dtype):
    if x.dtype == dtype:
        return x
    return g.add("Cast", [x], x.shape, dtype, x.channels_first, to=dtype)


def where(g, operation, out, condition, x1, x2):
    x1, x2 = promoted(g, out, x1, x2)
    (condition, x1, x2), first = aligned(g, [as_bool(g, condition), x1, x2])
    return g.add("Where", [condition, x1, x2], out.shape, out.dtype, first)


def as_bool(g, x):
    return convert_type(g, x, "bool") if isinstance(x, Value) else np.asarray(x, bool)


def reduction(onnx_op):
    def emit(g, operation, out, x):
        return reduce(g, onnx_op, x, reduced_axes(operation, len(x.shape)), operation.keepdims, out)

    return emit


def reduced_axes(operation, rank):
    axes = operation.axis
    axes = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    return sorted(axis % rank for axis in axes)


def reduce(g, onnx_op, x, axes, keepdims, out):
    """A reduction over `axes`, counted as Keras does; stays channels first where the order of what is left agrees."""
    apart = 3 not in axes and (1 not in axes or 2 not in axes)
    if x.channels_first and apart and not keepdims:
        x = g.channels_last(x)
    places = [TO_FIRST.index(axis) for axis in axes] if x.channels_first else axes
    first = x.channels_first and bool(keepdims)
    return g.add(onnx_op, [x, np.array(sorted(places))], out.shape, out.dtype, first, keepdims=int(bool(keepdims)))


def variance(g, operation, out, x):
    """Mean of the squared distance from the mean."""
    axes = reduced_axes(operation, len(x.shape))
    kept = Spec(tuple(1 if axis in axes else length for axis, length in enumerate(x.shape)), x.dtype)
    mean = reduce(g, "ReduceMean", x, axes, True, kept)
    distance = binary("Sub")(g, None, x, x, mean)
    return reduce(g, "ReduceMean", square(g, None, None, distance), axes, operation.keepdims, out)


MATH = {
    **{name: binary(onnx_op) for name, onnx_op in BINARY.items()},
    **{name: unary(onnx_op) for name, onnx_op in UNARY.items()},
    **{name: reduction(onnx_op) for name, onnx_op in REDUCTIONS.items()},
    "Cast": cast,
    "Celu": with_alpha("Celu", "alpha"),
    "Clip": clip_operation,
    "ConvertToTensor": cast,
    "Elu": with_alpha("Elu", "alpha"),
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSilu": hard_silu,
    "LeakyRelu": with_alpha("LeakyRelu", "negative_slope"),
    "LogSoftmax": log_softmax,
    "ReLU": relu_with_bounds,
    "Relu6": relu6,
    "Rsqrt": rsqrt,
    "Selu": selu,
    "Silu": silu,
    "Softmax": softmax,
    "Square": square,
    "StopGradient": identity,
    "Var": variance,
    "Where": where,
}

"""ONNX for elementwise operations, activations, reductions and casts of tensors in either order of axes."""

import keras
import numpy as np

from keras_vit.export.onnx.graph import TO_FIRST, Value


def constant_first(array):
    """A constant that broadcasts over (n, h, w, c), stored to broadcast over (n, c, h, w)."""
    if array.ndim == 0:
        return array
    return array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_FIRST)


def align_orders(g, values):
    """Brings operands of a broadcast to one order of axes: (operands, channels_first).

    Channels are first if one operand is stored so, since convolutions probably follow. They are last if one has fewer
    than four axes, because broadcasts align from the end.
    """
    first = any(isinstance(x, Value) and x.channels_first for x in values)
    if not first or any(isinstance(x, Value) and len(x.shape) != 4 for x in values):
        return [*map(g.channels_last, values)], False
    return [g.channels_first(x) if isinstance(x, Value) else constant_first(x) for x in values], True


def convert_type(g, x, dtype):
    if x.dtype == dtype:
        return x
    return g.add("Cast", [x], x.shape, dtype, x.channels_first, to=dtype)


def promote(g, out, *values):
    """Casts operands to the result's type, in which Keras computes: an ONNX operator does not take two types."""
    return [convert_type(g, x, out.dtype) if isinstance(x, Value) else np.asarray(x, out.dtype) for x in values]


def broadcast_shape(a, b):
    """The shape of an elementwise result; Keras' own is incomplete after layers that do not infer theirs."""
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(shape)) + tuple(shape) for shape in (a, b))
    return tuple(n if m == 1 else m if n in (1, None) else n for n, m in zip(a, b, strict=True))


def binary(onnx_op):
    def emit(g, operation, out, x1, x2):
        x1, x2 = promote(g, out, x1, x2)
        shape = broadcast_shape(x1.shape, x2.shape)
        (x1, x2), first = align_orders(g, [x1, x2])
        return g.add(onnx_op, [x1, x2], shape, out.dtype, first)

    return emit


def unary(onnx_op, **attributes):
    def emit(g, operation, out, x):
        return g.add_like(onnx_op, x, **attributes)

    return emit


def gelu(g, operation, out, x):
    return g.add_like("Gelu", x, approximate="tanh" if operation.approximate else "none")


def silu(g, operation, out, x):
    return g.add_like("Mul", x, g.add_like("Sigmoid", x))


def square(g, operation, out, x):
    return g.add_like("Mul", x, x)


def clip(g, x, low, high):
    bounds = [None if bound is None else np.array(bound, x.dtype) for bound in (low, high)]
    return g.add_like("Clip", x, *bounds)


def relu6(g, operation, out, x):
    return clip(g, x, 0, 6)


def leaky_relu(g, operation, out, x):
    return g.add_like("LeakyRelu", x, alpha=float(operation.negative_slope))


def normalize(g, operation, out, x):
    """x / max(|x|, epsilon), along one axis."""
    if operation.order != 2 or not isinstance(operation.axis, int):
        raise ValueError(f"normalize of order {operation.order} over the axes {operation.axis}")
    x, shape = g.channels_last(x), list(x.shape)
    shape[operation.axis] = 1
    norm = g.add("ReduceL2", [x, np.array([operation.axis])], tuple(shape), x.dtype, keepdims=1)
    epsilon = keras.config.epsilon() if operation.epsilon is None else operation.epsilon
    return g.add_like("Div", x, clip(g, norm, epsilon, None))


def softmax(g, operation, out, x):
    if not isinstance(operation.axis, int):
        raise ValueError(f"softmax over the axes {operation.axis}")
    return g.add_like("Softmax", g.channels_last(x), axis=operation.axis)


def relu_with_bounds(g, operation, out, x):
    """keras.activations.relu with any slope and bound, but no threshold other than 0: ONNX has no operator for it."""
    if operation.threshold:
        raise ValueError(f"relu with threshold {operation.threshold}")
    bound = operation.max_value
    if operation.negative_slope:
        x = leaky_relu(g, operation, out, x)
        return x if bound is None else clip(g, x, None, bound)
    return g.add_like("Relu", x) if bound is None else clip(g, x, 0, bound)


def cast(g, operation, out, x):
    return convert_type(g, x, out.dtype)


def needs_channels_last(axes):
    """Whether a mean over `axes` gives different orders of the remaining axes for (n, h, w, c) and (n, c, h, w).

    It does if the channels and one of height and width remain. If the channels are gone, the others have the same order
    either way; if height and width are gone, only batch and channels are left.
    """
    channels_stay = 3 not in axes
    image_stays = 1 not in axes or 2 not in axes
    return channels_stay and image_stays


def reduction(onnx_op):
    """A reduction over axes as Keras counts them; stays channels first if the remaining axes have the same order."""

    def emit(g, operation, out, x):
        axes, rank, keepdims = operation.axis, len(x.shape), bool(operation.keepdims)
        axes = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
        axes = sorted(axis % rank for axis in axes)
        if x.channels_first and not keepdims and needs_channels_last(axes):
            x = g.channels_last(x)
        x = convert_type(g, x, out.dtype)  # the mean of integers is a float
        places = sorted(TO_FIRST.index(axis) for axis in axes) if x.channels_first else axes
        first = x.channels_first and keepdims
        return g.add(onnx_op, [x, np.array(places)], out.shape, out.dtype, first, keepdims=int(keepdims))

    return emit

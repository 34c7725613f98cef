"""ONNX for matrix products, attention, convolutions, pooling and norms.

Two emitters write whole layers, because Keras has no traceable operation for these. The layers are identified by name,
since `export` does not import this package's layers.
"""

import math
from types import SimpleNamespace

import keras
import numpy as np

from keras_vit.export.onnx.emit.math import binary
from keras_vit.export.onnx.emit.shape import reshape_to
from keras_vit.export.onnx.graph import Value

KERNEL_TO_ONNX = (3, 2, 0, 1)  # (h, w, in, out) -> (out, in, h, w)


def matmul(g, operation, out, x1, x2):
    return g.add("MatMul", [g.channels_last(x1), g.channels_last(x2)], out.shape, out.dtype)


def merge_lengths(sizes, letters):
    return None if any(sizes[c] is None for c in letters) else math.prod(sizes[c] for c in letters)


def arrange(g, x, letters, groups, sizes):
    """Brings the axes of `x` to the order of `groups`; each of the last two groups becomes one axis."""
    order = [c for group in groups for c in group]
    perm = [letters.index(c) for c in order]
    shape = tuple([sizes[c] for c in groups[0]] + [merge_lengths(sizes, group) for group in groups[1:]])
    if not isinstance(x, Value):
        return x.transpose(perm).reshape([x.shape[letters.index(c)] for c in groups[0]] + list(shape[len(groups[0]) :]))
    if perm != sorted(perm):
        x = g.add("Transpose", [x], [sizes[c] for c in order], x.dtype, perm=perm)
    return reshape_to(g, x, shape)


def einsum(g, operation, out, *xs):
    """A product of two tensors, written with transposes, one MatMul and reshapes.

    ONNX has an Einsum too, but quantizing leaves it in float. A letter is in both operands and the result (batch), only
    in both operands (summed), or in one operand (left, right): (batch, left, summed) times (batch, summed, right) is
    (batch, left, right), with left, summed and right merged to one axis each.
    """
    if len(xs) != 2 or "->" not in operation.subscripts or "." in operation.subscripts:
        raise ValueError(f"einsum {operation.subscripts}")
    inputs, target = operation.subscripts.replace(" ", "").split("->")
    one, two = inputs.split(",")
    x, y = map(g.channels_last, xs)
    sizes = {**dict(zip(one, x.shape, strict=True)), **dict(zip(two, y.shape, strict=True))}
    both = [c for c in one if c in two]
    batch = [c for c in target if c in both]
    summed = [c for c in both if c not in target]
    left = [c for c in one if c not in two]
    right = [c for c in two if c not in one]
    repeats = any(len(set(letters)) < len(letters) for letters in (one, two))
    if repeats or set(left + right) - set(target) or set(target) - set(one + two):
        raise ValueError(f"einsum {operation.subscripts}")
    x = arrange(g, x, one, [batch, left, summed], sizes)
    y = arrange(g, y, two, [batch, summed, right], sizes)
    order = batch + left + right
    shape = [sizes[c] for c in batch] + [merge_lengths(sizes, left), merge_lengths(sizes, right)]
    z = g.add("MatMul", [x, y], shape, out.dtype)
    z = reshape_to(g, z, tuple(sizes[c] for c in order))
    perm = [order.index(c) for c in target]
    return z if perm == sorted(perm) else g.add("Transpose", [z], [sizes[c] for c in target], out.dtype, perm=perm)


def attention(g, operation, out, query, key, value, bias=None, mask=None, scale=None):
    """Softmax of the scaled products: query (n, l, heads, d), key and value (n, m, heads, d) -> (n, l, heads, d)."""
    if bias is not None or mask is not None or operation.is_causal or operation.attn_logits_soft_cap is not None:
        raise ValueError("attention with a mask or bias")
    n, l, heads, d = query.shape
    m = key.shape[1]
    query, key, value = (g.channels_last(x) for x in (query, key, value))
    q = g.add("Transpose", [query], (n, heads, l, d), query.dtype, perm=(0, 2, 1, 3))
    q = g.add_like("Mul", q, np.array(d**-0.5 if scale is None else scale, query.dtype))
    k = g.add("Transpose", [key], (n, heads, d, m), key.dtype, perm=(0, 2, 3, 1))
    v = g.add("Transpose", [value], (n, heads, m, value.shape[-1]), value.dtype, perm=(0, 2, 1, 3))
    a = g.add("MatMul", [q, k], (n, heads, l, m), q.dtype)
    a = g.add_like("Softmax", a, axis=-1)
    y = g.add("MatMul", [a, v], (n, heads, l, value.shape[-1]), a.dtype)
    return g.add("Transpose", [y], (n, l, heads, y.shape[-1]), y.dtype, perm=(0, 2, 1, 3))


def require_images(operation, x):
    if len(x.shape) != 4 or getattr(operation, "data_format", None) == "channels_first":
        raise ValueError(f"{type(operation).__name__} of anything but channels-last images")


def as_pair(number):
    return (number, number) if isinstance(number, int) else tuple(number)


def padding_attributes(mode, lengths, size, strides):
    """ONNX attributes for Keras' "valid" and "same"; "same" pads more at the end, as TensorFlow does."""
    if mode == "valid":
        return {"pads": (0, 0, 0, 0)}
    # With strides, padding depends on the image's size: if that is free, the runtime must find the padding.
    if None in lengths and strides != (1, 1):
        return {"auto_pad": "SAME_UPPER"}
    totals = [
        k - 1 if s == 1 else max((-(-n // s) - 1) * s + k - n, 0)
        for n, k, s in zip(lengths, size, strides, strict=True)
    ]
    before = [total // 2 for total in totals]
    return {"pads": (*before, *(total - b for total, b in zip(totals, before, strict=True)))}


def conv(g, operation, out, x, kernel, bias=None, groups=1):
    """A convolution of channels-last images with a kernel (h, w, in / groups, out)."""
    require_images(operation, x)
    kernel = np.asarray(kernel)
    strides, dilations = as_pair(operation.strides), as_pair(operation.dilation_rate)
    size = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:2], dilations, strict=True)]
    padding = padding_attributes(operation.padding, x.shape[1:3], size, strides)
    shapes = {"kernel_shape": kernel.shape[:2], "strides": strides, "dilations": dilations, **padding}
    inputs = [g.channels_first(x), np.ascontiguousarray(kernel.transpose(KERNEL_TO_ONNX))]
    inputs += [] if bias is None else [bias]
    return g.add("Conv", inputs, out.shape, out.dtype, True, group=groups, **shapes)


def depthwise_conv(g, operation, out, inputs, kernel):
    h, w, c, multiplier = kernel.shape
    kernel = np.asarray(kernel).reshape(h, w, 1, c * multiplier)  # a group for each input channel
    return conv(g, operation, out, inputs, kernel, groups=c)


def separable_conv(g, operation, out, inputs, depthwise_kernel, pointwise_kernel):
    """A depthwise kernel (h, w, c, multiplier), then a pointwise one (1, 1, c * multiplier, out)."""
    channels = depthwise_kernel.shape[2] * depthwise_kernel.shape[3]
    between = Value("between", (*out.shape[:3], channels), out.dtype)
    x = depthwise_conv(g, operation, between, inputs, depthwise_kernel)
    point = SimpleNamespace(strides=1, dilation_rate=1, padding="valid")
    return conv(g, point, out, x, pointwise_kernel)


def pool(onnx_op, **attributes):
    def emit(g, operation, out, x):
        require_images(operation, x)
        size = as_pair(operation.pool_size)
        strides = as_pair(operation.strides or operation.pool_size)
        padding = padding_attributes(operation.padding, x.shape[1:3], size, strides)
        shapes = {"kernel_shape": size, "strides": strides, **padding}
        return g.add(onnx_op, [g.channels_first(x)], out.shape, out.dtype, True, **shapes, **attributes)

    return emit


def layer_norm(g, operation, out, x, gamma=None, beta=None):
    """(..., d) -> (..., d), over the last axis or the last few."""
    x = g.channels_last(x)
    axes = np.atleast_1d(operation.axis) % len(x.shape)
    if operation.rms_scaling or list(axes) != list(range(axes[0], len(x.shape))):
        raise ValueError(f"layer normalization over the axes {operation.axis}")
    shape = x.shape[axes[0] :]
    scale = np.ones(shape, x.dtype) if gamma is None else np.asarray(gamma).reshape(shape)
    inputs = [x, scale] + ([] if beta is None else [np.asarray(beta).reshape(shape)])
    axis = -1 if len(axes) == 1 else int(axes[0])
    epsilon = float(operation.epsilon if operation.epsilon is not None else 1e-3)
    return g.add("LayerNormalization", inputs, out.shape, out.dtype, axis=axis, epsilon=epsilon)


def batch_norm(g, operation, out, x, mean, variance, offset=None, scale=None):
    """x * a + b for each channel; (n, c) and (n, h, w, c) have an operator that runtimes fuse."""
    behind = len(x.shape) - 1 - operation.axis % len(x.shape)  # axes after that of the channels
    mean, variance = np.asarray(mean), np.asarray(variance)  # (c,), as all that follows
    scale = np.ones_like(mean) if scale is None else np.asarray(scale)
    offset = np.zeros_like(mean) if offset is None else np.asarray(offset)
    if behind or len(x.shape) not in (2, 4):
        a = scale / np.sqrt(variance + operation.epsilon)
        a, b = (array.astype(x.dtype).reshape(-1, *[1] * behind) for array in (a, offset - mean * a))
        return binary("Add")(g, operation, out, binary("Mul")(g, operation, out, x, a), b)
    first = len(x.shape) == 4
    inputs = [g.channels_first(x) if first else x, scale, offset, mean, variance]
    return g.add("BatchNormalization", inputs, out.shape, out.dtype, first, epsilon=float(operation.epsilon))


def grouped_conv(g, layer, out, x):
    """Conv2D with groups; for symbolic tensors, keras.ops.conv requires a kernel with all input channels."""
    bias = np.asarray(layer.bias) if layer.use_bias else None
    return conv(g, layer, out, x, layer.kernel, bias, layer.groups)


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
    merged = g.add_like("InstanceNormalization", merged, ones, zeros, epsilon=float(layer.epsilon))
    x = g.add("Reshape", [merged, np.array([0, c, -1, 0])], x.shape, x.dtype, True)
    for op, weight in (("Mul", getattr(layer, "gamma", None)), ("Add", getattr(layer, "beta", None))):
        if weight is not None:
            x = g.add_like(op, x, np.asarray(weight).reshape(1, c, 1, 1))
    return g.add_like("Relu", x) if relu else x

"""Norms, GELU and standardized kernels for training with TensorFlow, with gradients written by hand.

TensorFlow differentiates each elementary operation separately: it keeps every intermediate array and reads each again.
With a gradient written by hand, a norm keeps one array of its input's size and GELU keeps two, and the gradient needs
half the passes. Group norm is bound by memory, so it is also compiled. Other backends fuse such operations themselves.
"""

import functools
import math

from keras_vit.distribution.replicas import TENSORFLOW
from keras_vit.layers.base import fast_path, widen

if TENSORFLOW:
    import tensorflow as tf

SLOPE = 2 * math.sqrt(2 / math.pi)  # (1 + tanh(z)) / 2 = sigmoid(2 z)
CUBIC = 0.044715
LEAST_VARIANCE = 1e-30  # float32 still holds its root: a constant kernel becomes 0


def with_gradient(function):
    """`tf.custom_gradient` for tensors: converts the layers' variables; keyword arguments are constants."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        differentiable = tf.custom_gradient(lambda *tensors: function(*tensors, **kwargs))
        return differentiable(*map(tf.convert_to_tensor, args))

    return call


@with_gradient
def gelu_by_tanh(x):
    """GELU's approximation by tanh, which is x sigmoid(SLOPE (x + CUBIC x^3)), of any shape."""
    share = tf.sigmoid(x * (SLOPE + SLOPE * CUBIC * tf.square(x)))
    y = x * share

    def gradient(dy):
        return dy * (share + (y - y * share) * (SLOPE + 3 * SLOPE * CUBIC * tf.square(x)))

    return y, gradient


@with_gradient
def normalize(x, gamma, beta, epsilon):
    """Layer norm: (..., d), (d,), (d,) of one type -> (..., d)."""
    y = x - tf.reduce_mean(x, -1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(y), -1, keepdims=True) + epsilon)
    y *= scale

    def gradient(dz):
        leading = list(range(len(x.shape) - 1))
        share, dy = dz * y, dz * gamma
        mean = tf.reduce_mean(share * gamma, -1, keepdims=True)
        dx = (dy - tf.reduce_mean(dy, -1, keepdims=True) - y * mean) * scale
        return dx, tf.reduce_sum(share, leading), tf.reduce_sum(dz, leading)

    return y * gamma + beta, gradient


def is_compiled(x) -> bool:
    """Whether XLA shall compile operations on x, (n, h, w, c): in a graph, on CPUs alone, if the size is known.

    Compiling takes 0.2 s for every shape, too long if batches differ in shape. On a GPU or a TPU the whole step is
    compiled already, and an eager step is meant for debugging.
    """
    cpus = all(device.device_type == "CPU" for device in tf.config.list_logical_devices())
    return tf.test.is_built_with_xla() and cpus and not tf.executing_eagerly() and None not in x.shape[1:]


def compile_on_cpus(function):
    """Compiles the function by XLA: one pass over an image, in place of TensorFlow's one for every operation."""
    program = tf.function(function, jit_compile=True) if TENSORFLOW else function

    @functools.wraps(function)
    def call(x, *args):
        return program(x, *args) if is_compiled(x) else function(x, *args)

    return call


def average_pixels(x):
    """(n, h, w, c) -> (n, 1, 1, c), in steps: one sum over all pixels takes longer, and rounds more."""
    if is_compiled(x):
        # XLA takes a quarter of the time for a sum of strips and a product. TPUs would round it to bfloat16.
        strips = tf.split(x, math.gcd(x.shape[1], 8), axis=1)
        x = tf.add_n(strips) / len(strips)
        rows = tf.matmul(tf.ones_like(tf.transpose(x[..., :1], (0, 1, 3, 2))), x) / x.shape[2]
    else:
        rows = tf.reduce_mean(x, 2, keepdims=True)
    return tf.reduce_mean(rows, 1, keepdims=True)


def average_groups(x, groups):
    """(n, 1, 1, c) -> the same, each channel the mean of its group."""
    c = x.shape[-1]
    means = tf.reduce_mean(tf.reshape(x, (-1, groups, c // groups)), 2, keepdims=True)
    return tf.reshape(tf.repeat(means, c // groups, axis=2), (-1, 1, 1, c))


@compile_on_cpus
def normalize_groups(x, gamma, beta, groups, epsilon, relu):
    """The norm, and for its gradient, each (n, 1, 1, c): the groups' means and one over their deviations."""
    y = tf.cast(x, gamma.dtype)
    mean = average_groups(average_pixels(y), groups)
    y -= mean
    scale = tf.math.rsqrt(average_groups(average_pixels(tf.square(y)), groups) + epsilon)
    y = y * (scale * gamma) + beta
    return tf.cast(tf.nn.relu(y) if relu else y, x.dtype), mean, scale


@compile_on_cpus
def differentiate_groups(x, gamma, beta, mean, scale, dz, groups, relu):
    """The gradients of `normalize_groups` by x, gamma and beta."""
    y = tf.cast(x, gamma.dtype) - mean
    factor, dy = scale * gamma, tf.cast(dz, gamma.dtype)
    if relu:
        dy = tf.where(y * factor + beta > 0, dy, 0.0)
    pixels = tf.cast(tf.reduce_prod(tf.shape(x)[1:3]), gamma.dtype)
    shift, slope = average_pixels(dy), average_pixels(dy * y)
    tilt = scale**3 * average_groups(gamma * slope, groups)
    dx = dy * factor - y * tilt - scale * average_groups(gamma * shift, groups)
    axes = [0, 1, 2]
    return tf.cast(dx, x.dtype), pixels * tf.reduce_sum(scale * slope, axes), pixels * tf.reduce_sum(shift, axes)


@with_gradient
def normalize_in_groups(x, gamma, beta, groups, epsilon, relu):
    """Group norm: (n, h, w, c), (c,), (c,) -> (n, h, w, c) in x's dtype, computed in gamma's; then ReLU if `relu`."""
    y, mean, scale = normalize_groups(x, gamma, beta, groups, epsilon, relu)
    return y, lambda dy: differentiate_groups(x, gamma, beta, mean, scale, dy, groups, relu)


@with_gradient
def standardize(kernel, epsilons):
    """Standardizes a float32 kernel (h, w, c, filters) as `StandardizedConv2D` does; `epsilons`: its (variance, std).

    TensorFlow's batch norm of (h * w * c, filters) does so in one operation, and computes the gradient in another.
    """
    variance_epsilon, std_epsilon = epsilons
    filters, size = kernel.shape[-1], math.prod(kernel.shape[:-1])
    rows, none = tf.reshape(kernel, (1, 1, size, filters)), tf.zeros((0,))
    ones, epsilon = tf.ones((filters,)), max(variance_epsilon, LEAST_VARIANCE)
    y, _, variance, *kept = tf.raw_ops.FusedBatchNormV3(
        x=rows, scale=ones, offset=tf.zeros_like(ones), mean=none, variance=none, epsilon=epsilon
    )
    # The operation gives the unbiased variance. `share` is y's factor because of std_epsilon, `rate` is dy / dw.
    deviation = tf.sqrt(variance * ((size - 1) / size) + epsilon)
    share = deviation / (deviation + std_epsilon)
    rate = 1 / (deviation + std_epsilon)

    def gradient(dk):
        dk = tf.reshape(dk, rows.shape)
        dw, slope, *_ = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dk,
            x=rows,
            scale=share,
            reserve_space_1=kept[0],
            reserve_space_2=kept[1],
            reserve_space_3=kept[2],
            epsilon=epsilon,
        )
        if std_epsilon:  # std_epsilon does not scale with the deviation
            dw += y * (rate * (1 - share) * slope / size)
        return tf.reshape(dw, kernel.shape)

    return tf.reshape(y * share if std_epsilon else y, kernel.shape), gradient


@fast_path
def gelu(call, layer, x, training=None):
    if TENSORFLOW and training and layer.approximate:
        return gelu_by_tanh(x)
    return call(layer, x, training=training)


@fast_path
def layer_norm(call, layer, x, training=None):
    if TENSORFLOW and training and not layer.folded:
        return tf.cast(normalize(*map(widen, (x, layer.gamma, layer.beta)), epsilon=layer.epsilon), x.dtype)
    return call(layer, x, training=training)


@fast_path
def group_norm(call, layer, x, training=None, relu=False):
    if TENSORFLOW and training:
        gamma, beta = widen(layer.gamma), widen(layer.beta)
        return normalize_in_groups(x, gamma, beta, groups=layer.groups, epsilon=layer.epsilon, relu=relu)
    return call(layer, x, training=training, relu=relu)


@fast_path
def standardized_convolution(call, layer, x):
    kernel = widen(layer.kernel)
    if TENSORFLOW and kernel.dtype == "float32" and not layer.folded:  # the operation supports float32 alone
        return layer.convolve(x, standardize(kernel, epsilons=(layer.variance_epsilon, layer.std_epsilon)))
    return call(layer, x)

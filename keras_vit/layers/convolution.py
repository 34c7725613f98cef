"""Standardized convolution and group norm, BiT's replacement for batch norm (section 4.1; arXiv 1912.11370)."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_vit.layers import fast
from keras_vit.layers.base import ConfiguredLayer, widen


class LecunNormal(keras.initializers.LecunNormal):
    """Keras' own. On JAX, which would compile three programs for each of a ResNet's many shapes, NumPy draws."""

    def __call__(self, shape, dtype=None):
        if keras.backend.backend() != "jax":
            return super().__call__(shape, dtype)
        random = np.random.default_rng(self.seed)
        x = random.standard_normal(shape, "float32")
        while (far := np.abs(x) > 2).any():
            x[far] = random.standard_normal(far.sum(), "float32")
        # The deviation of a normal distribution cut off at 2 is 0.8796.
        return ops.convert_to_tensor(x / (0.87962566 * float(np.prod(shape[:-1])) ** 0.5), dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(ConfiguredLayer):
    """Convolution without bias whose kernel is standardized per output channel (arXiv 1903.10520).

    (n, h, w, c) -> (n, h', w', filters). The kernel in use is
    (w - mean) / (sqrt(var + variance_epsilon) + std_epsilon), moments over height, width and input channels.

    Args:
        filters: output channels.
        kernel_size: int, height and width of the kernel.
        strides: int.
        padding: "same" pads as TensorFlow does (more at the end), "fixed" pads (kernel_size - 1) // 2 on each side.
        variance_epsilon: BiT's 1e-10.
        std_epsilon: the hybrids' 1e-5 (with variance_epsilon 0).

    Attributes:
        folded: whether `kernel` is the standardized one.

    >>> tuple(StandardizedConv2D(64, kernel_size=7, strides=2)(keras.ops.zeros((1, 224, 224, 3))).shape)
    (1, 112, 112, 64)
    """

    folded = False

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        strides: int = 1,
        padding: Literal["same", "fixed"] = "fixed",
        variance_epsilon: float = 1e-10,
        std_epsilon: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if padding not in ("same", "fixed"):
            raise ValueError(f"padding must be 'same' or 'fixed'. Received: padding={padding!r}.")
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.variance_epsilon = variance_epsilon
        self.std_epsilon = std_epsilon

    def build(self, input_shape):
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.filters)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=LecunNormal(), autocast=False)

    def standardize(self, w, xp):
        w = w - xp.mean(w, axis=(0, 1, 2), keepdims=True)
        variance = xp.mean(xp.square(w), axis=(0, 1, 2), keepdims=True)
        return w / (xp.sqrt(variance + self.variance_epsilon) + self.std_epsilon)

    def standardized_kernel(self):
        w = widen(self.kernel)
        return w if self.folded else self.standardize(w, ops)

    @fast.standardized_convolution
    def call(self, x):
        return self.convolve(x, self.standardized_kernel())

    export_call = call.__wrapped__  # without the fast path

    def fold(self):
        """Stores the standardized kernel in place of the kernel, for inference."""
        kernel = ops.convert_to_numpy(self.kernel).astype("float64")
        self.kernel.assign(self.standardize(kernel, np))  # in NumPy: JAX would compile it for every shape
        self.folded = True

    def convolve(self, x, kernel):
        kernel = ops.cast(kernel, x.dtype)
        # The two paddings agree at stride 1, unless a kernel is even.
        agree = self.kernel_size == 1 or (self.strides == 1 and self.kernel_size % 2)
        fixed = self.padding == "fixed" and not agree
        if fixed:
            p = (self.kernel_size - 1) // 2
            x = ops.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
        padding = "valid" if fixed else "same"
        return ops.conv(x, kernel, strides=self.strides, padding=padding, data_format="channels_last")

    def compute_output_shape(self, input_shape):
        n, h, w, _ = input_shape
        return n, self.output_length(h), self.output_length(w), self.filters

    def output_length(self, length):
        if length is None:
            return None
        if self.padding == "same":
            return -(-length // self.strides)
        return (length + 2 * ((self.kernel_size - 1) // 2) - self.kernel_size) // self.strides + 1


def average_pixels(x):
    """(n, h, w, c) -> (n, 1, 1, c), one axis at a time: over both at once, TensorFlow takes more than twice as long."""
    return ops.mean(ops.mean(x, axis=2, keepdims=True), axis=1, keepdims=True)


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNormalization(ConfiguredLayer):
    """Normalizes each image's channels in groups (arXiv 1803.08494), then scales and shifts each channel.

    (n, h, w, c) -> (n, h, w, c). Written as one multiply-add over the image: the moments of a group follow from its
    channels' moments, so nothing large is reshaped and h and w may be unknown.

    Args:
        groups: number of groups; must divide c.
        epsilon: added to the variance: BiT's 1e-5, the hybrids' 1e-6.
        gamma_initializer: "ones", or "zeros" for the last norm of a hybrid's residual branch.

    Call arguments:
        relu: whether to apply ReLU after the norm. Training with TensorFlow does both in one pass.

    Raises:
        ValueError: when groups does not divide c.

    >>> tuple(GroupNormalization()(keras.ops.zeros((1, 56, 56, 64))).shape)
    (1, 56, 56, 64)
    """

    def __init__(
        self,
        groups: int = 32,
        epsilon: float = 1e-5,
        gamma_initializer: str | dict | keras.initializers.Initializer = "ones",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.groups = groups
        self.epsilon = epsilon
        self.gamma_initializer = keras.initializers.get(gamma_initializer)

    def build(self, input_shape):
        c = input_shape[-1]
        if c % self.groups:
            raise ValueError(f"{self.name}: groups must divide the channels. Received: {self.groups} and {c}.")
        self.gamma = self.add_weight(name="gamma", shape=(c,), initializer=self.gamma_initializer, autocast=False)
        self.beta = self.add_weight(name="beta", shape=(c,), initializer="zeros", autocast=False)

    @fast.group_norm
    def call(self, x, training=None, relu=False):
        y, gamma, beta = widen(x), widen(self.gamma), widen(self.beta)
        c = x.shape[-1]
        grouped = (-1, self.groups, c // self.groups)
        mean = average_pixels(y)
        # Two passes: E[y^2] - E[y]^2 loses everything where the mean is large.
        variance = ops.reshape(average_pixels(ops.square(y - mean)), grouped)
        mean = ops.reshape(mean, grouped)
        group_mean = ops.mean(mean, axis=2, keepdims=True)  # (n, groups, 1)
        # Law of total variance: mean of the channels' variances plus variance of their means, 0 for a single channel.
        if c > self.groups:
            variance = variance + ops.square(mean - group_mean)
        group_variance = ops.mean(variance, axis=2, keepdims=True)
        scale = ops.rsqrt(group_variance + self.epsilon) * ops.reshape(gamma, grouped)
        shift = ops.reshape(beta, grouped) - group_mean * scale
        scale, shift = (ops.reshape(z, (-1, 1, 1, c)) for z in (scale, shift))
        y = ops.cast(y * scale + shift, x.dtype)
        return ops.relu(y) if relu else y

    def get_config(self):
        initializer = keras.initializers.serialize(self.gamma_initializer)
        return {**super().get_config(), "gamma_initializer": initializer}

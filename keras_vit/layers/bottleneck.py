"""The two residual units: pre-activation (BiT) and post-activation (under the hybrids)."""

import keras
from keras import ops

from keras_vit.layers.convolution import GroupNormalization, StandardizedConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationBottleneck(keras.layers.Layer):
    """BiT's unit: norm, ReLU, convolution, three times (1x1, 3x3, 1x1), plus the input (arXiv 1603.05027).

    (n, h, w, c) -> (n, h / strides, w / strides, 4 * filters). Where the shape changes, the shortcut is a 1x1
    convolution of the normalized, activated input, without a norm of its own.

    Args:
        filters: channels of the first two convolutions.
        strides: of the 3x3 convolution and of the shortcut.
        group_norm_epsilon, kernel_variance_epsilon: see `GroupNormalization` and `StandardizedConv2D`.

    >>> PreActivationBottleneck(64)(keras.ops.zeros((1, 56, 56, 64))).shape
    (1, 56, 56, 256)
    """

    def __init__(self, filters, strides=1, group_norm_epsilon=1e-5, kernel_variance_epsilon=1e-10, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.group_norm_epsilon = group_norm_epsilon
        self.kernel_variance_epsilon = kernel_variance_epsilon

    def conv(self, filters, kernel_size, strides, name):
        return StandardizedConv2D(
            filters,
            kernel_size,
            strides,
            variance_epsilon=self.kernel_variance_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def norm(self, name):
        return GroupNormalization(epsilon=self.group_norm_epsilon, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        f, s = self.filters, self.strides
        self.norm1, self.conv1 = self.norm("norm1"), self.conv(f, 1, 1, "conv1")
        self.norm2, self.conv2 = self.norm("norm2"), self.conv(f, 3, s, "conv2")
        self.norm3, self.conv3 = self.norm("norm3"), self.conv(4 * f, 1, 1, "conv3")
        self.shortcut = None
        if s > 1 or input_shape[-1] != 4 * f:
            self.shortcut = self.conv(4 * f, 1, s, "shortcut")
            self.shortcut.build(input_shape)
        shape = input_shape
        for layer in (self.norm1, self.conv1, self.norm2, self.conv2, self.norm3, self.conv3):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, x):
        y = ops.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        y = ops.relu(self.norm2(self.conv1(y)))
        y = ops.relu(self.norm3(self.conv2(y)))
        return shortcut + self.conv3(y)

    def compute_output_shape(self, input_shape):
        n, h, w, _ = input_shape
        return n, shrink(h, self.strides), shrink(w, self.strides), 4 * self.filters

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "group_norm_epsilon": self.group_norm_epsilon,
            "kernel_variance_epsilon": self.kernel_variance_epsilon,
        }


def shrink(length, strides):
    """Length of an axis after a padded convolution with these strides; None stays None."""
    return None if length is None else -(-length // strides)


@keras.saving.register_keras_serializable(package="keras_vit")
class PostActivationBottleneck(keras.layers.Layer):
    """The hybrids' unit: convolution, norm, ReLU (1x1, 3x3, 1x1), the input added before the last ReLU.

    (n, h, w, c) -> (n, h / strides, w / strides, 4 * filters), padded as TensorFlow's "same". Where the shape changes,
    the shortcut is a 1x1 convolution with a norm.

    Args:
        filters: channels of the first two convolutions.
        strides: of the 3x3 convolution and of the shortcut.
        group_norm_epsilon, kernel_variance_epsilon, kernel_std_epsilon: see `GroupNormalization` and
            `StandardizedConv2D`.

    >>> PostActivationBottleneck(64)(keras.ops.zeros((1, 56, 56, 64))).shape
    (1, 56, 56, 256)
    """

    def __init__(
        self,
        filters,
        strides=1,
        group_norm_epsilon=1e-6,
        kernel_variance_epsilon=0.0,
        kernel_std_epsilon=1e-5,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        self.group_norm_epsilon = group_norm_epsilon
        self.kernel_variance_epsilon = kernel_variance_epsilon
        self.kernel_std_epsilon = kernel_std_epsilon

    def conv(self, filters, kernel_size, strides, name):
        return StandardizedConv2D(
            filters,
            kernel_size,
            strides,
            padding="same",
            variance_epsilon=self.kernel_variance_epsilon,
            std_epsilon=self.kernel_std_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def norm(self, name, gamma_initializer="ones"):
        return GroupNormalization(
            epsilon=self.group_norm_epsilon, gamma_initializer=gamma_initializer, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape):
        f, s = self.filters, self.strides
        self.conv1, self.norm1 = self.conv(f, 1, 1, "conv1"), self.norm("norm1")
        self.conv2, self.norm2 = self.conv(f, 3, s, "conv2"), self.norm("norm2")
        self.conv3, self.norm3 = self.conv(4 * f, 1, 1, "conv3"), self.norm("norm3", gamma_initializer="zeros")
        shape = input_shape
        for layer in (self.conv1, self.norm1, self.conv2, self.norm2, self.conv3, self.norm3):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self.shortcut = self.shortcut_norm = None
        if s > 1 or input_shape[-1] != 4 * f:
            self.shortcut, self.shortcut_norm = self.conv(4 * f, 1, s, "shortcut"), self.norm("shortcut_norm")
            self.shortcut.build(input_shape)
            self.shortcut_norm.build(shape)

    def call(self, x):
        shortcut = x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))
        y = ops.relu(self.norm1(self.conv1(x)))
        y = ops.relu(self.norm2(self.conv2(y)))
        return ops.relu(shortcut + self.norm3(self.conv3(y)))

    def compute_output_shape(self, input_shape):
        n, h, w, _ = input_shape
        return n, shrink(h, self.strides), shrink(w, self.strides), 4 * self.filters

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "group_norm_epsilon": self.group_norm_epsilon,
            "kernel_variance_epsilon": self.kernel_variance_epsilon,
            "kernel_std_epsilon": self.kernel_std_epsilon,
        }

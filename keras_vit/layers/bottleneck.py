"""The two residual units: pre-activation (BiT) and post-activation (under the hybrids)."""

from typing import Any, Literal

import keras
from keras import ops

from keras_vit.layers import fast
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.convolution import GroupNormalization, StandardizedConv2D


class Bottleneck(ConfiguredLayer):
    """The base of both units: three convolutions (1x1, 3x3, 1x1) with a norm each, and a shortcut where shapes change.

    (n, h, w, c) -> (n, h / strides, w / strides, 4 * filters).

    Args:
        filters: channels of the first two convolutions.
        strides: of the 3x3 convolution and of the shortcut.
        group_norm_epsilon: see `GroupNormalization`.
        kernel_variance_epsilon, kernel_std_epsilon: see `StandardizedConv2D`.

    Attributes:
        remat: whether training recomputes the unit's inner values for the gradient; see `fast.rematerialized`.
    """

    padding: Literal["same", "fixed"] = "fixed"
    remat = False

    def __init__(
        self,
        filters: int,
        strides: int = 1,
        group_norm_epsilon: float = 1e-5,
        kernel_variance_epsilon: float = 1e-10,
        kernel_std_epsilon: float = 0.0,
        **kwargs: Any,
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
            padding=self.padding,
            variance_epsilon=self.kernel_variance_epsilon,
            std_epsilon=self.kernel_std_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def norm(self, name, gamma_initializer="ones"):
        return GroupNormalization(
            epsilon=self.group_norm_epsilon, gamma_initializer=gamma_initializer, dtype=self.dtype_policy, name=name
        )

    def changes_shape(self, input_shape):
        return self.strides > 1 or input_shape[-1] != 4 * self.filters

    def compute_output_shape(self, input_shape):
        n, h, w, _ = input_shape
        h, w = (None if length is None else -(-length // self.strides) for length in (h, w))
        return n, h, w, 4 * self.filters


def build_in_turn(layers, shape):
    """Builds each layer on the output shape of the one before."""
    for layer in layers:
        layer.build(shape)
        shape = layer.compute_output_shape(shape)


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationBottleneck(Bottleneck):
    """BiT's unit: norm, ReLU, convolution, three times, plus the input (arXiv 1603.05027).

    Where the shape changes, the shortcut is a 1x1 convolution of the normalized, activated input, without a norm of its
    own. Shapes and arguments: see `Bottleneck`; the defaults are BiT's.

    >>> tuple(PreActivationBottleneck(64)(keras.ops.zeros((1, 56, 56, 64))).shape)
    (1, 56, 56, 256)
    """

    def build(self, input_shape):
        f, s = self.filters, self.strides
        self.norm1, self.conv1 = self.norm("norm1"), self.conv(f, 1, 1, "conv1")
        self.norm2, self.conv2 = self.norm("norm2"), self.conv(f, 3, s, "conv2")
        self.norm3, self.conv3 = self.norm("norm3"), self.conv(4 * f, 1, 1, "conv3")
        build_in_turn((self.norm1, self.conv1, self.norm2, self.conv2, self.norm3, self.conv3), input_shape)
        self.shortcut = None
        if self.changes_shape(input_shape):
            self.shortcut = self.conv(4 * f, 1, s, "shortcut")
            self.shortcut.build(input_shape)

    @fast.rematerialized
    def call(self, x, training=None):
        y = self.norm1(x, relu=True)
        shortcut = x if self.shortcut is None else self.shortcut(y)
        y = self.norm2(self.conv1(y), relu=True)
        y = self.norm3(self.conv2(y), relu=True)
        return shortcut + self.conv3(y)


@keras.saving.register_keras_serializable(package="keras_vit")
class PostActivationBottleneck(Bottleneck):
    """The hybrids' unit: convolution, norm, ReLU, three times, the input added before the last ReLU (arXiv 1512.03385).

    Padded as TensorFlow's "same". Where the shape changes, the shortcut is a 1x1 convolution with a norm. Shapes and
    arguments: see `Bottleneck`; the hybrids' epsilons are `BackboneConfig`'s.

    >>> tuple(PostActivationBottleneck(64)(keras.ops.zeros((1, 56, 56, 64))).shape)
    (1, 56, 56, 256)
    """

    padding = "same"

    def build(self, input_shape):
        f, s = self.filters, self.strides
        self.conv1, self.norm1 = self.conv(f, 1, 1, "conv1"), self.norm("norm1")
        middle = self.make_middle()
        self.conv3, self.norm3 = self.conv(4 * f, 1, 1, "conv3"), self.norm("norm3", gamma_initializer="zeros")
        build_in_turn((self.conv1, self.norm1, *middle, self.conv3, self.norm3), input_shape)
        self.shortcut = self.shortcut_norm = None
        if self.changes_shape(input_shape):
            self.shortcut, self.shortcut_norm = self.conv(4 * f, 1, s, "shortcut"), self.norm("shortcut_norm")
            build_in_turn((self.shortcut, self.shortcut_norm), input_shape)

    def make_middle(self):
        """The layers between the two 1x1 convolutions."""
        self.conv2, self.norm2 = self.conv(self.filters, 3, self.strides, "conv2"), self.norm("norm2")
        return self.conv2, self.norm2

    def compute_middle(self, y):
        return self.norm2(self.conv2(y), relu=True)

    @fast.rematerialized
    def call(self, x, training=None):
        shortcut = x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))
        y = self.compute_middle(self.norm1(self.conv1(x), relu=True))
        return ops.relu(shortcut + self.norm3(self.conv3(y)))

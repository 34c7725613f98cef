"""AxialResNet (Appendix D.6; arXiv 2003.07853): position-sensitive attention along one axis, residual unit, model."""

from typing import Any, Literal

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.bottleneck import PostActivationBottleneck
from keras_vit.layers.convolution import GroupNormalization
from keras_vit.models.axial.config import AxialResNetConfig
from keras_vit.models.axial.vit import AXES
from keras_vit.models.classifier import Classifier, classify_map
from keras_vit.models.resnet import hybrid_backbone


def split(qkv):
    """Splits (..., 2 * width) into queries and keys of width / 2 and values of width."""
    half = qkv.shape[-1] // 4
    return qkv[..., :half], qkv[..., half : 2 * half], qkv[..., 2 * half :]


def multiply_by_place(x, matrices):
    """(m, heads, length, a) times a matrix (a, b) for each of the `length` places: (m, heads, length, b)."""
    heads, length, a = x.shape[1:]
    x = ops.reshape(ops.transpose(x, (2, 0, 1, 3)), (length, -1, a))
    y = ops.reshape(ops.matmul(x, matrices), (length, -1, heads, matrices.shape[-1]))
    return ops.transpose(y, (1, 2, 0, 3))


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionSensitiveAttention(ConfiguredLayer):
    """Each place attends to its whole row, or its whole column, with relative positions: (n, h, w, c) -> (n, h, w, c).

    Eq. 4 of arXiv 2003.07853: y_o = sum over p of softmax_p(q_o r^q_(p-o) + k_p r^k_(p-o) + q_o k_p) (v_p + r^v_(p-o)),
    where place o attends to places p, and the vectors r of each offset p - o are learned. Queries and keys are half as
    wide as values, and all heads share the r. As in the authors' code in Scenic, group norms replace the batch norms
    after the projection and at the end; each line is normalized separately.

    Args:
        axis: "row" or "column", the line that a place attends to.
        num_heads: attention heads; c must be a multiple of 2 * num_heads, and of 32, the groups of the norm.
        group_norm_epsilon: 1e-4 in the authors' code.

    Raises:
        ValueError: for another axis, for an unknown height or width, and when the heads do not divide the channels.

    >>> tuple(PositionSensitiveAttention("row")(keras.ops.zeros((2, 8, 6, 64))).shape)
    (2, 8, 6, 64)
    """

    def __init__(
        self, axis: Literal["row", "column"], num_heads: int = 8, group_norm_epsilon: float = 1e-4, **kwargs: Any
    ):
        super().__init__(**kwargs)
        if axis not in AXES:
            raise ValueError(f"axis must be 'row' or 'column'. Received: axis={axis!r}.")
        self.axis = axis
        self.num_heads = num_heads
        self.group_norm_epsilon = group_norm_epsilon

    def build(self, input_shape):
        _, h, w, c = input_shape
        if h is None or w is None or c % (2 * self.num_heads):
            raise ValueError(
                f"{self.name} needs a known height and width, and channels that {2 * self.num_heads} (two for each "
                f"head) divide. Received: input_shape={tuple(input_shape)}."
            )
        length, width = w if self.axis == "row" else h, c // self.num_heads
        self.qkv = keras.layers.Dense(
            2 * c, use_bias=False, kernel_initializer="lecun_normal", dtype=self.dtype_policy, name="qkv"
        )
        self.qkv.build((None, c))
        self.qkv_norm, self.out_norm = self.norm("qkv_norm"), self.norm("out_norm")
        self.qkv_norm.build((None, 1, length, 2 * c))
        self.out_norm.build((None, 1, length, c))
        normal = keras.initializers.RandomNormal(stddev=1 / width)  # the authors' code in Scenic
        shape = (2 * length - 1, 2 * width)  # offsets -(length - 1) to length - 1; q, k, v
        self.relative_embedding = self.add_weight(name="relative_embedding", shape=shape, initializer=normal)

    def norm(self, name):
        return GroupNormalization(epsilon=self.group_norm_epsilon, dtype=self.dtype_policy, name=name)

    def call(self, x):
        if self.axis == "row":
            return self.attend(x)
        return ops.transpose(self.attend(ops.transpose(x, (0, 2, 1, 3))), (0, 2, 1, 3))

    def attend(self, x):
        """Attention along the third axis: (n, lines, length, c) to the same shape."""
        lines, length, c = x.shape[1:]
        heads, width = self.num_heads, c // self.num_heads
        qkv = ops.reshape(self.qkv(ops.reshape(x, (-1, c))), (-1, 1, length, 2 * c))
        qkv = ops.reshape(self.qkv_norm(qkv), (-1, length, heads, 2 * width))
        q, k, v = split(ops.transpose(qkv, (0, 2, 1, 3)))  # (n * lines, heads, length, ...)
        r_q, r_k, r_v = split(ops.cast(self.relative_vectors(length), x.dtype))  # (places, places attended to, ...)
        logits = ops.matmul(q, ops.swapaxes(k, -1, -2)) + multiply_by_place(q, ops.transpose(r_q, (0, 2, 1)))
        logits = logits + ops.swapaxes(multiply_by_place(k, ops.transpose(r_k, (1, 2, 0))), -1, -2)
        a = ops.softmax(logits)
        y = ops.matmul(a, v) + multiply_by_place(a, r_v)
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, 1, length, c))
        return ops.reshape(self.out_norm(y), (-1, lines, length, c))

    def relative_vectors(self, length):
        """The r of each pair of places (o, p), (length, length, 2 * width).

        Row o holds the vectors from length - 1 - o on. Copies of all vectors in a row, read in rows that are one
        shorter, give just that. The gradient of a gather would be sparse, and summed in no fixed order on a GPU.
        """
        r = ops.convert_to_tensor(self.relative_embedding)
        if length == 1:
            return r[None]
        copies = ops.reshape(ops.broadcast_to(r[None], (length, *r.shape)), (-1, r.shape[-1]))
        return ops.reshape(copies[length - 1 : -1], (length, 2 * length - 2, r.shape[-1]))[:, :length]


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBottleneck(PostActivationBottleneck):
    """The hybrids' unit with row and column attention in place of its 3x3 convolution.

    Convolution 1x1, norm, ReLU; row attention, column attention, mean over 2x2 places where strides are 2, ReLU;
    convolution 1x1, norm; the input is added before the last ReLU. (n, h, w, c) -> (n, h / strides, w / strides,
    4 * filters).

    Args:
        filters: channels of the attention.
        strides: 1 or 2; h and w must be multiples of it.
        num_heads: attention heads.
        **kwargs: the epsilons of `Bottleneck`; group_norm_epsilon is also the attention's. `AxialResNetConfig` has the
            authors'.

    Raises:
        ValueError: when height or width is unknown, or no multiple of strides.

    >>> tuple(AxialBottleneck(64)(keras.ops.zeros((1, 8, 8, 64))).shape)
    (1, 8, 8, 256)
    """

    def __init__(self, filters: int, strides: int = 1, num_heads: int = 8, **kwargs: Any):
        super().__init__(filters, strides, **kwargs)
        self.num_heads = num_heads

    def build(self, input_shape):
        _, h, w, _ = input_shape
        s = self.strides
        if h is None or w is None or h % s or w % s:
            raise ValueError(
                f"{self.name} needs a known height and width that {s} divides. Received: {tuple(input_shape)}."
            )
        super().build(input_shape)

    def attention(self, axis):
        return PositionSensitiveAttention(
            axis, self.num_heads, self.group_norm_epsilon, dtype=self.dtype_policy, name=f"{axis}_attention"
        )

    def make_middle(self):
        self.row_attention, self.column_attention = self.attention("row"), self.attention("column")
        return self.row_attention, self.column_attention

    def compute_middle(self, y):
        y = self.column_attention(self.row_attention(y))
        if self.strides > 1:
            y = ops.average_pool(y, self.strides, strides=self.strides, padding="valid", data_format="channels_last")
        return ops.relu(y)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(Classifier):
    """A ResNet with row and column attention, with relative positions, in place of its 3x3 convolutions.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). As in the authors' code in Scenic, it is
    the hybrids' ResNet with group norm and standardized convolutions, and the head reads the mean of the last feature
    map. Every unit is the layer "blockB_unitU" (both from 1).

    Args:
        FIELDS
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> tuple(AxialResNet(image_size=(32, 64), depths=(1, 1), num_classes=10)(np.zeros((2, 32, 64, 3))).shape)
    (2, 10)
    """

    config: AxialResNetConfig
    config_class = AxialResNetConfig

    @staticmethod
    def make_graph(images, config, dtype):
        x = hybrid_backbone(images, config, dtype, AxialBottleneck)
        return classify_map(x, images, config, dtype)

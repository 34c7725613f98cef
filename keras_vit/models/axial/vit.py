"""Axial-ViT (Appendix D.6; arXiv 1912.12180): attention along one axis of the grid of tokens, block, model."""

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_vit import _registration
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.encoder import EncoderBlock
from keras_vit.models.axial.config import AxialViTConfig
from keras_vit.models.vit import VisionTransformer

AXES = ("row", "column")


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialSelfAttention(MultiHeadSelfAttention):
    """MSA in which a patch attends to the patches of its own row, or of its own column: (n, l, d) -> (n, l, d).

    A class token, the first of rows * columns + 1 tokens, is in no row and no column: it attends to all tokens, and no
    patch attends to it. So information passes between patches along the axis alone.

    Args:
        axis: "row" or "column", the line that a patch attends to.
        grid: (rows, columns) of the patches, which are in raster order.
        **kwargs: `MultiHeadSelfAttention`'s, by name.

    Call arguments:
        return_weights: also return A, (n, num_heads, l, l), zero off the line.

    Raises:
        ValueError: for another axis, or when the number of tokens does not fit the grid.

    >>> attention = AxialSelfAttention("row", (4, 4), num_heads=4)
    >>> tuple(attention(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    largest_whole = math.inf  # A of lines is small

    def __init__(self, axis: Literal["row", "column"], grid: tuple[int, int], **kwargs: Any):
        super().__init__(**kwargs)
        if axis not in AXES:
            raise ValueError(f"axis must be 'row' or 'column'. Received: axis={axis!r}.")
        self.axis = axis
        self.grid = tuple(grid)

    def build(self, input_shape):
        rows, columns = self.grid
        if input_shape[1] not in (rows * columns, rows * columns + 1):
            raise ValueError(
                f"{self.name} needs the {rows * columns} tokens of {rows}x{columns} patches, or one more with a class "
                f"token. Received: {input_shape[1]}."
            )
        super().build(input_shape)

    def attend(self, q, k, v, training, whole=False):
        """A v, (n, m, d); A of the lines, (n * lines, heads, length, length), and A of the class token or None."""
        if q.shape[1] < k.shape[1]:  # the class token's query alone
            return super().attend(q, k, v, training)
        rows, columns = self.grid
        patches = [x[:, -rows * columns :] for x in (q * self.scale, k, v)]
        y, a = self.weigh(*map(self.split_lines, patches), training=training)
        y = self.join_lines(y)
        if y.shape[1] == q.shape[1]:
            return y, (a, None)
        first, of_first = super().attend(q[:, :1], k, v, training)
        return ops.concatenate([first, y], axis=1), (a, of_first)

    def split_lines(self, x):
        """Patches in raster order, (n, rows * columns, d), to (n * lines, heads, length, d / heads)."""
        rows, columns = self.grid
        d = x.shape[2]
        if self.axis == "row":
            return self.split_heads(ops.reshape(x, (-1, columns, d)))
        heads, width = self.num_heads, d // self.num_heads
        x = ops.transpose(ops.reshape(x, (-1, rows, columns, heads, width)), (0, 2, 3, 1, 4))
        return ops.reshape(x, (-1, heads, rows, width))

    def join_lines(self, y):
        """The inverse, to (n, rows * columns, d)."""
        rows, columns = self.grid
        heads, width = self.num_heads, y.shape[3]
        if self.axis == "row":
            y = self.join_heads(y)
        else:
            y = ops.transpose(ops.reshape(y, (-1, columns, heads, rows, width)), (0, 3, 1, 2, 4))
        return ops.reshape(y, (-1, rows * columns, heads * width))

    def spread_weights(self, a):
        (a, of_first), (rows, columns) = a, self.grid
        along_row = self.axis == "row"
        lines, length = (rows, columns) if along_row else (columns, rows)
        a = ops.reshape(a, (-1, lines, self.num_heads, length, length))
        same = ops.eye(lines, dtype=a.dtype)  # a patch attends to its own line
        a = ops.einsum("nrhcd,rs->nhrcsd" if along_row else "nchrs,cd->nhrcsd", a, same)
        a = ops.reshape(a, (-1, self.num_heads, rows * columns, rows * columns))
        if of_first is None:
            return a
        return ops.concatenate([of_first, ops.pad(a, ((0, 0), (0, 0), (0, 0), (1, 0)))], axis=2)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialEncoderBlock(EncoderBlock):
    """The Axial Transformer block (Appendix D.6): an `EncoderBlock` whose attention runs along one axis.

    Args:
        axis, grid: see `AxialSelfAttention`.
        **kwargs: `EncoderBlock`'s, by name.

    Call arguments:
        return_weights: also return the attention weights, (n, num_heads, l, l), zero off the line.

    >>> block = AxialEncoderBlock("column", (4, 4), num_heads=4, mlp_dim=128)
    >>> tuple(block(keras.ops.zeros((2, 16, 64))).shape)
    (2, 16, 64)
    """

    attention_class = AxialSelfAttention

    def __init__(self, axis: Literal["row", "column"], grid: tuple[int, int], **kwargs: Any):
        super().__init__(**kwargs)
        self.axis = axis
        self.grid = tuple(grid)


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialVisionTransformer(VisionTransformer):
    """Axial-ViT: two Axial Transformer blocks, of rows and of columns, in place of each block of ViT.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). The layers "encoderblock_0", 2, 4, ...
    attend along rows, "encoderblock_1", 3, 5, ... along columns: after a row block a patch has seen its row, after the
    column block that follows it everything. `attention` gives weights that are zero off the line.

    The arguments are those of `VisionTransformer`, with two differences.

    Args:
        num_layers: axial blocks, an even number: 24 for Axial-ViT-B.
        classifier: "gap" reads the mean of the patch tokens. The authors' code in Scenic and the named variants do so;
            their axial encoder has no class token. "token" is our addition: the class token attends to all tokens and
            no patch attends to it, so that patches still see only their own lines.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> model = AxialVisionTransformer(32, patch_size=8, hidden_size=64, num_layers=2, num_heads=4, mlp_dim=128)
    >>> tuple(model(np.zeros((2, 32, 32, 3))).shape)
    (2, 1000)
    """

    config: AxialViTConfig
    config_class = AxialViTConfig
    block_class = AxialEncoderBlock

    @classmethod
    def make_block(cls, i, config, dtype, **arguments):
        return super().make_block(i, config, dtype, axis="column" if i % 2 else "row", **arguments)


_registration.register()

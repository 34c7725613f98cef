"""Positions of patches: the embeddings of Eq. 1, of Appendix D.4 and of big_vision, and DINOv3's rotation."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.interpolation import count, grid_matrices

INITIAL_DEVIATION = 0.02  # vit_jax's
TEMPERATURE = 10_000  # scales the slowest sine's period
ROTARY_BASE = 100.0  # above DINOv3's longest period, in coordinates from -1 to 1


def new_embedding(layer, name, *shape):
    normal = keras.initializers.RandomNormal(stddev=INITIAL_DEVIATION)
    return layer.add_weight(name=name, shape=shape, initializer=normal)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchPlaces(ConfiguredLayer):
    """Numbers the rows and columns of the patches of images of any size: (n, h, w, c) -> (rows,), (columns,), int32.

    Args:
        step: (height, width) of a patch in pixels.
        drop_remainder: whether to ignore the pixels at the end that do not fill a patch.

    Raises:
        ValueError: when the image is no whole number of patches, without `drop_remainder`.

    >>> rows, columns = PatchPlaces(step=(8, 8))(keras.ops.zeros((2, 24, 32, 3)))
    >>> tuple(columns.shape)
    (4,)
    """

    def __init__(self, step: tuple[int, int], drop_remainder: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.step = tuple(step)
        self.drop_remainder = drop_remainder

    def call(self, images):
        for size, step in zip(images.shape[1:3], self.step, strict=True):
            if size is not None and (size < step or (size % step and not self.drop_remainder)):
                raise ValueError(
                    f"Height and width of the images must be multiples of {self.step[0]} and {self.step[1]} pixels. "
                    f"Received: {images.shape[1]}x{images.shape[2]}. Resize or crop them first."
                )
        # A remainder known only in a compiled step makes more places than patches, so that the step fails.
        more = 0 if self.drop_remainder else 2
        sizes = ops.shape(images)[1:3]
        return tuple(ops.arange(n // s + more * (n % s), dtype="int32") for n, s in zip(sizes, self.step, strict=True))

    def compute_output_spec(self, images):
        return keras.KerasTensor((None,), "int32"), keras.KerasTensor((None,), "int32")


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding(ConfiguredLayer):
    """Adds learnable 1-D position embeddings E_pos (Eq. 1), one for each token: (n, l, d) -> (n, l, d).

    Args:
        grid: (rows, columns) of the patches that have embeddings, for images of any size; None for the input's tokens.
        prefix_tokens: number of tokens before the patches that also have embeddings; ignored if the length is known.
        interpolation: how the embeddings are resized to another grid, a key of `POSITION_MATRICES`.

    Call arguments:
        places: the output of `PatchPlaces`, for images of any size.

    >>> tuple(PositionEmbedding()(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def __init__(
        self, grid: tuple[int, int] | None = None, prefix_tokens: int = 0, interpolation: str = "linear", **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.grid: Any = None if grid is None else tuple(grid)
        self.prefix_tokens = prefix_tokens
        self.interpolation = interpolation

    def count_prefix(self, length):
        """The number of tokens before the patches, of `length` tokens in all."""
        return self.prefix_tokens if length is None else length - self.grid[0] * self.grid[1]

    def build(self, input_shape):
        _, length, d = input_shape
        length = self.prefix_tokens + self.grid[0] * self.grid[1] if length is None else length
        self.embedding = new_embedding(self, "embedding", 1, length, d)

    def call(self, x, places=None):
        return x + ops.cast(self.compose() if places is None else self.compose_at(places), x.dtype)

    def compose(self) -> Any:
        """The embeddings as they are added: (1, l, d)."""
        return ops.convert_to_tensor(self.embedding)

    def compose_at(self, places) -> Any:
        """The embeddings on another grid."""
        (rows, columns), d = self.grid, self.embedding.shape[-1]
        down, across = self.matrices(places)
        embedding = ops.convert_to_tensor(self.embedding)
        x = ops.reshape(embedding[0, self.prefix_tokens :], (rows, columns * d))
        x = ops.matmul(across, ops.reshape(ops.matmul(down, x), (-1, columns, d)))  # (new rows, new columns, d)
        x = ops.reshape(x, (1, -1, d))
        return ops.concatenate([embedding[:, : self.prefix_tokens], x], axis=1) if self.prefix_tokens else x

    def matrices(self, places):
        return grid_matrices(self.grid, [ops.cast(x, "float32") for x in places], self.interpolation, ops)


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding2D(PositionEmbedding):
    """Adds learnable 2-D position embeddings (Appendix D.4): (n, l, d) -> (n, l, d).

    A patch's embedding joins that of its column, the paper's X-embedding, and that of its row, the Y-embedding, of
    d / 2 channels each. A token before the patches, such as the class token, gets none.

    Args:
        grid: (rows, columns) of patches, the last rows * columns tokens.
        prefix_tokens, interpolation: see `PositionEmbedding`.

    Raises:
        ValueError: when d is odd.

    >>> tuple(PositionEmbedding2D(grid=(4, 4))(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def build(self, input_shape):
        _, length, d = input_shape
        self.prefix = self.count_prefix(length)
        if d % 2:
            raise ValueError(f"{self.name}: 2-D position embeddings need an even width. Received: {d}.")
        rows, columns = self.grid
        self.row_embedding = new_embedding(self, "row_embedding", rows, d // 2)
        self.column_embedding = new_embedding(self, "column_embedding", columns, d // 2)

    def compose(self) -> Any:
        """The embeddings as they are added: (1, l, d), zero for the tokens before the patches."""
        return self.place(ops.convert_to_tensor(self.row_embedding), ops.convert_to_tensor(self.column_embedding))

    def compose_at(self, places) -> Any:
        down, across = self.matrices(places)
        return self.place(ops.matmul(down, self.row_embedding), ops.matmul(across, self.column_embedding))

    def place(self, y, x, xp=ops):
        """Embeddings of rows (rows, d / 2) and columns (columns, d / 2) side by side for every token: (1, l, d)."""
        half = y.shape[-1]
        y, x = y[:, None] + 0 * x, x[None] + 0 * y[:, None]  # (rows, columns, d / 2)
        embedding = xp.reshape(xp.concatenate([x, y], axis=-1), (-1, 2 * half))  # in raster order
        return xp.pad(embedding, ((self.prefix, 0), (0, 0)))[None, ...]


@keras.saving.register_keras_serializable(package="keras_vit")
class SineCosineEmbedding2D(PositionEmbedding2D):
    """Adds fixed 2-D position embeddings, posemb_sincos_2d of big_vision's models/vit.py: (n, l, d) -> (n, l, d).

    A patch's embedding is sin(x w), cos(x w), sin(y w), cos(y w) for its column x and row y, at d / 4 frequencies w
    from 1 to 1 / 10,000 in a geometric row. A token before the patches gets none.

    Args:
        grid: (rows, columns) of patches, the last rows * columns tokens.

    Raises:
        ValueError: when d is not 8 or more and a multiple of 4.

    >>> tuple(SineCosineEmbedding2D(grid=(4, 4))(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def build(self, input_shape):
        _, length, d = input_shape
        self.prefix = self.count_prefix(length)
        if d % 4 or d < 8:
            raise ValueError(f"{self.name}: sines and cosines need a width of 8, 12, 16, ... Received: {d}.")
        self.frequencies = TEMPERATURE ** -np.linspace(0, 1, d // 4)
        self.table = self.tabulate(map(np.arange, self.grid), self.frequencies, np).astype("float32")

    def tabulate(self, places, frequencies, xp):
        angles = (x[:, None] * frequencies for x in places)
        return self.place(*(xp.concatenate([xp.sin(x), xp.cos(x)], axis=-1) for x in angles), xp=xp)

    def compose(self) -> Any:
        return ops.convert_to_tensor(self.table)

    def compose_at(self, places) -> Any:
        return self.tabulate([ops.cast(x, "float32") for x in places], self.frequencies.astype("float32"), ops)


def align_offsets(logits, p):
    """Logits by query and offset to logits by query and key: (n, heads, p * (2 p - 1)) -> (n, heads, p, p).

    Query q has 2 p - 1 values; that of key k is at k - q + p - 1. Among all values it is at (p - 1) + q (2 p - 2) + k.
    So after the first p - 1 values, the rows are 2 p - 2 long and begin with key 0 (arXiv 1809.04281, section 3.4.1).
    """
    heads, length = logits.shape[1], 2 * p - 2
    if not length:
        return ops.reshape(logits, (-1, heads, 1, 1))
    logits = logits[:, :, p - 1 : p - 1 + p * length]
    return ops.reshape(logits, (-1, heads, p, length))[..., :p]


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositionLogits(ConfiguredLayer):
    """The extra attention of 1-D relative position embeddings (Appendix D.4): from queries to logits to be added.

    Every offset between two patches in raster order has an embedding that takes the key's place: (n, heads, l, d) ->
    (n, heads, l, l), where [q, k] is query q times the embedding of k - q. The heads share the embeddings (arXiv
    1803.02155, section 3.3). A token before the patches, such as the class token, has no offset: its logits are 0, as
    query and as key. So the last block's embeddings do not affect a model that reads its class token.

    Args:
        num_patches: number of patches, the last tokens.

    >>> tuple(RelativePositionLogits(num_patches=16)(keras.ops.zeros((2, 4, 17, 8))).shape)
    (2, 4, 17, 17)
    """

    def __init__(self, num_patches: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_patches = num_patches

    def build(self, input_shape):
        # Row i is for a key i - (num_patches - 1) places after the query.
        self.embedding = new_embedding(self, "embedding", 2 * self.num_patches - 1, input_shape[-1])

    def call(self, q):
        _, heads, l, d = q.shape
        p = self.num_patches
        q = ops.reshape(q[:, :, l - p :], (-1, d))  # (n * heads * p, d): one plain matrix product
        table = ops.transpose(ops.cast(self.embedding, q.dtype))
        logits = align_offsets(ops.reshape(ops.matmul(q, table), (-1, heads, p * (2 * p - 1))), p)
        return ops.pad(logits, ((0, 0), (0, 0), (l - p, 0), (l - p, 0))) if l > p else logits

    def compute_output_shape(self, input_shape):
        n, heads, l, _ = input_shape
        return n, heads, l, l


@keras.saving.register_keras_serializable(package="keras_vit")
class RotaryPositions(ConfiguredLayer):
    """Turns queries or keys by the places of their patches, DINOv3's rotary positions: (n, l, d) -> (n, l, d).

    In every head, channels i and i + d / (2 heads) are the coordinates of a point in the plane. It is turned by the
    angle 2 pi c / period (arXiv 2508.10104). For the first half of these points c is the row of the patch, for the
    second its column, both from -1 to 1 over the image. The periods grow from 1 to nearly 100 in a geometric series. So
    a logit depends on the offset between two patches. Tokens before the patches are not turned.

    Args:
        grid: (rows, columns) of patches, the last rows * columns tokens.
        num_heads: attention heads; each must have a multiple of 4 channels.
        prefix_tokens: number of tokens before the patches; ignored if the length is known.

    Call arguments:
        places: the output of `PatchPlaces`, for images of any size.

    Raises:
        ValueError: when the channels of a head are no multiple of 4.

    >>> tuple(RotaryPositions(grid=(4, 4), num_heads=4)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def __init__(self, grid: tuple[int, int], num_heads: int, prefix_tokens: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_heads = num_heads
        self.prefix_tokens = prefix_tokens

    def build(self, input_shape):
        _, l, d = input_shape
        if d % (4 * self.num_heads):
            raise ValueError(
                f"{self.name}: rotary positions need heads of 4, 8, 12, ... channels. Received: {d} channels in "
                f"{self.num_heads} heads."
            )
        self.prefix = self.prefix_tokens if l is None else l - self.grid[0] * self.grid[1]
        quarter = d // self.num_heads // 4
        self.frequencies = 2 * np.pi / ROTARY_BASE ** (np.arange(quarter) / quarter)
        places = map(np.arange, self.grid)
        self.cos, self.sin = (x.astype("float32") for x in self.tabulate(places, self.frequencies, np))

    def tabulate(self, places, frequencies, xp):
        """Cosines and sines of the tokens' angles, each (l, 1, d / heads); the sines of the first half are negated."""
        quarter = len(frequencies)
        y, x = (((2 * place + 1) / count(place) - 1)[:, None] * frequencies for place in places)
        y, x = y[:, None] + 0 * x, x + 0 * y[:, None]  # (rows, columns, quarter)
        angles = xp.reshape(xp.concatenate([y, x], axis=-1), (-1, 2 * quarter))
        angles = xp.pad(angles, ((self.prefix, 0), (0, 0)))
        cos, sin = xp.cos(angles), xp.sin(angles)
        both = xp.concatenate([cos, cos], axis=1), xp.concatenate([-sin, sin], axis=1)
        return [x[:, None] for x in both]

    def call(self, x, places=None):
        l, d = ops.shape(x)[1], x.shape[2]
        width = d // self.num_heads
        cos, sin = self.cos, self.sin
        if places is not None:
            cos, sin = self.tabulate([ops.cast(x, "float32") for x in places], self.frequencies.astype("float32"), ops)
        x = ops.reshape(x, (-1, l, self.num_heads, width))
        swapped = ops.concatenate([x[:, :, :, width // 2 :], x[:, :, :, : width // 2]], axis=-1)
        x = x * ops.cast(cos, x.dtype) + swapped * ops.cast(sin, x.dtype)
        return ops.reshape(x, (-1, l, d))

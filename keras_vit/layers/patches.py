"""From pixels to tokens (section 3.1, Eq. 1)."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(ConfiguredLayer):
    """Cuts an image or feature map into patches and projects each to `hidden_size`: x_p E of Eq. 1.

    (n, h, w, c) -> (n, h / patch height * w / patch width, hidden_size), patches in raster order. `kernel` has the
    official layout (patch height, patch width, c, hidden_size).

    Args:
        hidden_size: width of the tokens.
        patch_size: int or (height, width), in pixels or cells of the feature map.
        patch_bias: whether a bias is added.
        drop_remainder: whether to ignore the pixels at the end that do not fill a patch.
        has_free_size: whether height and width may be unknown until the layer is called.

    Raises:
        ValueError: when height or width is unknown without `has_free_size`, or is no whole number of patches without
            `drop_remainder`.

    >>> tuple(PatchEmbedding(64, patch_size=8)(keras.ops.zeros((2, 32, 32, 3))).shape)
    (2, 16, 64)
    """

    def __init__(
        self,
        hidden_size: int,
        patch_size: int | tuple[int, int],
        patch_bias: bool = True,
        drop_remainder: bool = False,
        has_free_size: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.patch_size = (patch_size, patch_size) if isinstance(patch_size, int) else tuple(patch_size)
        self.patch_bias = patch_bias
        self.drop_remainder = drop_remainder
        self.has_free_size = has_free_size

    def build(self, input_shape):
        self.compute_output_shape(input_shape)  # refuses a wrong one
        ph, pw, c = *self.patch_size, input_shape[-1]
        self.kernel = self.add_weight(name="kernel", shape=(ph, pw, c, self.hidden_size), initializer="lecun_normal")
        self.bias = None
        if self.patch_bias:
            self.bias = self.add_weight(name="bias", shape=(self.hidden_size,), initializer="zeros")

    def call(self, images):
        d = self.compute_output_shape(images.shape)[-1]
        x = ops.conv(images, self.kernel, strides=self.patch_size, padding="valid", data_format="channels_last")
        h, w = x.shape[1:3]
        x = ops.reshape(x, (-1, h * w, d) if h and w else (ops.shape(x)[0], self.count_dynamically(images), d))
        return x if self.bias is None else x + self.bias

    def count_dynamically(self, images):
        """Patches in a compiled step; a forbidden remainder makes the number too large, so that the step fails."""
        more, sizes = 0 if self.drop_remainder else 2, ops.shape(images)[1:3]
        if None in sizes:  # while a graph is traced without numbers
            return -1
        (rows, columns) = (n // p + more * (n % p) for n, p in zip(sizes, self.patch_size, strict=True))
        return rows * columns

    def compute_output_shape(self, input_shape):
        n, h, w, _ = input_shape
        ph, pw = self.patch_size
        known = [(size, step) for size, step in ((h, ph), (w, pw)) if size is not None]
        misfits = any(size < step or (size % step and not self.drop_remainder) for size, step in known)
        if misfits or (len(known) < 2 and not self.has_free_size):
            raise ValueError(
                f"{self.name} needs a known height and width that are whole numbers of {ph}x{pw} patches. "
                f"Received: input_shape={tuple(input_shape)}. Images of several sizes are resized first, as by "
                "model.preprocessing."
            )
        return n, None if None in (h, w) else (h // ph) * (w // pw), self.hidden_size


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(ConfiguredLayer):
    """Prepends the learnable class token x_class (Eq. 1): (n, l, d) -> (n, 1 + l, d).

    >>> tuple(ClassToken()(keras.ops.zeros((2, 16, 64))).shape)
    (2, 17, 64)
    """

    def build(self, input_shape):
        self.token = self.add_weight(name="token", shape=(1, 1, input_shape[-1]), initializer="zeros")

    def call(self, x):
        token = ops.broadcast_to(ops.cast(self.token, x.dtype), (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_output_shape(self, input_shape):
        n, l, d = input_shape
        return n, l and l + 1, d


@keras.saving.register_keras_serializable(package="keras_vit")
class Registers(ConfiguredLayer):
    """Inserts learnable tokens without positions before the patches (arXiv 2309.16588): (n, l, d) -> (n, l + k, d).

    Args:
        num_registers: number of registers, k.
        first: number of tokens that stay before them: 1 for the class token.

    >>> tuple(Registers(num_registers=4, first=1)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 21, 64)
    """

    def __init__(self, num_registers: int, first: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_registers = num_registers
        self.first = first

    def build(self, input_shape):
        shape = (1, self.num_registers, input_shape[-1])
        self.token = self.add_weight(name="token", shape=shape, initializer="zeros")

    def call(self, x):
        shape = (ops.shape(x)[0], self.num_registers, x.shape[-1])
        registers = ops.broadcast_to(ops.cast(self.token, x.dtype), shape)
        if not self.first:
            return ops.concatenate([registers, x], axis=1)
        rest = ops.concatenate([registers, x[:, self.first :]], axis=1)  # two at a time, as ONNX's constants are joined
        return ops.concatenate([x[:, : self.first], rest], axis=1)

    def compute_output_shape(self, input_shape):
        n, l, d = input_shape
        return n, l and l + self.num_registers, d

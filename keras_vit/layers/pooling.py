"""From the tokens to the image representation y (Eq. 4, Appendix D.3), one layer for each `classifier`."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.base import ConfiguredLayer, takes_arguments_of
from keras_vit.layers.elementary import LayerNormalization
from keras_vit.layers.encoder import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class TakeClassToken(ConfiguredLayer):
    """The class token's state z_L^0 as the image representation (Eq. 4): (n, l, d) -> (n, d).

    >>> tuple(TakeClassToken()(keras.ops.zeros((2, 17, 64))).shape)
    (2, 64)
    """

    def call(self, x):
        return x[:, 0]

    def compute_output_shape(self, input_shape):
        n, _, d = input_shape
        return n, d


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchTokens(ConfiguredLayer):
    """Drops the tokens before the patches: (n, l, d) -> (n, l - prefix_tokens, d).

    >>> tuple(PatchTokens(prefix_tokens=1)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 16, 64)
    """

    def __init__(self, prefix_tokens: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.prefix_tokens = prefix_tokens

    def call(self, x):
        return x[:, self.prefix_tokens :] if self.prefix_tokens else x

    def compute_output_shape(self, input_shape):
        n, l, d = input_shape
        return n, l and l - self.prefix_tokens, d


def between_centres(old, new, covered, dtype):
    """The matrix (new, old) of linear interpolation between the centres of cells, which cover the first pixels."""
    centres = ops.cast(2 * ops.arange(new) + 1, dtype) * ops.cast(old, dtype) / ops.cast(2 * covered, dtype) - 0.5
    centres = ops.clip(centres, 0, ops.cast(old - 1, dtype))
    return ops.maximum(1 - ops.abs(centres[:, None] - ops.cast(ops.arange(old), dtype)), 0)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchesToPixels(ConfiguredLayer):
    """Resizes values of patches (n, patches, c), or of a map (n, rows, columns, c), to the images' size (n, h, w, c).

    Interpolation is bilinear between the centres of patches; pixels beyond the outermost centres repeat these.

    Args:
        step: (height, width) of a patch in pixels; None for a map.

    Call arguments:
        images: (n, h, w, channels); only their size is used.

    >>> x, images = keras.ops.zeros((2, 16, 5)), keras.ops.zeros((2, 32, 32, 3))
    >>> tuple(PatchesToPixels(step=(8, 8))(x, images=images).shape)
    (2, 32, 32, 5)
    """

    def __init__(self, step: tuple[int, int] | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.step = step and tuple(step)

    def call(self, x, images):
        (h, w), c = ops.shape(images)[1:3], x.shape[-1]
        rows, columns = (h // self.step[0], w // self.step[1]) if self.step else ops.shape(x)[1:3]
        # Pixels: a remainder has no patch.
        down, across = (rows * self.step[0], columns * self.step[1]) if self.step else (h, w)
        x = ops.matmul(between_centres(rows, h, down, x.dtype), ops.reshape(x, (-1, rows, columns * c)))
        return ops.matmul(between_centres(columns, w, across, x.dtype), ops.reshape(x, (-1, h, columns, c)))

    def compute_output_spec(self, x, images):
        return keras.KerasTensor((*images.shape[:3], x.shape[-1]), x.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class AveragePatches(ConfiguredLayer):
    """The mean of the patches' tokens (Appendix D.3): (n, l, d) -> (n, d), or (n, 2 d) after the class token.

    Args:
        prefix_tokens: number of tokens before the patches.
        beside_token: whether to put the class token's state, the first token, before the mean.

    >>> tuple(AveragePatches(prefix_tokens=1)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 64)
    """

    def __init__(self, prefix_tokens: int = 0, beside_token: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.prefix_tokens = prefix_tokens
        self.beside_token = beside_token

    def call(self, x):
        mean = ops.mean(x[:, self.prefix_tokens :] if self.prefix_tokens else x, axis=1)
        return ops.concatenate([x[:, 0], mean], axis=-1) if self.beside_token else mean

    def compute_output_shape(self, input_shape):
        n, _, d = input_shape
        return n, d * (1 + self.beside_token)


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(ConfiguredLayer):
    """SigLIP's head, big_vision's MAPHead: y = MSA(probe, z), then y + MLP(LN(y)): (n, l, d) -> (n, d).

    The probe, a learnable query, attends to the patches' tokens; no norm stands before its attention.

    Args:
        num_heads: attention heads; must divide d.
        mlp_dim: width of the MLP's hidden layer.
        layer_norm_epsilon: added to the norm's variance.
        prefix_tokens: number of tokens before the patches.
        **kwargs: the other arguments of `MLP`.

    >>> tuple(AttentionPooling(num_heads=4, mlp_dim=128)(keras.ops.zeros((2, 16, 64))).shape)
    (2, 64)
    """

    @takes_arguments_of(MLP)
    def __init__(
        self, num_heads: int, mlp_dim: int, layer_norm_epsilon: float = 1e-6, prefix_tokens: int = 0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.layer_norm_epsilon = layer_norm_epsilon
        self.prefix_tokens = prefix_tokens

    def build(self, input_shape):
        n, l, d = input_shape
        dtype = self.dtype_policy
        normal = keras.initializers.RandomNormal(stddev=d**-0.5)
        self.probe = self.add_weight(name="probe", shape=(1, 1, d), initializer=normal)
        self.attention = MultiHeadSelfAttention(self.num_heads, dtype=dtype, name="attention")
        self.norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=dtype, name="norm")
        self.mlp = MLP(**MLP.arguments_in(self), dtype=dtype, name="mlp")
        self.attention.build((n, l and l - self.prefix_tokens, d))
        self.norm.build((n, 1, d))
        self.mlp.build((n, 1, d))

    def call(self, x, training=None):
        x = x[:, self.prefix_tokens :] if self.prefix_tokens else x
        probe = ops.broadcast_to(ops.cast(self.probe, x.dtype), (ops.shape(x)[0], 1, x.shape[-1]))
        y = self.attention(x, training=training, queries=probe)
        y = y + self.mlp(self.norm(y), training=training)
        return y[:, 0]

    def fold(self):
        """Does what `EncoderBlock.fold` does; there is no norm before the attention."""
        self.attention.fold()
        self.mlp.fold(self.norm)

    def compute_output_shape(self, input_shape):
        n, _, d = input_shape
        return n, d

"""The layers of masked patch prediction: some patches' embeddings are replaced, some tokens are picked."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


def take(x, places):
    """The rows of x (n, l, d) at `places`, int (n, k): (n, k, d)."""
    return ops.take_along_axis(x, ops.expand_dims(places, -1), axis=1)


@keras.saving.register_keras_serializable(package="keras_vit")
class CorruptPatches(ConfiguredLayer):
    """Puts at every place the embedding of the patch that `sources` names, or the learnable mask embedding for -1.

    Patch embeddings (n, l, d) and sources int (n, l) to (n, l, d). It comes before the class token and the position
    embeddings, so that a masked patch keeps its place.

    >>> x = np.arange(6.0).reshape(1, 3, 2)
    >>> ops.convert_to_numpy(CorruptPatches()(x, np.array([[0, 0, -1]]))).tolist()
    [[[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]
    """

    def build(self, patches_shape, sources_shape):
        # Zeros as the class token in vit_jax.
        self.mask_embedding = self.add_weight(
            name="mask_embedding", shape=(1, 1, patches_shape[-1]), initializer="zeros"
        )

    def call(self, patches, sources):
        replaced = take(patches, ops.maximum(sources, 0))
        masked = ops.expand_dims(ops.less(sources, 0), -1)
        return ops.where(masked, ops.cast(self.mask_embedding, patches.dtype), replaced)

    def compute_output_shape(self, patches_shape, sources_shape):
        return patches_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class TakePatches(ConfiguredLayer):
    """The tokens of some patches: tokens (n, l, d) and places int (n, k) to (n, k, d).

    Args:
        prefix_tokens: how many tokens stand before the patches: 1 with a class token, else 0.

    >>> ops.convert_to_numpy(TakePatches(prefix_tokens=1)(np.array([[[7.0], [8.0], [9.0]]]), np.array([[1]]))).item()
    9.0
    """

    def __init__(self, prefix_tokens: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.prefix_tokens = prefix_tokens

    def call(self, tokens, places):
        return take(tokens, places + self.prefix_tokens)

    def compute_output_shape(self, tokens_shape, places_shape):
        n, _, d = tokens_shape
        return n, places_shape[1], d

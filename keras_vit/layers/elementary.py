"""Layer norm and GELU, in elementary operations because TensorFlow fuses these; dropout that differs between replicas.

`export_call` computes the same by one standard operation of Keras. Exporters trace it in place of `call`.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.distribution.replicas import replica_id
from keras_vit.layers import fast
from keras_vit.layers.base import ConfiguredLayer, widen


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """Seeds that differ between replicas although their state is mirrored: each seed depends on the replica's id.

    Replica 0 draws as Keras' own generator does.
    """

    def next(self, ordered=True):
        seed, replica = super().next(ordered), replica_id()
        if isinstance(replica, int) and replica == 0:
            return seed
        # An odd factor near 2**31 / golden ratio keeps the replicas' seeds apart from seeds that follow each other.
        offset = keras.ops.cast(replica, seed.dtype) * keras.ops.cast(1_327_217_885, seed.dtype)
        return seed + keras.ops.stack([offset, keras.ops.zeros_like(offset)])


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(ConfiguredLayer):
    """`keras.layers.Dropout` that draws a different mask on every replica, reproducible from the seed.

    Keras draws the same mask on all replicas, so that masks repeat within a global batch.

    Args:
        rate: share of the inputs set to 0, in [0, 1].
        noise_shape, seed: as in `keras.layers.Dropout`.

    >>> tuple(Dropout(0.1)(keras.ops.ones((2, 17, 64)), training=True).shape)
    (2, 17, 64)
    """

    def __init__(self, rate: float, noise_shape: tuple | None = None, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be in [0, 1]. Received: rate={rate}.")
        self.rate = rate
        self.noise_shape = None if noise_shape is None else tuple(noise_shape)
        self.seed = seed
        if rate > 0:
            self.seed_generator = ReplicaSeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(self, x, training=False):
        if not training or self.rate == 0:
            return x
        return keras.random.dropout(x, self.rate, noise_shape=self.noise_shape, seed=self.seed_generator)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNormalization(ConfiguredLayer):
    """Normalizes each token, then scales and shifts its channels (arXiv 1607.06450): (..., d) -> (..., d).

    Args:
        epsilon: added to the variance; 1e-6 in the authors' code.

    Attributes:
        folded: whether scale and shift are folded into the layers that follow.

    >>> tuple(LayerNormalization()(keras.ops.ones((2, 17, 64))).shape)
    (2, 17, 64)
    """

    folded = False

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=(input_shape[-1],), initializer="zeros", autocast=False)

    @fast.layer_norm
    def call(self, x, training=None):
        y, gamma, beta = widen(x), widen(self.gamma), widen(self.beta)
        y = y - ops.mean(y, axis=-1, keepdims=True)
        y = y * ops.rsqrt(ops.mean(ops.square(y), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(y if self.folded else y * gamma + beta, x.dtype)

    def export_call(self, x, training=None):
        return ops.layer_normalization(x, self.gamma, self.beta, axis=-1, epsilon=self.epsilon)

    def without_affine(self, x):
        """The norm without scale and shift; `fold_norm_into_dense` folds these into the layers that follow."""
        return ops.layer_normalization(x, axis=-1, epsilon=self.epsilon)


def fold_norm_into_dense(norm, dense):
    """Folds the layer norm before a dense layer into its kernel and bias; `norm` may be None."""
    bias = ops.zeros(dense.kernel.shape[-1:]) if dense.bias is None else dense.bias
    if norm is None:
        return dense.kernel, bias
    return norm.gamma[:, None] * dense.kernel, ops.matmul(norm.beta, dense.kernel) + bias


def fold_scale(scale, kernel, bias):
    """Folds the `LayerScale` after a dense layer into its kernel and bias; `scale` may be None."""
    return (kernel, bias) if scale is None else (kernel * scale.gamma, bias * scale.gamma)


def as_dense(kernel, bias):
    """A function that computes the dense layer of this kernel and bias; the bias may be None."""
    return lambda x: ops.matmul(x, kernel) if bias is None else ops.matmul(x, kernel) + bias


def assign_products(denses, products, norm, scale):
    """Gives dense layers their folded (kernel, bias); a layer has no bias then if its old or new one is None.

    Args:
        norm, scale: the layers that were folded in, which are marked so; or None.
    """
    for dense, (kernel, bias) in zip(denses, products, strict=True):
        dense.kernel.assign(kernel)
        if bias is None or dense.bias is None:
            dense.bias = None
        else:
            dense.bias.assign(bias)
    for part in (norm, scale):
        if part is not None:
            part.folded = True


@keras.saving.register_keras_serializable(package="keras_vit")
class GELU(ConfiguredLayer):
    """x times the normal distribution function of x (arXiv 1606.08415), of any shape.

    TensorFlow fuses these elementary operations with the dense layer before them.

    Args:
        approximate: by tanh, as the official weights expect; False for exact GELU.

    >>> tuple(GELU()(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def __init__(self, approximate: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.approximate = approximate

    @fast.gelu
    def call(self, x, training=None):
        if self.approximate:
            return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))

    def export_call(self, x, training=None):
        return ops.gelu(x, approximate=self.approximate)

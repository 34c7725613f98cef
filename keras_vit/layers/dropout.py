"""Dropout whose masks differ between the replicas of a tf.distribute strategy."""

from typing import Any

import keras

from keras_vit.distribution.replicas import replica_id
from keras_vit.layers.base import ConfiguredLayer


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

"""Classes with many examples and classes with few: weights that make each count alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.errors import ConfigError

if TYPE_CHECKING:
    import tensorflow as tf


def balanced_weights(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Weights n / (classes * count) of the classes, float32: with them every class has the same total.

    Their mean over the examples is 1, as for scikit-learn's class_weight="balanced".

    Args:
        counts: examples of each class, as `examples.class_counts()`; all above 0.

    Raises:
        ConfigError: for a class without examples.

    >>> balanced_weights([30, 10])
    array([0.6666667, 2.       ], dtype=float32)
    """
    counts = np.asarray(counts)
    if counts.size == 0 or counts.min() <= 0:
        empty = np.flatnonzero(counts <= 0).tolist()
        raise ConfigError(f"Balanced weights need examples of every class. Received: none of the classes {empty}.")
    return (counts.sum() / (len(counts) * counts)).astype("float32")


def weigh_classes(batches: tf.data.Dataset, weights: Sequence[float] | np.ndarray) -> tf.data.Dataset:
    """Batches (images, labels) as (images, labels, weights of the examples) for training.

    The losses of this package divide by the sum of the weights of the global batch, whatever number of replicas
    computes it. Where labels are mixed, an example has the mean of its classes' weights.

    Args:
        batches: of `examples.train`; labels int (n,), or float (n, classes).
        weights: of the classes.

    >>> import tensorflow as tf
    >>> batches = tf.data.Dataset.from_tensors((tf.zeros((2, 8, 8, 3)), tf.constant([0, 1])))
    >>> [w.numpy().tolist() for _, _, w in weigh_classes(batches, [0.5, 2.0])]
    [[0.5, 2.0]]
    """
    import tensorflow as tf

    weights = tf.constant(weights, tf.float32)

    def weigh(images, labels):
        if labels.dtype.is_integer:
            return images, labels, tf.gather(weights, labels)
        return images, labels, tf.linalg.matvec(labels, weights)

    return batches.map(weigh, tf.data.AUTOTUNE, deterministic=True)

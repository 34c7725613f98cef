"""Mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899) of a batch with its neighbours."""

import tensorflow as tf

CHOICE, GAMMA, CENTRE = 0, 1, 2  # what a step draws


def mix(images, labels, augmentation, num_classes, key, step):
    """A batch, mixed: (images float32 (n, h, w, c), labels float32 (n, num_classes)).

    As in big_vision, one weight in [1/2, 1] serves the whole batch, and every picture's partner is the one before it.

    Args:
        images: float32 (n, h, w, c).
        labels: int32 (n,), or float (n, num_classes).
        augmentation: with its `mixup` and `cutmix`.
        num_classes: of the one-hot labels.
        key: of the run (`order.run_key`).
        step: int64 scalar, from the run's start; every host draws the same for a step.
    """
    if labels.dtype.is_integer:
        labels = tf.one_hot(labels, num_classes)
    seed = tf.stack([key // 2 ^ 0x6D6978, step * 8])  # apart from the examples' draws
    if augmentation.mixup and augmentation.cutmix:
        coin = tf.random.stateless_uniform((), seed + tf.constant([0, CHOICE], tf.int64))
        return tf.cond(
            coin < 0.5,
            lambda: mixup(images, labels, augmentation.mixup, seed),
            lambda: cutmix(images, labels, augmentation.cutmix, seed),
        )
    if augmentation.mixup:
        return mixup(images, labels, augmentation.mixup, seed)
    return cutmix(images, labels, augmentation.cutmix, seed)


def beta(alpha, seed):
    """One draw of Beta(alpha, alpha), or of 1 minus it where that is larger: in [1/2, 1]."""
    seed = seed + tf.constant([0, GAMMA], tf.int64)
    a, b = tf.unstack(tf.random.stateless_gamma((2,), seed, alpha, dtype=tf.float64))
    share = tf.where(a + b > 0, a / tf.maximum(a + b, 1e-300), 1.0)
    return tf.cast(tf.maximum(share, 1 - share), tf.float32)


def mixup(images, labels, alpha, seed):
    weight = beta(alpha, seed)
    return tuple(weight * x + (1 - weight) * tf.roll(x, 1, 0) for x in (images, labels))


def cutmix(images, labels, alpha, seed):
    """A rectangle of 1 - weight of the picture comes from the partner; labels follow the part really pasted."""
    height, width = images.shape[1:3]
    side = tf.sqrt(1 - beta(alpha, seed))
    centre = tf.random.stateless_uniform((2,), seed + tf.constant([0, CENTRE], tf.int64))
    rows = inside(height, centre[0], side)
    columns = inside(width, centre[1], side)
    pasted = rows[:, None] & columns[None]
    share = tf.reduce_mean(tf.cast(pasted, tf.float32))
    mixed = tf.where(pasted[None, :, :, None], tf.roll(images, 1, 0), images)
    return mixed, (1 - share) * labels + share * tf.roll(labels, 1, 0)


def inside(length, centre, side):
    """Which of `length` pixels a stretch of `side` of them around `centre` covers; both in [0, 1]."""
    middle, half = centre * length, side * length / 2
    pixel = tf.range(length, dtype=tf.float32) + 0.5
    return (pixel > middle - half) & (pixel < middle + half)

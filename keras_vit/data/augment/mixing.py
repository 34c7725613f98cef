"""Mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899) of a batch with its neighbours."""

import tensorflow as tf

from keras_vit.data.reading.order import BatchSalt, add_salt, batch_seed


def covers(length, centre, side):
    """Whether an interval covers each of `length` pixels, bool (length,); `centre` and `side` are shares of these."""
    middle, half = centre * length, side * length / 2
    pixel = tf.range(length, dtype=tf.float32) + 0.5
    return (pixel > middle - half) & (pixel < middle + half)


def draw_weight(alpha, seed):
    """One draw of Beta(alpha, alpha), or 1 minus it if that is larger: in [1/2, 1]."""
    # The share of one of two gamma draws is a beta draw; float64, since draws are near 0 for a small alpha.
    a, b = tf.unstack(tf.random.stateless_gamma((2,), add_salt(seed, BatchSalt.WEIGHT), alpha, dtype=tf.float64))
    share = tf.where(a + b > 0, a / tf.maximum(a + b, 1e-300), 1.0)
    return tf.cast(tf.maximum(share, 1 - share), tf.float32)


def mixup(images, labels, alpha, seed):
    """Replaces every image and label by the weighted mean with its partner's."""
    weight = draw_weight(alpha, seed)
    return tuple(weight * x + (1 - weight) * tf.roll(x, 1, 0) for x in (images, labels))


def cutmix(images, labels, alpha, seed):
    """Pastes a rectangle of the partner, 1 - weight of the image's area. Labels follow the share that is pasted; it is
    smaller if the rectangle crosses the border.
    """
    height, width = images.shape[1:3]
    side = tf.sqrt(1 - draw_weight(alpha, seed))
    centre = tf.random.stateless_uniform((2,), add_salt(seed, BatchSalt.CENTRE))
    rows = covers(height, centre[0], side)
    columns = covers(width, centre[1], side)
    pasted = rows[:, None] & columns[None]
    share = tf.reduce_mean(tf.cast(pasted, tf.float32))
    mixed = tf.where(pasted[None, :, :, None], tf.roll(images, 1, 0), images)
    return mixed, (1 - share) * labels + share * tf.roll(labels, 1, 0)


def mix(images, labels, augmentation, num_classes, key, step):
    """Mixes a batch: (images float32 (n, h, w, c), labels float32 (n, num_classes)).

    As in big_vision, the whole batch has one weight in [1/2, 1], and every image's partner is the one before it. The
    given labels are int32 (n,) or float (n, num_classes). All hosts draw the same for one step, int64 (), of the run.
    """
    if labels.dtype.is_integer:
        labels = tf.one_hot(labels, num_classes)
    seed = batch_seed(key, step)
    if augmentation.mixup and augmentation.cutmix:
        coin = tf.random.stateless_uniform((), add_salt(seed, BatchSalt.MIXUP_OR_CUTMIX))
        return tf.cond(
            coin < 0.5,
            lambda: mixup(images, labels, augmentation.mixup, seed),
            lambda: cutmix(images, labels, augmentation.cutmix, seed),
        )
    if augmentation.mixup:
        return mixup(images, labels, augmentation.mixup, seed)
    return cutmix(images, labels, augmentation.cutmix, seed)

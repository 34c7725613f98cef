"""Mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899) of a batch with its neighbours."""

import functools

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


def mixup(height, width, alpha, seed):
    """(pixels float32 (height, width), labels ()), the partner's share of each: one weight for all."""
    share = 1 - draw_weight(alpha, seed)
    return tf.fill((height, width), share), share


def cutmix(height, width, alpha, seed):
    """These shares for a rectangle of the partner, 1 - weight of the area. Labels follow the share that is pasted; it
    is smaller if the rectangle crosses the border.
    """
    side = tf.sqrt(1 - draw_weight(alpha, seed))
    centre = tf.random.stateless_uniform((2,), add_salt(seed, BatchSalt.CENTRE))
    rows = covers(height, centre[0], side)
    columns = covers(width, centre[1], side)
    pasted = tf.cast(rows[:, None] & columns[None], tf.float32)
    return pasted, tf.reduce_mean(pasted)


def draw_shares(height, width, augmentation, seed):
    """The shares of the method that the batch gets."""
    methods = [
        functools.partial(method, height, width, alpha, seed)
        for method, alpha in ((mixup, augmentation.mixup), (cutmix, augmentation.cutmix))
        if alpha
    ]
    if len(methods) == 1:
        return methods[0]()
    coin = tf.random.stateless_uniform((), add_salt(seed, BatchSalt.MIXUP_OR_CUTMIX))
    return tf.cond(coin < 0.5, *methods)


def blend(values, share):
    """Each value (n, ...) with its partner's, the one before it."""
    return (1 - share) * values + share * tf.roll(values, 1, 0)


def blend_images(images, share, finish):
    """`finish` of the blended images; rows of all channels, since broadcasting over a last axis of 3 takes long."""
    rows = tf.reshape(images, (*images.shape[:2], -1))
    return finish(tf.reshape(blend(rows, tf.repeat(share, images.shape[-1], 1)), images.shape))


def mix(images, labels, augmentation, num_classes, key, step, finish=tf.identity):
    """Mixes a batch: (`finish` of the images float32 (n, h, w, c), labels float32 (n, num_classes)).

    As in big_vision, the whole batch has one weight in [1/2, 1], and every image's partner is the one before it. The
    given labels are int32 (n,) or float (n, num_classes). All hosts draw the same for one step, int64 (), of the run.
    """
    if labels.dtype.is_integer:
        labels = tf.one_hot(labels, num_classes)
    of_pixels, of_labels = draw_shares(*images.shape[1:3], augmentation, batch_seed(key, step))
    # As one program of XLA, mixing and normalizing read and write a batch once: in a quarter of the time or less.
    program = tf.function(functools.partial(blend_images, finish=finish), autograph=False, jit_compile=True)
    return program(images, of_pixels), blend(labels, of_labels)

"""Mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899) of a batch with its neighbours."""

import functools

import tensorflow as tf

from keras_vit.data.reading.order import BatchSalt, add_salt, batch_seed


def draw_weight(alpha, seed):
    """One draw of Beta(alpha, alpha), or 1 minus it if that is larger: in [1/2, 1]."""
    # The share of one of two gamma draws is a beta draw; float64, since draws are near 0 for a small alpha.
    a, b = tf.unstack(tf.random.stateless_gamma((2,), add_salt(seed, BatchSalt.WEIGHT), alpha, dtype=tf.float64))
    share = tf.where(a + b > 0, a / tf.maximum(a + b, 1e-300), 1.0)
    return tf.cast(tf.maximum(share, 1 - share), tf.float32)


def mixup(height, width, alpha, seed):
    """A mixing, float32 (5,): a rectangle (top, bottom, left, right) in pixels, here the image, and the weight of the
    partner in it.
    """
    return tf.stack([0.0, height, 0.0, width, 1 - draw_weight(alpha, seed)])


def cutmix(height, width, alpha, seed):
    """A mixing that pastes a rectangle of the partner, 1 - weight of the area; it may cross the border."""
    size = tf.constant([height, width], tf.float32)
    centre = tf.random.stateless_uniform((2,), add_salt(seed, BatchSalt.CENTRE)) * size
    half = tf.sqrt(1 - draw_weight(alpha, seed)) * size / 2
    (top, left), (bottom, right) = tf.unstack(centre - half), tf.unstack(centre + half)
    return tf.stack([top, bottom, left, right, 1.0])


def draw_mixing(height, width, augmentation, seed):
    """The mixing, float32 (5,), that the batch gets."""
    methods = [
        functools.partial(method, height, width, alpha, seed)
        for method, alpha in ((mixup, augmentation.mixup), (cutmix, augmentation.cutmix))
        if alpha
    ]
    if len(methods) == 1:
        return methods[0]()
    coin = tf.random.stateless_uniform((), add_salt(seed, BatchSalt.MIXUP_OR_CUTMIX))
    return tf.cond(coin < 0.5, *methods)


def share_of_partner(mixing, height, width):
    """The partner's weight in each pixel, float32 (height, width); a rectangle has the pixels whose centres it has."""
    top, bottom, left, right, weight = tf.unstack(mixing)
    y, x = tf.range(height, dtype=tf.float32)[:, None] + 0.5, tf.range(width, dtype=tf.float32) + 0.5
    return tf.where((y >= top) & (y < bottom) & (x >= left) & (x < right), weight, 0.0)


def blend(values, share):
    """Each value (n, ...) with its partner's, the one before it."""
    return (1 - share) * values + share * tf.roll(values, 1, 0)


def blend_images(images, share, finish):
    """`finish` of the blended images; rows of all channels, since broadcasting over a last axis of 3 takes long."""
    rows = tf.reshape(images, (*images.shape[:2], -1))
    return finish(tf.reshape(blend(rows, tf.repeat(share, images.shape[-1], 1)), images.shape))


def mix_labels(labels, share, num_classes):
    """Labels, int32 (n,) or float (n, num_classes), mixed by the mean of the pixels' share, (h, w)."""
    if labels.dtype.is_integer:
        labels = tf.one_hot(labels, num_classes)
    return blend(labels, tf.reduce_mean(share))


def mix(images, labels, augmentation, num_classes, key, step, finish=tf.identity):
    """Mixes a batch: (`finish` of the images float32 (n, h, w, c), labels float32 (n, num_classes)).

    As in big_vision, the whole batch has one weight in [1/2, 1], and every image's partner is the one before it. All
    hosts draw the same for one step, int64 (), of the run.
    """
    size = images.shape[1:3]
    share = share_of_partner(draw_mixing(*size, augmentation=augmentation, seed=batch_seed(key, step)), *size)
    # As one program of XLA, mixing and normalizing read and write a batch once: in a quarter of the time or less.
    program = tf.function(functools.partial(blend_images, finish=finish), autograph=False, jit_compile=True)
    return program(images, share), mix_labels(labels, share, num_classes)

"""Encoded pictures to uint8 pixels, of a JPEG only the part that is asked for."""

import tensorflow as tf

from keras_vit.data import exif


def read_part(data, box, channels, orient=False):
    """The part of an encoded picture that `box` chooses, uint8 (h, w, channels).

    Args:
        data: contents of a JPEG, PNG, BMP, GIF (its first frame) or, from TensorFlow 2.21, WebP file; a string ().
        box: function of the picture's (height, width), int32 (2,), to (top, left, height, width), int32 (4,).
        channels: 1 or 3.
        orient: turns JPEGs upright as their EXIF data say; the papers' datasets are read without.
    """

    others = apart(lambda data: general(data, box, channels, orient))
    plain = tf.io.is_jpeg(data)
    if orient:
        plain &= ~exif.present(data)
    image = tf.cond(plain, lambda: fused(data, box, channels), lambda: others(data))
    return tf.ensure_shape(image, (None, None, channels))


def general(data, box, channels, orient):
    """`read_part` of whatever is not a JPEG without EXIF data."""

    def other():
        return cut(tf.io.decode_image(data, channels, expand_animations=False), box)

    def upright():
        turn = exif.orientation(data)
        turned = apart(lambda data: cut(exif.turned(tf.io.decode_jpeg(data, channels), turn), box))
        return tf.cond(tf.equal(turn, 1), lambda: fused(data, box, channels), lambda: turned(data))

    return tf.cond(tf.io.is_jpeg(data), upright, other) if orient else other()


def apart(function):
    """`function` as one op of the graph that calls it: a branch not taken costs time for each of its ops (measured)."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def fused(data, box, channels):
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def cut(image, box):
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))

"""Encoded pictures to uint8 pixels, of a JPEG only the part that is asked for."""

import tensorflow as tf


def read_part(data, box, channels, gain=1):
    """The part of an encoded picture, as datasets store them, that `box` chooses: uint8 (h, w, channels).

    Args:
        data: contents of a JPEG, PNG, BMP or GIF file (its first frame); a string ().
        box: function of the picture's (height, width), int32 (2,), to (top, left, height, width), int32 (4,).
        channels: 1 or 3.
        gain: factor of the pixels, an int (dSprites are stored as 0 and 1).
    """

    others = apart(lambda data: cut(tf.io.decode_image(data, channels, expand_animations=False), box))
    image = tf.cond(tf.io.is_jpeg(data), lambda: fused(data, box, channels), lambda: others(data))
    image = tf.ensure_shape(image, (None, None, channels))
    return image if gain == 1 else image * tf.constant(gain, tf.uint8)


def apart(function):
    """`function` as one op of the graph that calls it: a branch not taken costs time for each of its ops."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def fused(data, box, channels):
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def cut(image, box):
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))

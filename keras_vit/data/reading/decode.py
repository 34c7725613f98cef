"""Encoded images to uint8 pixels; of a JPEG only the part that is asked for is decoded.

A `box` is a function of an image's (height, width), int32 (2,), to the (top, left, height, width) that is wanted of it,
int32 (4,): it is called in the graph, once the size is known.
"""

import tensorflow as tf


def whole_image(shape):
    """The `box` of everything."""
    return tf.concat([[0, 0], shape], 0)


def crop(image, box):
    """The part of an image (h, w, c) that `box` chooses."""
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))


def decode_and_crop_jpeg(data, box, channels):
    """The same of a JPEG's contents; blocks outside of the part are not transformed, which is most of the work."""
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def as_one_op(function):
    """`function` as one op of the graph that calls it: a branch not taken costs time for each of its ops."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def decode_part(data, box, channels, gain=1):
    """The part of an encoded image, as datasets store them, that `box` chooses: uint8 (h, w, channels).

    Args:
        data: contents of a JPEG, PNG, BMP or GIF file (its first frame); a string ().
        box: see above.
        channels: 1 or 3.
        gain: factor of the pixels, an int (dSprites are stored as 0 and 1).
    """
    decode = as_one_op(lambda data: crop(tf.io.decode_image(data, channels, expand_animations=False), box))
    is_jpeg = tf.io.is_jpeg(data)
    image = tf.cond(is_jpeg, lambda: decode_and_crop_jpeg(data, box, channels), lambda: decode(data))
    image = tf.ensure_shape(image, (None, None, channels))
    return image if gain == 1 else image * tf.constant(gain, tf.uint8)

"""Encoded images to uint8 pixels: those that datasets store, and photographs as people keep them.

Of a JPEG only the part that is asked for is decoded.

A `box` is a function of an image's (height, width), int32 (2,), to the (top, left, height, width) that is wanted of it,
int32 (4,): it is called in the graph, once the size is known.
"""

from functools import partial

import numpy as np
import tensorflow as tf

from keras_vit.errors import ImageError
from keras_vit.images import pillow, tf_jpeg


def whole_image(shape):
    """The `box` of everything."""
    return tf.concat([[0, 0], shape], 0)


def crop(image, box):
    """The part of an image (h, w, c) that `box` chooses."""
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))


def decode_and_crop_jpeg(data, box, channels):
    """`crop` of a JPEG's contents, without the inverse transform of blocks outside: most of the work is saved."""
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def as_one_op(function):
    """`function` as one op of the graph that calls it: a branch not taken costs time for each of its ops."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def decode_part(data, box, channels, gain=1):
    """The part that `box` chooses of a JPEG, PNG, BMP or GIF (its first frame), a string (): uint8 (h, w, channels).

    `gain` is a factor of the pixels (dSprites are stored as 0 and 1).
    """
    decode = as_one_op(lambda data: crop(tf.io.decode_image(data, channels, expand_animations=False), box))
    is_jpeg = tf.io.is_jpeg(data)
    image = tf.cond(is_jpeg, lambda: decode_and_crop_jpeg(data, box, channels), lambda: decode(data))
    image = tf.ensure_shape(image, (None, None, channels))
    return image if gain == 1 else image * tf.constant(gain, tf.uint8)


def as_bytes(data):
    """The bytes that numpy_function hands over: bytes in a graph, an array () of them eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data


def choose_decoder(data, channels):
    """Which of `read_photo`'s decoders reads a file's contents as Pillow does, a numpy int32: the last is Pillow."""
    data = as_bytes(data)
    if pillow.is_plain_png(data, channels):
        return np.int32(1)
    if not data.startswith(pillow.SOI):
        return np.int32(2)
    try:
        with pillow.open_image(data) as image:
            is_upright = image.mode in ("RGB", "L") and pillow.read_orientation(image) == 1
            return np.int32(0 if is_upright else 2)
    except ImageError:  # Raised again, where it is reported, when Pillow decodes the image.
        return np.int32(2)


def read_photo(data, box, channels):
    """The part of a photograph that `box` chooses, uint8 (h, w, channels): of the image that `pillow.to_array` returns.

    TensorFlow decodes upright JPEGs and plain PNGs. Pillow decodes those that are turned, and the other kinds, of which
    TensorFlow reads some wrongly (BMP with a palette, transparent GIF) or not at all (animated WebP, TIFF, JPEG of
    CMYK). It also gets what may be too large to decode, since it says why it is refused.
    """

    def decode_jpeg(data):
        return decode_and_crop_jpeg(data, box, channels)

    def decode_png(data):
        return crop(tf.io.decode_png(data, channels), box)

    def decode_with_pillow(data):
        with pillow.open_image(as_bytes(data)) as image:
            return pillow.to_array(image, channels)

    def decode_other(data):
        return crop(tf.numpy_function(decode_with_pillow, [data], tf.uint8, stateful=False), box)

    def look_closer(data):
        # TensorFlow's operations can read the EXIF data too (images/tf_jpeg.py), but are so many that iterators on
        # replicas would take many seconds to start.
        number = tf.numpy_function(lambda data: choose_decoder(data, channels), [data], tf.int32, stateful=False)
        decoders = [as_one_op(decode) for decode in (decode_jpeg, decode_png, decode_other)]
        return tf.switch_case(number, [partial(decode, data) for decode in decoders])

    # Most JPEGs show in their first bytes what they are.
    decode_ordinary, look_closer = as_one_op(decode_jpeg), as_one_op(look_closer)
    image = tf.cond(tf_jpeg.is_ordinary(data), lambda: decode_ordinary(data), lambda: look_closer(data))
    return tf.ensure_shape(image, (None, None, channels))

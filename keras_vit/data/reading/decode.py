"""Decodes images to uint8 pixels: those that datasets store, and people's photographs.

Only the requested part of a JPEG is decoded.

A `box` is a function from an image's (height, width), int32 (2,), to the (top, left, height, width) of the requested
part, int32 (4,). It is called in the graph, once the size is known.
"""

from functools import partial

import numpy as np
import tensorflow as tf

from keras_vit.errors import ImageError
from keras_vit.images import pillow, tf_jpeg


def whole_image(shape):
    """The `box` of the whole image."""
    return tf.concat([[0, 0], shape], 0)


def crop(image, box):
    """The part of an image (h, w, c) that `box` chooses."""
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))


def decode_and_crop_jpeg(data, box, channels):
    """`crop` of an encoded JPEG. Blocks outside are not transformed, which saves most of the work."""
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def as_one_op(function):
    """Makes `function` a single op of the calling graph: a branch that is not taken costs time for each of its ops."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def decode_part(data, box, channels, gain=1):
    """Decodes the part of a JPEG, PNG, BMP or GIF (first frame), a string (), in `box`: uint8 (h, w, channels).

    `gain` multiplies the pixels (dSprites are stored as 0 and 1).
    """
    decode = as_one_op(lambda data: crop(tf.io.decode_image(data, channels, expand_animations=False), box))
    is_jpeg = tf.io.is_jpeg(data)
    image = tf.cond(is_jpeg, lambda: decode_and_crop_jpeg(data, box, channels), lambda: decode(data))
    image = tf.ensure_shape(image, (None, None, channels))
    return image if gain == 1 else image * tf.constant(gain, tf.uint8)


def as_bytes(data):
    """The bytes of an argument of numpy_function: it is bytes in a graph, and an array () of bytes eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data


def choose_decoder(data, channels):
    """The number, numpy int32, of a decoder in `read_photo` that reads the file as Pillow does; the last is Pillow."""
    data = as_bytes(data)
    if pillow.is_plain_png(data, channels):
        return np.int32(1)
    if not data.startswith(pillow.SOI):
        return np.int32(2)
    try:
        with pillow.open_image(data) as image:
            is_upright = image.mode in ("RGB", "L") and pillow.read_orientation(image) == 1
            return np.int32(0 if is_upright else 2)
    except ImageError:  # Pillow raises it again when it decodes, and there it is reported.
        return np.int32(2)


def read_photo(data, box, channels):
    """Reads the part of a photograph that `box` chooses, uint8 (h, w, channels), as `pillow.to_array` reads the whole.

    TensorFlow decodes upright JPEGs and plain PNGs. Pillow decodes rotated ones and all other kinds, because TensorFlow
    reads some of these wrongly (BMP with a palette, transparent GIF) and others not at all (animated WebP, TIFF, JPEG
    of CMYK). Pillow also gets images that may be too large, since its error says why one is refused.
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
        # TensorFlow can read the EXIF data, too (images/tf_jpeg.py), but by so many operations that iterators on
        # replicas would take many seconds to start.
        number = tf.numpy_function(lambda data: choose_decoder(data, channels), [data], tf.int32, stateful=False)
        decoders = [as_one_op(decode) for decode in (decode_jpeg, decode_png, decode_other)]
        return tf.switch_case(number, [partial(decode, data) for decode in decoders])

    # The first bytes suffice for most JPEGs.
    decode_ordinary, look_closer = as_one_op(decode_jpeg), as_one_op(look_closer)
    image = tf.cond(tf_jpeg.is_ordinary(data), lambda: decode_ordinary(data), lambda: look_closer(data))
    return tf.ensure_shape(image, (None, None, channels))

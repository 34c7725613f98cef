"""Photographs as people keep them: of every kind that Pillow may open, and upright however the camera was turned."""

import numpy as np
import tensorflow as tf

from keras_vit.data.reading.decode import as_one_op, crop, decode_and_crop_jpeg
from keras_vit.errors import ImageError
from keras_vit.images import pillow, tf_jpeg, tf_png


def as_bytes(data):
    """The bytes that numpy_function hands over: bytes in a graph, an array () of them eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data


def decode_with_pillow(data, channels):
    """The image in a file's contents, uint8 (h, w, channels), upright."""
    with pillow.open_image(as_bytes(data)) as image:
        return pillow.to_array(image, channels)


def is_upright_by_pillow(data):
    """Whether a file's contents are an upright JPEG of RGB or grey, a numpy bool."""
    if not as_bytes(data).startswith(pillow.SOI):
        return np.False_
    try:
        with pillow.open_image(as_bytes(data)) as image:
            return np.bool_(image.mode in ("RGB", "L") and pillow.read_orientation(image) == 1)
    except ImageError:  # Raised again, where it is reported, when Pillow decodes the image.
        return np.False_


def choose(holds, then, otherwise, data):
    """then(data) or otherwise(data)."""
    then, otherwise = as_one_op(then), as_one_op(otherwise)
    return tf.cond(holds, lambda: then(data), lambda: otherwise(data))


def read_photo(data, box, channels):
    """The part of a photograph that `box` chooses, uint8 (h, w, channels): of the image that `pillow.to_array` returns.

    TensorFlow decodes upright JPEGs and plain PNGs. Pillow decodes those that are turned, and the other kinds, of which
    TensorFlow reads some wrongly (BMP with a palette, transparent GIF) or not at all (animated WebP, TIFF, JPEG of
    CMYK). It also gets what may be too large to decode, since it says why it is refused.

    Args:
        data: contents of the file, a string ().
        box, channels: as `decode.decode_part`.
    """

    def decode_jpeg(data):
        return decode_and_crop_jpeg(data, box, channels)

    def decode_png(data):
        return crop(tf.io.decode_png(data, channels), box)

    def decode_other(data):
        image = tf.numpy_function(lambda data: decode_with_pillow(data, channels), [data], tf.uint8, stateful=False)
        return crop(image, box)

    def ask_pillow(data):
        # TensorFlow's operations can read the EXIF data too (images/tf_orientation.py), but are so many that iterators
        # on replicas would take many seconds to start.
        is_jpeg = tf.numpy_function(is_upright_by_pillow, [data], tf.bool, stateful=False)
        return choose(is_jpeg, decode_jpeg, decode_other, data)

    def ask_png(data):
        return choose(tf_png.is_plain(data, channels), decode_png, ask_pillow, data)

    # Most files show in their first bytes what they are.
    image = choose(tf_jpeg.is_ordinary(data), decode_jpeg, ask_png, data)
    return tf.ensure_shape(image, (None, None, channels))

"""Photographs as people keep them: of every kind that Pillow may open, and upright however the camera was turned."""

import numpy as np
import tensorflow as tf

from keras_vit.data.reading.decode import apart, cut, fused
from keras_vit.errors import ImageError
from keras_vit.images import pillow, tf_jpeg


def read_photo(data, box, channels):
    """The part of a photograph that `box` chooses, uint8 (h, w, channels): of the picture that `pillow.to_array` gives.

    TensorFlow decodes upright JPEGs, Pillow what is turned and the other kinds, of which TensorFlow reads some wrongly
    (BMP with a palette, transparent GIF) or not at all (animated WebP, TIFF, JPEG of CMYK). Pillow also gets what may
    be too much to decode, since it says why it is refused.

    Args:
        data: contents of the file, a string ().
        box, channels: as `decode.read_part`.
    """

    def by_pillow(data):
        return cut(tf.numpy_function(lambda data: pillows(data, channels), [data], tf.uint8, stateful=False), box)

    others = apart(by_pillow)
    image = tf.cond(upright(data), lambda: fused(data, box, channels), lambda: others(data))
    return tf.ensure_shape(image, (None, None, channels))


def upright(data):
    """Whether a picture is a JPEG of RGB or grey, is not turned, and within the limits of `images`."""
    # The graph's own look at EXIF data would make iterators on replicas take many seconds to start.
    others = apart(lambda data: tf.numpy_function(is_upright, [data], tf.bool, stateful=False))
    return tf.cond(tf_jpeg.is_ordinary(data), lambda: True, lambda: others(data))


def is_upright(data):
    """`upright` of a file's contents, as Pillow says."""
    if not contents(data).startswith(pillow.SOI):
        return np.False_
    try:
        with pillow.open_image(contents(data)) as picture:
            return np.bool_(picture.mode in ("RGB", "L") and pillow.read_orientation(picture) == 1)
    except ImageError:  # which Pillow gives again when it decodes
        return np.False_


def pillows(data, channels):
    """The picture in a file's contents as Pillow decodes it, uint8 (h, w, channels), upright."""
    with pillow.open_image(contents(data)) as picture:
        return pillow.to_array(picture, channels)


def contents(data):
    """The bytes of what numpy_function gives: bytes in a graph, an array () of them eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data

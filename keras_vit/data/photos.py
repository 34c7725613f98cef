"""Photographs as people keep them: of every kind that Pillow may open, and upright however the camera was turned."""

import numpy as np
import tensorflow as tf

from keras_vit import exif, images, jpeg
from keras_vit.data.decode import apart, cut, fused


def read_photo(data, box, channels):
    """The part of a photograph that `box` chooses, uint8 (h, w, channels): of the picture that `images.pixels` gives.

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
    others = apart(lambda data: tf.cond(tf.io.is_jpeg(data), lambda: is_upright(data), lambda: False))
    return tf.cond(jpeg.is_ordinary(data), lambda: True, lambda: others(data))


def is_upright(data):
    """`upright` of a JPEG that is not ordinary."""
    height, width, channels = tf.unstack(tf.cast(tf.io.extract_jpeg_shape(data), tf.int64))
    pixels = height * width
    is_decodable = tf.not_equal(channels, 4) & (pixels <= images.MOST_PIXELS) & jpeg.has_few_scans(data, pixels)
    orientation = apart(exif.orientation)
    is_turned = tf.cond(jpeg.may_have_notes(data), lambda: orientation(data) > 1, lambda: False)
    return tf.logical_and(is_decodable, tf.logical_not(is_turned))


def pillows(data, channels):
    """The picture in a file's contents as Pillow decodes it, uint8 (h, w, channels), upright."""
    with images.opened(contents(data)) as picture:
        return images.pixels(picture, channels)


def contents(data):
    """The bytes of what numpy_function gives: bytes in a graph, an array () of them eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data

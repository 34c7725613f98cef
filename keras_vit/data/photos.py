"""Photographs as people keep them: of every kind that Pillow reads, and upright however the camera was turned."""

import io

import numpy as np
import tensorflow as tf

from keras_vit import images
from keras_vit.data import exif
from keras_vit.data.decode import apart, cut, fused

# In a JPEG's first 8 kB: EXIF data elsewhere than cameras put them, XMP (http://ns.adobe.com/...), CMYK of Adobe's.
NOTES = r"\C*(Exif|adobe|Adobe)\C*"
SOI, DQT = 0xFFD8, 0xFFDB  # JPEG's markers of the beginning and of a quantization table


def read_photo(data, box, channels):
    """The part of a photograph that `box` chooses, uint8 (h, w, channels): of the picture that `images.pixels` gives.

    TensorFlow decodes JPEGs that are upright, Pillow what is turned and the other kinds, of which TensorFlow reads some
    wrongly (BMP with a palette, transparent GIF) or not at all (animated WebP, TIFF, JPEG of CMYK).

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
    """Whether a picture is a JPEG of RGB or grey that says it is upright, where cameras say it, or says nothing."""
    others = apart(lambda data: tf.io.is_jpeg(data) & says_upright(data))
    return tf.cond(plain(data), lambda: True, lambda: others(data))


def plain(data):
    """Whether a JPEG's tables follow right after JFIF's 18 bytes, so that no EXIF data can say that it is turned."""
    head = tf.io.decode_raw(tf.strings.substr(data, 0, 22), tf.uint16, little_endian=False, fixed_length=22)
    return tf.reduce_all(tf.equal(tf.gather(head, [0, 10]), tf.constant([SOI, DQT], tf.uint16)))


def says_upright(data):
    notes = tf.strings.regex_full_match(tf.strings.substr(data, 0, 8192), NOTES)
    return tf.cond(exif.present(data), lambda: tf.equal(exif.orientation(data), 1), lambda: ~notes)


def pillows(data, channels):
    """The picture in a file's contents as Pillow decodes it, uint8 (h, w, channels), upright."""
    with images.opened(io.BytesIO(contents(data))) as picture:
        return images.pixels(picture, channels)


def contents(data):
    """The bytes of what numpy_function gives: bytes in a graph, an array () of them eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data

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

    def jpeg():
        return upright(data, box, channels) if orient else fused(data, box, channels)

    def other():
        return cut(tf.io.decode_image(data, channels, expand_animations=False), box)

    return tf.ensure_shape(tf.cond(tf.io.is_jpeg(data), jpeg, other), (None, None, channels))


def upright(data, box, channels):
    turn = exif.orientation(data)

    def turned():
        return cut(exif.turned(tf.io.decode_jpeg(data, channels), turn), box)

    return tf.cond(tf.equal(turn, 1), lambda: fused(data, box, channels), turned)


def fused(data, box, channels):
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def cut(image, box):
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))

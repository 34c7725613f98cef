"""JPEGs upright: the orientation that a camera wrote into the file, read and followed by TensorFlow's operations."""

import tensorflow as tf

BEGINNING = 1024  # bytes of EXIF data in which the entry is looked for
ORIENTATION = 0x0112  # EXIF 2.3, section 4.6.4


def upright(image, encoded):
    """The picture (h, w, c) decoded from the JPEG `encoded`, a string (), turned as its EXIF data say."""
    turns = (
        lambda: image,
        lambda: image[:, ::-1],
        lambda: image[::-1, ::-1],
        lambda: image[::-1],
        lambda: tf.transpose(image, (1, 0, 2)),
        lambda: tf.transpose(image[::-1], (1, 0, 2)),
        lambda: tf.transpose(image[::-1, ::-1], (1, 0, 2)),
        lambda: tf.transpose(image[:, ::-1], (1, 0, 2)),
    )
    return tf.switch_case(orientation(encoded) - 1, turns)


def orientation(encoded):
    """1 to 8; 1, upright, where a JPEG says nothing or nonsense."""
    # The segment comes first of all, or after the 18 bytes of JFIF's.
    places = [tf.equal(tf.strings.substr(encoded, start, 6), b"Exif\0\0") for start in (6, 24)]
    tiff = tf.where(places[0], 12, 30)
    # What is missing up to the fixed length is read as zeros.
    data = tf.io.decode_raw(tf.strings.substr(encoded, tiff, BEGINNING), tf.uint8, fixed_length=BEGINNING)
    return tf.where(places[0] | places[1], orientation_entry(tf.cast(data, tf.int32)), 1)


def orientation_entry(tiff):
    """The orientation in a TIFF header's first directory of 12-byte entries; tiff: bytes as int32."""
    big = tf.equal(tiff[0], ord("M"))

    def short(high, low):
        return tf.where(big, high * 256 + low, low * 256 + high)

    offset = tf.where(big, tiff[6] * 256 + tiff[7], tiff[5] * 256 + tiff[4])
    offset = tf.minimum(offset, tf.size(tiff) - 2)
    room = (tf.size(tiff) - offset - 2) // 12
    count = tf.minimum(short(tiff[offset], tiff[offset + 1]), room)
    entries = tf.reshape(tiff[offset + 2 : offset + 2 + 12 * count], (-1, 12))
    values = tf.where(short(entries[:, 0], entries[:, 1]) == ORIENTATION, short(entries[:, 8], entries[:, 9]), 0)
    value = tf.reduce_max(tf.concat([values, [1]], 0))
    return tf.where(value <= 8, value, 1)

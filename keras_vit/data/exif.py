"""The orientation that a camera wrote into a JPEG, read in the graph."""

import tensorflow as tf

BEGINNING = 1024  # bytes of EXIF data in which the entry is looked for
ORIENTATION = 0x0112  # EXIF 2.3, section 4.6.4


def present(data):
    """Whether a JPEG, a string (), has EXIF data: first of all, or after the 18 bytes of a JFIF segment."""
    return tf.strings.regex_full_match(tf.strings.substr(data, 0, 30), r"\C{6}(\C{18})?Exif\x00\x00\C*")


def orientation(data):
    """What a JPEG in which EXIF data are `present` says, 1 (upright) to 8; 1 for nonsense. data: a string ()."""
    start = tf.where(tf.equal(tf.strings.substr(data, 6, 4), b"Exif"), 12, 30)
    # What is missing up to the fixed length is read as zeros.
    head = tf.io.decode_raw(tf.strings.substr(data, start, BEGINNING), tf.uint8, fixed_length=BEGINNING)
    return orientation_entry(tf.cast(head, tf.int32))


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

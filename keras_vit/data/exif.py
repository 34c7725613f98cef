"""The orientation that a camera wrote into a JPEG, read in the graph."""

import tensorflow as tf

HEAD = 1024
ORIENTATION = 0x0112


def present(data):
    """Whether a JPEG, a string (), has EXIF data: first of all, or after the 18 bytes of a JFIF segment."""
    return tf.strings.regex_full_match(tf.strings.substr(data, 0, 30), r"\C{6}(\C{18})?Exif\x00\x00\C*")


def orientation(data):
    """1 to 8 (EXIF 2.3, section 4.6.4); 1, upright, where a JPEG says nothing or nonsense. data: a string ()."""

    def entry():
        tiff = tf.where(tf.equal(tf.strings.substr(data, 6, 4), b"Exif"), 12, 30)
        head = tf.io.decode_raw(tf.strings.substr(data, tiff, HEAD), tf.uint8, fixed_length=HEAD)
        return orientation_entry(tf.cast(head, tf.int32))

    return tf.cond(present(data), entry, lambda: 1)


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


def turned(image, orientation):
    """The picture (h, w, c), upright."""
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
    return tf.switch_case(orientation - 1, turns)

"""The orientation that a camera wrote into a JPEG (EXIF 2.3, section 4.6.4), read inside a TensorFlow graph.

Exported models turn images upright by it. It reads what Pillow does, in Pillow's order and with Pillow's tolerance, so
that a model sees the same image when it is trained and when it is served.
"""

import tensorflow as tf

from keras_vit.images import tf_jpeg

ORIENTATION = 0x0112
UNSTATED = -1
HEADERS = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0")  # the last two are wrong, but written
ENTRY, INLINE = 12, 4  # bytes of a directory's entry, and of the longest value that is in it
BYTES_EACH = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 0)  # of a value by its type (TIFF 6.0, section 2)
SHORT, LONG = (3, 8), (4, 9, 13)  # types of integers
XMP_ORIENTATION = r'\C*?tiff:Orientation(?:="|>)([0-9])\C*'


def byte_length(text):
    return tf.cast(tf.strings.length(text), tf.int64)


def take_bytes(text, start, size):
    """`size` bytes of a string () from byte `start`, as many as there are."""
    start = tf.minimum(tf.cast(start, tf.int64), byte_length(text))
    return tf.strings.substr(text, start, tf.cast(size, tf.int64))


def decode_numbers(text, dtype, is_big, size=None):
    """Unsigned numbers of the bytes of `dtype`, int64 (n,), in a string (), or in its first `size` bytes."""
    big, little = (tf.io.decode_raw(text, dtype, little_endian, size) for little_endian in (False, True))
    return tf.cast(tf.where(is_big, big, little), tf.int64) % 2 ** (8 * dtype.size)


def decode_number(text, dtype, is_big):
    return decode_numbers(text, dtype, is_big, dtype.size)[0]


def first_integer(value, kind, is_big):
    """The first number of a value, a string (), of a type of integers; 0 of another type, UNSTATED of none."""
    short, long = decode_number(value, tf.uint16, is_big), decode_number(value, tf.int32, is_big)
    is_short, is_long = (tf.reduce_any(tf.equal(kind, kinds)) for kinds in (SHORT, LONG))
    return tf.where(is_short, short, tf.where(is_long, long, tf.where(kind > 0, kind * 0, UNSTATED)))


def has_value(size, place, length):
    """Which entries' values are in the file: Pillow skips values that alone exceed it, and ends at one outside."""
    is_outside = size > INLINE
    is_skipped = is_outside & (tf.cumsum(tf.where(is_outside, size, 0)) > length)
    ends = is_outside & ~is_skipped & (place + size > length)
    return ~is_skipped & tf.equal(tf.cumsum(tf.cast(ends, tf.int64)), 0)


def directory_orientation(tiff, start, is_big):
    """The orientation in the directory at byte `start` of a TIFF file, as `exif_orientation`."""
    count = decode_number(take_bytes(tiff, start, 2), tf.uint16, is_big)
    count = tf.minimum(count, tf.maximum(byte_length(tiff) - start - 2, 0) // ENTRY)
    entries = take_bytes(tiff, start + 2, ENTRY * count)
    tag, kind, *_ = tf.unstack(tf.reshape(decode_numbers(entries, tf.uint16, is_big), (-1, ENTRY // 2)), axis=1)
    _, count, place = tf.unstack(tf.reshape(decode_numbers(entries, tf.int32, is_big), (-1, ENTRY // 4)), axis=1)
    size = count * tf.gather(tf.constant(BYTES_EACH, tf.int64), tf.minimum(kind, len(BYTES_EACH) - 1))
    states = tf.equal(tag, ORIENTATION) & (size > 0) & has_value(size, place, byte_length(tiff))
    first = tf.argmax(tf.pad(states, [[0, 1]], constant_values=True))  # the padding, an entry of zeros, if none does
    kind, size, place = (tf.pad(column, [[0, 1]])[first] for column in (kind, size, place))
    value = tf.where(size > INLINE, take_bytes(tiff, place, INLINE), take_bytes(entries, ENTRY * first + 8, INLINE))
    return first_integer(value, kind, is_big)


def exif_orientation(tiff):
    """The orientation in the first directory of a TIFF file, a string (): int64 (), UNSTATED where it has none."""
    repeated = tf.equal(tf.strings.substr(tiff, 0, len(tf_jpeg.EXIF)), tf_jpeg.EXIF)
    tiff = tf.strings.substr(tiff, tf.where(repeated, len(tf_jpeg.EXIF), 0), 2**16)
    is_big = tf.equal(tf.strings.substr(tiff, 0, 1), b"M")
    found = directory_orientation(tiff, decode_number(take_bytes(tiff, 4, 4), tf.int32, is_big), is_big)
    is_tiff = tf.reduce_any(tf.equal(tf.strings.substr(tiff, 0, 4), HEADERS)) & (byte_length(tiff) >= 8)
    return tf.where(is_tiff | tf.equal(tiff, b""), found, 0)


def xmp_orientation(text):
    """The orientation in XMP data, a string (): int64 (), UNSTATED where they have none."""
    digit = tf.strings.regex_replace(text, XMP_ORIENTATION, r"\1", replace_global=False)
    value = tf.cast(tf.io.decode_raw(digit, tf.uint8, fixed_length=1)[0], tf.int64) - ord("0")
    return tf.where(tf.strings.length(digit) < tf.strings.length(text), value, UNSTATED)


def read_orientation(data):
    """1 (upright) to 8, int64 (), as Pillow understands a JPEG, a string (); 1 where it says nothing or nonsense."""
    exif, xmp = tf_jpeg.find_metadata(data)
    by_exif = exif_orientation(tf_jpeg.read_content(data, exif, tf_jpeg.EXIF))
    by_xmp = xmp_orientation(tf_jpeg.read_content(data, xmp, tf_jpeg.XMP))
    found = tf.where(tf.equal(by_exif, UNSTATED), by_xmp, by_exif)
    return tf.where((found >= 1) & (found <= 8), found, 1)

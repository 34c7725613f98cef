"""Reads the segments of a JPEG (ITU-T T.81, Annex B) before its pixels, inside a TensorFlow graph.

Pipelines and exported models decide by them whether to decode a file; exported models also read the orientation. It is
read in Pillow's order and with Pillow's tolerance, so that a model sees the same image in training and in serving.
"""

import tensorflow as tf

from keras_vit.images.pillow import MOST_PIXELS, MOST_SCANNED, ORIENTATION

MOST_SEGMENTS = 1000  # read at most so many
APP1, APP15, SOS = 0xFFE1, 0xFFEF, 0xFFDA
EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
HEAD = 4  # bytes before a segment's content: marker and length
SHORTEST_SCAN = 10  # bytes

# The orientation, in EXIF 2.3 (section 4.6.4) or XMP
UNSTATED = -1
HEADERS = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0")  # the last two are invalid, but occur
ENTRY, INLINE = 12, 4  # bytes of a directory's entry, and of the longest value inside it
BYTES_EACH = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 0)  # size of a value by its type (TIFF 6.0, section 2)
SHORT, LONG = (3, 8), (4, 9, 13)  # types of integers
XMP_ORIENTATION = r'\C*?tiff:Orientation(?:="|>)([0-9])\C*'

FRONTS = (2**10, 2**16)  # bytes that often, and nearly always, have all that comes before the pixels
# An orientation other than 1, or several, in a TIFF directory of either byte order, or in XMP
TURNED_LITTLE = r"\x12\x01[\x01-\x0d]\x00(?:\x01\x00{3}[\x02-\x08]|[\x02-\x7f])"
TURNED_BIG = r"\x01\x12\x00[\x01-\x0d](?:\x00{3}\x01\x00{1,3}[\x02-\x08]|\C{3}[\x02-\x7f])"
TURNED_XMP = r'tiff:Orientation(?:="|>)[2-8]'
TURNED = rf"\C*(?:{TURNED_LITTLE}|{TURNED_BIG}|{TURNED_XMP})\C*"


def byte_length(text):
    return tf.cast(tf.strings.length(text), tf.int64)


def count_markers(data, first=SOS, last=SOS):
    """The number of markers `first` to `last`, by default of scans, in the bytes of a JPEG, a string (): int64 ().

    Tables and metadata may look like more, pixels do not.
    """
    values = tf.io.decode_raw(data, tf.uint8)
    found = tf.equal(values[:-1], first // 256) & (values[1:] >= first % 256) & (values[1:] <= last % 256)
    return tf.cast(tf.math.count_nonzero(found, dtype=tf.int32), tf.int64)


def has_few_scans(data, pixels):
    """Whether the scans of a JPEG, a string () of `pixels`, int64 (), have at most MOST_SCANNED pixels in all."""
    most = byte_length(data) // SHORTEST_SCAN
    counted = tf.where(most * pixels <= MOST_SCANNED, b"", data)  # counting takes time for large files
    return count_markers(counted) * pixels <= MOST_SCANNED


def is_ordinary(data):
    """Whether a JPEG, a string (), is upright, of at most three channels, and quick to decode.

    A JPEG with long metadata, or with bytes near the pixels that look like another orientation, counts as none.
    """
    shape = tf.cast(tf.io.extract_jpeg_shape(data), tf.int64)
    pixels = shape[0] * shape[1]
    is_quick = (pixels <= MOST_PIXELS) & has_few_scans(data, pixels)
    near, far = (tf.strings.substr(data, 0, size) for size in FRONTS)
    has_metadata = count_markers(near, APP1, APP15) > 0  # which may look like scans
    front = tf.where(has_metadata | tf.equal(count_markers(near), 0), far, near)
    is_upright = (count_markers(front) > 0) & ~tf.strings.regex_full_match(front, TURNED)
    return is_quick & (shape[2] <= 3) & is_upright


def read_marker_and_length(segment):
    """Marker and length of a segment, int32 (2,)."""
    return tf.cast(tf.io.decode_raw(segment, tf.uint16, fixed_length=HEAD, little_endian=False), tf.int32)


def bytes_to_next(marker, size):
    """Bytes from a marker to the next: 1 for a filler, 2 for a marker without a segment."""
    is_filler = (marker <= 0xFF00) | tf.equal(marker, 0xFFFF)
    is_alone = tf.equal(marker, 0xFF01) | ((marker >= 0xFFD0) & (marker <= 0xFFD9))
    return tf.where(is_filler, 1, tf.where(is_alone, 2, 2 + tf.maximum(size, 2)))


def find_metadata(data):
    """The places of the first EXIF and the last XMP segment of a JPEG, a string (): int32 () each, 0 for none."""
    length = tf.strings.length(data)

    def advance(at, marker, exif, xmp):
        head = tf.strings.substr(data, at, HEAD + len(XMP))
        marker, size = tf.unstack(read_marker_and_length(head))
        name = tf.where(tf.equal(marker, APP1), tf.strings.substr(head, HEAD, len(XMP)), b"")
        is_exif = tf.equal(tf.strings.substr(name, 0, len(EXIF)), EXIF) & tf.equal(exif, 0)
        exif, xmp = tf.where(is_exif, at, exif), tf.where(tf.equal(name, XMP), at, xmp)
        return at + bytes_to_next(marker, size), marker, exif, xmp

    def is_before_pixels(at, marker, *_):
        return (marker != SOS) & (at + HEAD <= length)

    begin = (tf.constant(2), tf.constant(0), tf.constant(0), tf.constant(0))
    return tf.while_loop(is_before_pixels, advance, begin, maximum_iterations=MOST_SEGMENTS)[2:]


def read_content(data, start, name):
    """The content after the name in the segment at byte `start`, a string (); empty for 0."""
    size = read_marker_and_length(tf.strings.substr(data, start, HEAD))[1] - 2 - len(name)
    after = tf.where(start > 0, start + HEAD + len(name), 0)
    return tf.strings.substr(data, after, tf.where(start > 0, tf.maximum(size, 0), 0))


def take_bytes(text, start, size):
    """At most `size` bytes of a string () from byte `start`."""
    start = tf.minimum(tf.cast(start, tf.int64), byte_length(text))
    return tf.strings.substr(text, start, tf.cast(size, tf.int64))


def decode_numbers(text, dtype, is_big, size=None):
    """Decodes a string (), or its first `size` bytes, as unsigned numbers of the size of `dtype`: int64 (n,)."""
    big, little = (tf.io.decode_raw(text, dtype, little_endian, size) for little_endian in (False, True))
    return tf.cast(tf.where(is_big, big, little), tf.int64) % 2 ** (8 * dtype.size)


def decode_number(text, dtype, is_big):
    return decode_numbers(text, dtype, is_big, dtype.size)[0]


def first_integer(value, kind, is_big):
    """The first number of a value, a string (), if its type is an integer; otherwise 0, or UNSTATED for no value."""
    short, long = decode_number(value, tf.uint16, is_big), decode_number(value, tf.int32, is_big)
    is_short, is_long = (tf.reduce_any(tf.equal(kind, kinds)) for kinds in (SHORT, LONG))
    return tf.where(is_short, short, tf.where(is_long, long, tf.where(kind > 0, kind * 0, UNSTATED)))


def has_value(size, place, length):
    """Whether entries' values are in the file: Pillow skips one larger than the file, and stops at one outside."""
    is_outside = size > INLINE
    is_skipped = is_outside & (tf.cumsum(tf.where(is_outside, size, 0)) > length)
    ends = is_outside & ~is_skipped & (place + size > length)
    return ~is_skipped & tf.equal(tf.cumsum(tf.cast(ends, tf.int64)), 0)


def directory_orientation(tiff, start, is_big):
    """The orientation in the directory at byte `start` of a TIFF file; see `exif_orientation`."""
    count = decode_number(take_bytes(tiff, start, 2), tf.uint16, is_big)
    count = tf.minimum(count, tf.maximum(byte_length(tiff) - start - 2, 0) // ENTRY)
    entries = take_bytes(tiff, start + 2, ENTRY * count)
    tag, kind, *_ = tf.unstack(tf.reshape(decode_numbers(entries, tf.uint16, is_big), (-1, ENTRY // 2)), axis=1)
    _, count, place = tf.unstack(tf.reshape(decode_numbers(entries, tf.int32, is_big), (-1, ENTRY // 4)), axis=1)
    size = count * tf.gather(tf.constant(BYTES_EACH, tf.int64), tf.minimum(kind, len(BYTES_EACH) - 1))
    states = tf.equal(tag, ORIENTATION) & (size > 0) & has_value(size, place, byte_length(tiff))
    first = tf.argmax(tf.pad(states, [[0, 1]], constant_values=True))  # if none does, the padding: an entry of zeros
    kind, size, place = (tf.pad(column, [[0, 1]])[first] for column in (kind, size, place))
    value = tf.where(size > INLINE, take_bytes(tiff, place, INLINE), take_bytes(entries, ENTRY * first + 8, INLINE))
    return first_integer(value, kind, is_big)


def exif_orientation(tiff):
    """The orientation in the first directory of a TIFF file, a string (): int64 (), UNSTATED if missing."""
    repeated = tf.equal(tf.strings.substr(tiff, 0, len(EXIF)), EXIF)
    tiff = tf.strings.substr(tiff, tf.where(repeated, len(EXIF), 0), 2**16)
    is_big = tf.equal(tf.strings.substr(tiff, 0, 1), b"M")
    found = directory_orientation(tiff, decode_number(take_bytes(tiff, 4, 4), tf.int32, is_big), is_big)
    is_tiff = tf.reduce_any(tf.equal(tf.strings.substr(tiff, 0, 4), HEADERS)) & (byte_length(tiff) >= 8)
    return tf.where(is_tiff | tf.equal(tiff, b""), found, 0)


def xmp_orientation(text):
    """The orientation in XMP data, a string (): int64 (), UNSTATED if missing."""
    digit = tf.strings.regex_replace(text, XMP_ORIENTATION, r"\1", replace_global=False)
    value = tf.cast(tf.io.decode_raw(digit, tf.uint8, fixed_length=1)[0], tf.int64) - ord("0")
    return tf.where(tf.strings.length(digit) < tf.strings.length(text), value, UNSTATED)


def read_orientation(data):
    """The orientation of a JPEG, a string (), as Pillow reads it: int64 (), 1 (upright) to 8; 1 if missing or bad."""
    exif, xmp = find_metadata(data)
    by_exif = exif_orientation(read_content(data, exif, EXIF))
    by_xmp = xmp_orientation(read_content(data, xmp, XMP))
    found = tf.where(tf.equal(by_exif, UNSTATED), by_xmp, by_exif)
    return tf.where((found >= 1) & (found <= 8), found, 1)

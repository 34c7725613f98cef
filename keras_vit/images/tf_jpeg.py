"""What a JPEG (ITU-T T.81, Annex B) says before its pixels, read inside a TensorFlow graph.

Pipelines and exported models look here whether to decode a file, and where its metadata are, without leaving the graph.
"""

import numpy as np
import tensorflow as tf

from keras_vit.images.pillow import MOST_SCANNED

MOST_SEGMENTS = 1000  # that are looked at
APP1, SOS = 0xFFE1, 0xFFDA
EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
HEAD = 4  # bytes of a segment before its content: marker and length
SHORTEST_SCAN = 10  # bytes

# (components, bytes of the segments with tables of quantization) as most encoders write them, after JFIF's segment.
LAYOUTS = ((3, (67, 67)), (3, (132,)), (1, (67,)))
# Lowest and highest byte: any; the upper of a side under 8192; of the marker of a sequential or progressive frame.
ANY, SMALL, FRAME = (0, 0xFF), (0, 0x1F), (0xC0, 0xC2)


def segment_bounds(marker, size, *content):
    """The lowest and highest value of each byte of a segment; any value for the bytes that are not given."""
    given = (0xFF, marker, size >> 8, size & 0xFF, *content)
    return [byte if isinstance(byte, tuple) else (byte, byte) for byte in given] + [ANY] * (size + 2 - len(given))


def header_bounds(components, quantization):
    """The same of a JPEG up to its frame's height and width, two bytes each, and number of components."""
    tables = [byte for size in quantization for byte in segment_bounds(0xDB, size)]
    frame = segment_bounds(FRAME, 8 + 3 * components, 8, SMALL, ANY, SMALL, ANY, components)
    return [(0xFF, 0xFF), (0xD8, 0xD8), *segment_bounds(0xE0, 16), *tables, *frame[:10]]


def most_scans(data):
    """The most scans that a file, a string (), has room for: int64 ()."""
    return tf.cast(tf.strings.length(data), tf.int64) // SHORTEST_SCAN


def is_ordinary(data):
    """Whether a file, a string (), is at a glance a JPEG without metadata before its tables, and quick to decode."""
    rows = [header_bounds(*layout) for layout in LAYOUTS]
    places = [[*range(len(row) - 5, len(row) - 1)] for row in rows]  # of height and width
    size = max(map(len, rows))
    lowest, highest = np.moveaxis(np.array([row + [ANY] * (size - len(row)) for row in rows], "uint8"), -1, 0)
    head = tf.io.decode_raw(tf.strings.substr(data, 0, size), tf.uint8, fixed_length=size)
    fits = tf.reduce_all((head >= lowest) & (head <= highest), -1)  # (layouts,)
    sides = tf.reduce_sum(tf.cast(tf.reshape(tf.gather(head, places), (-1, 2, 2)), tf.int64) * [256, 1], -1)
    pixels = tf.reduce_max(tf.where(fits, tf.reduce_prod(sides, -1), 0))
    return (pixels > 0) & (most_scans(data) * pixels <= MOST_SCANNED)


def read_marker_and_length(segment):
    """Marker and length of a segment, int32 (2,)."""
    return tf.cast(tf.io.decode_raw(segment, tf.uint16, fixed_length=HEAD, little_endian=False), tf.int32)


def bytes_to_next(marker, size):
    """Bytes from a marker to the next: 1 for a filler, 2 for a marker without a segment."""
    is_filler = (marker <= 0xFF00) | tf.equal(marker, 0xFFFF)
    is_alone = tf.equal(marker, 0xFF01) | ((marker >= 0xFFD0) & (marker <= 0xFFD9))
    return tf.where(is_filler, 1, tf.where(is_alone, 2, 2 + tf.maximum(size, 2)))


def find_metadata(data):
    """Where a JPEG, a string (), has its first EXIF and its last XMP segment: int32 () each, 0 for none."""
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
    """What follows the name in the segment that begins at byte `start`, a string (); empty for 0."""
    size = read_marker_and_length(tf.strings.substr(data, start, HEAD))[1] - 2 - len(name)
    after = tf.where(start > 0, start + HEAD + len(name), 0)
    return tf.strings.substr(data, after, tf.where(start > 0, tf.maximum(size, 0), 0))


def count_marker(data, marker):
    """How often a file, a string (), has a marker's bytes: never in coded pixels, maybe in metadata and at the end."""
    values = tf.io.decode_raw(data, tf.uint8)
    found = tf.equal(values[:-1], marker // 256) & tf.equal(values[1:], marker % 256)
    return tf.cast(tf.math.count_nonzero(found, dtype=tf.int32), tf.int64)


def has_few_scans(data, pixels):
    """Whether a JPEG, a string (), of so many pixels, int64 (), has at most MOST_SCANNED of them in all its scans."""
    counted = tf.where(most_scans(data) * pixels <= MOST_SCANNED, b"", data)  # counting takes time for large files
    return count_marker(counted, SOS) * pixels <= MOST_SCANNED

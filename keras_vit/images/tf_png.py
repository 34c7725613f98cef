"""What a PNG (ISO/IEC 15948) says beside its pixels, read inside a TensorFlow graph."""

import tensorflow as tf

SIGNATURE, HEADER = b"\x89PNG\r\n\x1a\n", b"\0\0\0\rIHDR"
# (lowest, highest) byte of a side under 8192, and of what follows the colour: the one compression and the one filter
# that there are; interlaced or not.
SIDE, REST = ((0, 0), (0, 0), (0, 0x1F), (0, 0xFF)), ((0, 0), (0, 0), (0, 1))
BITS, GREY, RGB = (8, 8), (0, 0), (2, 2)
SEARCHED = 4096  # bytes in which the pixels begin
# Chunks by which an image is not what its pixels say: transparency, an animation, and the ways to write that it is
# turned.
ASIDE = r"\C*(?:tRNS|acTL|eXIf|XML:com\.adobe\.xmp|Raw profile type)\C*"
PIXELS, END = b"IDAT", b"\0\0\0\0IEND"
FRAME = 12  # bytes of a chunk beside its content: length, type and checksum


def has_header(data, channels):
    """Whether a file, a string (), begins as a PNG with `channels` of 8 bits."""
    fixed = [(byte, byte) for byte in SIGNATURE + HEADER]
    bounds = (*fixed, *SIDE, *SIDE, BITS, GREY if channels == 1 else RGB, *REST)
    lowest, highest = (tf.constant(values, tf.uint8) for values in zip(*bounds, strict=True))
    size = len(bounds)
    head = tf.io.decode_raw(tf.strings.substr(data, 0, size), tf.uint8, fixed_length=size)
    return tf.reduce_all((head >= lowest) & (head <= highest))


def ends_with_pixels(data, at):
    """Whether from byte `at` a file has chunks of pixels alone, all but the last as long as the first, then its end."""
    values = tf.io.decode_raw(data, tf.uint8)
    end = tf.size(values) - FRAME  # where the last chunk, an empty one, begins

    def read_heads(starts):
        """Length, four bytes, and type, four bytes, of the chunks that begin there: int32 (..., 8)."""
        places = tf.minimum(starts[..., None] + tf.range(8), end + FRAME - 1)
        return tf.cast(tf.gather(values, places), tf.int32)

    def full_size(head):
        return FRAME + tf.reduce_sum(head[:4] * [2**24, 2**16, 2**8, 1])

    first = read_heads(at)
    size = tf.clip_by_value(full_size(first), FRAME, end)
    count = (end - at) // size
    last = at + count * size
    shorter = read_heads(last)
    rest = tf.where(last < end, full_size(shorter), 0)
    alike = tf.reduce_all(tf.equal(read_heads(at + size * tf.range(count)), first))
    are_pixels = tf.reduce_all(tf.equal(shorter[4:], [*PIXELS])) | tf.equal(last, end)
    return alike & are_pixels & tf.equal(last + rest, end) & tf.reduce_all(tf.equal(read_heads(end), [*END]))


def is_plain(data, channels):
    """Whether a file, a string (), is a PNG whose pixels are `channels` of 8 bits, upright and without transparency."""

    def look_further():
        start = tf.strings.substr(data, 0, SEARCHED)
        before = tf.strings.regex_replace(start, r"IDAT\C*", "", replace_global=False)
        found = tf.strings.length(before) < tf.strings.length(start)
        at = tf.strings.length(before) - 4
        return found & ~tf.strings.regex_full_match(before, ASIDE) & ends_with_pixels(data, at)

    return tf.cond(has_header(data, channels), look_further, lambda: False)

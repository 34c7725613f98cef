"""The orientation of a JPEG as TensorFlow's operations read it, against Pillow on files made by hand."""

import io
import itertools
import struct

import numpy as np
import pytest
import tensorflow as tf
from photographs import encode
from PIL import Image

from keras_vit.images import pillow
from keras_vit.images.pixels import read_any_image
from keras_vit.images.tf_jpeg import read_orientation

XMP = b"http://ns.adobe.com/xap/1.0/\0"
ORIENTATION, MAKER = 0x0112, 0x010F

read = tf.function(read_orientation, autograph=False, input_signature=[tf.TensorSpec((), tf.string)])


def segment(marker, content):
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def entry(tag, kind, count, value, endian="<"):
    packed = struct.pack(endian + "HH", value, 0) if kind in (3, 8) else struct.pack(endian + "I", value)
    return struct.pack(endian + "HHI", tag, kind, count) + packed


def note(*entries, endian="<", first=8, head=None):
    """An APP1 segment of EXIF data: a TIFF header, a directory at byte `first`, and some text after it."""
    head = head or {"<": b"II*\0", ">": b"MM\0*"}[endian]
    directory = struct.pack(endian + "H", len(entries)) + b"".join(entries) + bytes(4)
    return segment(
        0xE1, b"Exif\0\0" + head + struct.pack(endian + "I", first) + bytes(first - 8) + directory + b"x" * 60
    )


def turned(orientation, endian="<", kind=3, count=1):
    maker, turn = entry(MAKER, 2, 9, 60, endian), entry(ORIENTATION, kind, count, orientation, endian)
    return note(maker, turn, endian=endian)


def jpeg(*segments, jfif=True):
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (9, 99, 199)).save(file, "JPEG")
    plain = file.getvalue()
    return plain[:2] + (plain[2:20] if jfif else b"") + b"".join(segments) + plain[20:]


PROFILE = segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(500))
SAID_IN_XMP = segment(0xE1, XMP + b'<x tiff:Orientation="3"/>')
OTHER_XMP = segment(0xE1, XMP + b"<x/>")
SILENT = note(entry(MAKER, 3, 1, 6))
COMMENT = segment(0xFE, b"a comment \xff\xe1\0\x10Exif\0\0")
CASES = {
    "nothing": ((), 1),
    "EXIF": ((turned(6),), 6),
    "a profile before EXIF": ((PROFILE, turned(6)), 6),
    "a megabyte of profiles before EXIF": ((segment(0xE2, bytes(65_000)),) * 20 + (turned(6),), 6),
    "XMP before EXIF": ((SAID_IN_XMP, turned(6)), 6),
    "XMP alone": ((SAID_IN_XMP,), 3),
    "XMP as an element": ((segment(0xE1, XMP + b"\n<tiff:Orientation>8</tiff:Orientation>"),), 8),
    "XMP, EXIF says nothing": ((SILENT, SAID_IN_XMP), 3),
    "the last of XMP": ((SAID_IN_XMP, OTHER_XMP), 1),
    "two of EXIF": ((turned(8, ">"), turned(6)), 8),
    "a comment that looks like EXIF": ((COMMENT, turned(5)), 5),
    "fillers": ((b"\xff\xff\xff", turned(6)), 6),
    "bytes between segments": ((PROFILE, b"abc\xff\0", turned(6)), 6),
    "a repeated name": ((segment(0xE1, b"Exif\0\0" + turned(6)[4:]),), 6),
    "a directory far off": ((note(entry(ORIENTATION, 3, 1, 6), first=30_000),), 6),
    "a value outside of the note": ((note(entry(MAKER, 2, 9, 60_000), entry(ORIENTATION, 3, 1, 6)),), 1),
    "twice in a directory": ((note(entry(ORIENTATION, 3, 1, 3), entry(ORIENTATION, 3, 1, 6)),), 3),
    "no header": ((segment(0xE1, b"Exif\0\0abc"), SAID_IN_XMP), 1),
    "half a header": ((segment(0xE1, b"Exif\0\0II*\0"), SAID_IN_XMP), 1),
    "an empty note": ((segment(0xE1, b"Exif\0\0"), SAID_IN_XMP), 3),
}


def pillows(data):
    with Image.open(io.BytesIO(data)) as image:
        return pillow.read_orientation(image)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_segments_in_any_order():
    for name, (segments, expected) in CASES.items():
        for jfif in (True, False):
            data = jpeg(*segments, jfif=jfif)
            assert (pillows(data), int(read(tf.constant(data)))) == (expected, expected), name


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_types_and_counts():
    """0 and 9 mean nothing; of several values, the first is meant."""
    for endian, kind in itertools.product("<>", (1, 2, 3, 4, 5, 8, 9, 13, 99)):
        found = []
        for orientation, count in itertools.product(range(10), range(3)):
            data = jpeg(turned(orientation, endian, kind, count))
            found.append(int(read(tf.constant(data))))
            assert found[-1] == pillows(data), (endian, kind, orientation, count)
        assert (set(found) == set(range(1, 9))) == (kind in (3, 4, 8, 9, 13)), (endian, kind)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("endian", "<>")
def test_damaged_notes(endian):
    random = np.random.default_rng(0)
    whole = jpeg(turned(6, endian), SAID_IN_XMP)
    start, seen = whole.index(b"Exif") + 6, set()
    for _ in range(200):
        data = bytearray(whole)
        for place in random.integers(start, start + 36, 2):
            data[place] = random.choice([0, 1, 2, 3, 4, 8, 255, random.integers(256)])
        seen.add(pillows(bytes(data)))
        assert read(tf.constant(bytes(data))) == pillows(bytes(data)), bytes(data[start : start + 40])
    assert len(seen) > 2


def test_turned_beside_an_entry_that_pillow_cannot_write():
    """The width as a byte, as some programs write it."""
    plain = encode(np.random.default_rng(0).integers(0, 256, (16, 24, 3)).astype("uint8"))
    x = np.asarray(Image.open(io.BytesIO(plain)))
    upright = (x, x[:, ::-1], x[::-1, ::-1], x[::-1], x.transpose(1, 0, 2), np.rot90(x, -1))
    upright += (x[::-1, ::-1].transpose(1, 0, 2), np.rot90(x))
    for orientation, expected in enumerate(upright, 1):
        exif = note(entry(0x0100, 1, 1, 24), entry(ORIENTATION, 3, 1, orientation))
        np.testing.assert_array_equal(read_any_image(plain[:2] + exif + plain[2:]), expected, err_msg=str(orientation))

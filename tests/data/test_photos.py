"""Photographs of every kind that people keep, in training and in prediction, against Pillow."""

import io
import itertools
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from photographs import encode, flower
from photographs import png_chunk as chunk
from PIL import Image, ImageOps

from keras_vit import data
from keras_vit.data.reading import batches, sources
from keras_vit.errors import ImageError
from keras_vit.images.pillow import is_plain_png, read_image
from keras_vit.models import Preprocessing

SIDE = 64


@pytest.fixture(scope="module")
def photo():
    return np.ascontiguousarray(flower()[100 : 100 + SIDE, 200 : 200 + SIDE])


def turned(orientation, endian="<"):
    exif = Image.Exif()
    exif.endian = endian
    exif[0x010F], exif[0x0112], exif[0x0131] = "a camera", orientation, "software"
    return exif


def bmp(rows, bits, palette=b"", compression=0, top_down=False, masks=b""):
    """A BMP of Windows 3's header; rows as they stand in the file."""
    height = -SIDE if top_down else SIDE
    header = struct.pack("<IiiHHIIiiII", 40, SIDE, height, 1, bits, compression, len(rows), 0, 0, len(palette) // 4, 0)
    start = 14 + len(header + masks + palette)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + header + masks + palette + rows


def bmps(photo):
    """Kinds of BMP that Pillow does not write, by name."""
    indexed = Image.fromarray(photo).quantize(16)
    numbers = np.asarray(indexed)[::-1]
    colours = np.array(indexed.getpalette()[:48]).reshape(16, 3)
    palette = np.pad(colours[:, ::-1], ((0, 0), (0, 1))).astype("uint8").tobytes()
    runs = b"".join(b"".join(bytes([1, n]) for n in row) + b"\0\0" for row in numbers.tolist()) + b"\0\1"
    red, green, blue = np.moveaxis(photo[::-1].astype("<u2"), -1, 0)
    short = {
        "555": ((red >> 3) << 10 | (green >> 3) << 5 | blue >> 3),
        "565": ((red >> 3) << 11 | (green >> 2) << 5 | blue >> 3),
    }
    return {
        "bmp 4 bits": bmp((numbers[:, ::2] << 4 | numbers[:, 1::2]).tobytes(), 4, palette),
        "bmp 8 bits, runs": bmp(runs, 8, palette, compression=1),
        "bmp 8 bits, top down": bmp(numbers[::-1].tobytes(), 8, palette, top_down=True),
        "bmp 16 bits": bmp(short["555"].tobytes(), 16),
        "bmp 16 bits, masks": bmp(
            short["565"].tobytes(), 16, compression=3, masks=struct.pack("<III", 0xF800, 0x07E0, 0x001F)
        ),
        "bmp 24 bits, top down": bmp(photo[..., ::-1].tobytes(), 24, top_down=True),
        "bmp 32 bits": bmp(np.pad(photo[::-1, :, ::-1], ((0, 0), (0, 0), (0, 1))).tobytes(), 32),
    }


def png(rows, bits=8, colour=2, interlaced=0, before=b"", after=b"", cuts=()):
    """A PNG of these rows, the coded pixels in chunks that end at `cuts`; `before` and `after` are other chunks."""
    header = struct.pack(">IIBBBBB", SIDE, SIDE, bits, colour, 0, 0, interlaced)
    coded, bounds = zlib.compress(rows), (0, *cuts, None)
    pixels = b"".join(chunk(b"IDAT", coded[a:b]) for a, b in itertools.pairwise(bounds))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + pixels + after + chunk(b"IEND", b"")


def pngs(photo):
    """Kinds of PNG that Pillow does not write, by name."""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    parts = (photo[top::down, left::right] for top, left, down, right in passes)
    deep = np.pad(np.repeat(photo, 2, -1).reshape(SIDE, -1), ((0, 0), (1, 0)))
    rows = np.pad(photo.reshape(SIDE, -1), ((0, 0), (1, 0))).tobytes()
    exif, xmp = turned(6).tobytes()[6:], b'<x:x tiff:Orientation="8" />'
    profile = f"\nexif\n{len(exif) + 6}\n{(b'Exif' + bytes(2) + exif).hex()}\n".encode()
    return {
        "png interlaced": png(b"".join(b"\0" + row.tobytes() for part in parts for row in part), 8, 2, interlaced=1),
        "png 16 bits of colour": png(deep.tobytes(), 16),
        "png in equal chunks": png(rows, cuts=range(1000, len(zlib.compress(rows)), 1000)),
        "png in a chunk and a half": png(rows, cuts=(len(zlib.compress(rows)) * 2 // 3,)),
        "png in chunks of all sizes": png(rows, cuts=(7, 7, 500, 3000)),
        "png with a text": png(rows, before=chunk(b"tEXt", b"Title\0IDAT and tRNS"), after=chunk(b"tEXt", b"a\0b")),
        "png with a long text": png(rows, before=chunk(b"tEXt", b"Title\0" + 5000 * b"x")),
        "png with a transparent colour": png(rows, before=chunk(b"tRNS", struct.pack(">HHH", *photo[3, 4]))),
        "png turned, told first": png(rows, before=chunk(b"eXIf", exif)),
        "png turned, told last": png(rows, after=chunk(b"eXIf", exif)),
        "png turned, told after equal chunks": png(rows, after=chunk(b"eXIf", exif), cuts=(1000, 2000)),
        "png turned, told in XMP": png(rows, before=chunk(b"iTXt", b"XML:com.adobe.xmp" + bytes(5) + xmp)),
        "png turned, told in XMP, last": png(rows, after=chunk(b"iTXt", b"XML:com.adobe.xmp" + bytes(5) + xmp)),
        "png turned, told by a profile": png(rows, before=chunk(b"tEXt", b"Raw profile type exif\0" + profile)),
    }


def after_a_profile(jpeg):
    """JFIF's segment, a profile's, and then EXIF's, which Pillow writes the other way round."""
    content = jpeg[:20] + b"\xff\xe2\x02\x02ICC_PROFILE\0\1\1" + bytes(498) + jpeg[20:]
    assert content.index(b"JFIF") < content.index(b"ICC_PROFILE") < content.index(b"Exif")
    return content


def kinds(photo):
    """(contents, the mean difference that decoders of JPEG may have) by name."""
    image = Image.fromarray(photo)
    grey, indexed, clear = image.convert("L"), image.quantize(200), image.copy()
    clear.putalpha(Image.fromarray((np.arange(SIDE * SIDE).reshape(SIDE, SIDE) % 256).astype("uint8")))
    exact = {
        "png": encode(image, "PNG"),
        "png grey": encode(grey, "PNG"),
        "png 1 bit": encode(image.convert("1"), "PNG"),
        "png 16 bits of grey": encode(Image.fromarray(np.asarray(grey).astype("uint16") * 257), "PNG"),
        "png palette": encode(indexed, "PNG"),
        "png palette of 14": encode(image.quantize(14), "PNG", bits=4),
        "png palette, transparent": encode(indexed, "PNG", transparency=bytes(range(200))),
        "png transparent": encode(clear, "PNG"),
        "png grey, transparent": encode(clear.convert("LA"), "PNG"),
        "gif": encode(indexed, "GIF"),
        "gif transparent": encode(indexed, "GIF", transparency=3),
        "gif animated": encode(indexed, "GIF", save_all=True, append_images=[indexed.rotate(180)]),
        "webp": encode(image, "WEBP"),
        "webp transparent": encode(clear, "WEBP", lossless=True),
        "webp animated": encode(image, "WEBP", save_all=True, append_images=[image.rotate(180)]),
        "bmp": encode(image, "BMP"),
        "bmp palette": encode(indexed, "BMP"),
        "bmp grey": encode(grey, "BMP"),
        "bmp 1 bit": encode(image.convert("1"), "BMP"),
        "bmp transparent": encode(clear, "BMP"),
        "tiff": encode(image, "TIFF"),
        "jpeg cmyk": encode(image.convert("CMYK"), "JPEG"),
        **bmps(photo),
        **pngs(photo),
        **{f"png turned {turn}": encode(image, "PNG", exif=turned(turn)) for turn in range(1, 9)},
        **{f"webp turned {turn}": encode(image, "WEBP", exif=turned(turn)) for turn in (3, 6)},
        "tiff turned": encode(image, "TIFF", exif=turned(8)),
    }
    lossy = {
        "jpeg": encode(image, "JPEG", quality=95),
        "jpeg progressive": encode(image, "JPEG", quality=95, progressive=True),
        "jpeg grey": encode(grey, "JPEG", quality=95),
        "jpeg of red, green and blue": encode(image, "JPEG", quality=95, keep_rgb=True),
        "jpeg turned, after a profile": after_a_profile(encode(image, "JPEG", quality=95, exif=turned(6))),
        "jpeg turned, told in XMP": encode(image, "JPEG", quality=95, xmp=b'<x:x tiff:Orientation="8" />'),
        **{
            f"jpeg turned {turn} {endian}": encode(image, "JPEG", quality=95, exif=turned(turn, endian))
            for turn in range(1, 9)
            for endian in "<>"
        },
    }
    return {name: (content, 0) for name, content in exact.items()} | {
        # TensorFlow's default inverse transform is the fast one.
        name: (content, 1.6)
        for name, content in lossy.items()
    }


def pillows(content, channels):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    if image.mode == "I;16":
        return np.repeat(np.asarray(image)[..., None] >> 8, channels, -1)
    if image.has_transparency_data:  # on white
        seen = np.asarray(image.convert("RGBA"), "float64")
        opacity = seen[..., 3:] / 255
        image = Image.fromarray(np.rint(seen[..., :3] * opacity + 255 * (1 - opacity)).astype("uint8"))
    pixels = np.asarray(image.convert({1: "L", 3: "RGB"}[channels]))
    return pixels.reshape(SIDE, SIDE, channels)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.filterwarnings("error::UserWarning")
def test_every_kind_is_read_as_pillow_shows_it(photo, tmp_path, channels):
    """In files named .jpg, whatever they hold."""
    found = kinds(photo)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for number, (content, _) in enumerate(found.values()):
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(content)
    (tmp_path / "b" / "0.jpg").write_bytes(found["jpeg"][0])
    size = Preprocessing((SIDE, SIDE), mean=(0.5,) * channels, std=(0.5,) * channels)
    examples = data.load(f"folder:{tmp_path}", "train+validation", max_unreadable=0)
    with data.data_errors():
        images = np.concatenate([batch[0] for batch in examples.evaluation(20, size, dtype="uint8")])
    for number, (name, (content, tolerance)) in enumerate(found.items()):
        expected = pillows(content, channels).astype(int)
        assert np.ptp(expected) > 100, name
        predicted = read_image(tmp_path / "a" / f"{number:02}.jpg", channels)
        np.testing.assert_array_equal(predicted, expected, err_msg=name)
        difference = np.abs(images[number] - expected)
        # Grey from colour is rounded in another way.
        assert (
            difference.mean() <= tolerance
            and difference.max() <= 20 * tolerance
            or (channels == 1 and difference.max() <= 1)
        ), name


def test_four_channels_are_colours_and_opacity(photo, tmp_path):
    found = kinds(photo)
    names = ["png", "png grey", "png transparent", "png palette, transparent", "jpeg", "jpeg turned 6 <", "webp"]
    for number, name in enumerate(names):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        (tmp_path / "ab"[number % 2] / f"{number}.png").write_bytes(found[name][0])
    size = Preprocessing((SIDE, SIDE), mean=(0.5,) * 4, std=(0.5,) * 4)
    examples = data.load(f"folder:{tmp_path}", "train+validation", max_unreadable=0)
    with data.data_errors():
        ((images, _, weights),) = examples.evaluation(len(names), size, dtype="uint8")
    assert weights.numpy().all()
    for path, image in zip(examples.paths(), images.numpy(), strict=True):
        np.testing.assert_array_equal(image, ImageOps.exif_transpose(Image.open(path)).convert("RGBA"), err_msg=path)


def test_which_png_are_plain(photo):
    """TensorFlow decodes these, without Python's lock, as the test above compares."""
    plain = {
        channels: {name for name, (content, _) in kinds(photo).items() if is_plain_png(content, channels)}
        for channels in (1, 3)
    }
    chunks = {"png in equal chunks", "png in a chunk and a half", "png in chunks of all sizes"}
    coloured = {"png", "png interlaced", "png with a text", "png with a long text", *chunks}
    assert plain == {1: {"png grey"}, 3: coloured}


def test_a_part_is_of_the_upright_image(photo):
    box = tf.constant([10, 7, 50, 33])
    for name, (content, _) in kinds(photo).items():
        whole, part = (
            sources.read_photo(tf.constant(content), f, 3).numpy() for f in (sources.whole_image, lambda shape: box)
        )
        assert np.abs(part - whole[10:60, 7:40].astype(int)).mean() <= 0.15, name


@pytest.mark.parametrize(
    "junk",
    [b"", b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"Exif\0\0" + bytes(99)],
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_broken_orientation_is_upright(photo, tmp_path, junk):
    content = encode(Image.fromarray(photo[:16, :24]), "JPEG")
    segment = b"\xff\xe1" + (len(junk) + 2).to_bytes(2, "big") + junk
    (tmp_path / "a.jpg").write_bytes(content[:2] + segment + content[2:])
    assert sources.read_photo(tf.io.read_file(str(tmp_path / "a.jpg")), sources.whole_image, 3).shape == (16, 24, 3)
    assert read_image(tmp_path / "a.jpg").shape == (16, 24, 3)


def test_damaged_images_are_refused_in_training_and_in_prediction(photo, tmp_path):
    """Every kind cut off, and files that are none: named in both, with a reason, and never another exception."""
    whole = {name: content for name, (content, _) in kinds(photo).items() if "turned" not in name}
    del whole["gif animated"], whole["webp animated"]  # a half has the first frame
    broken = {name: content[: len(content) // 2] for name, content in whole.items()}
    broken |= {"nothing": b"", "text": b"hello", "signature": b"\x89PNG\r\n\x1a\n", "markers": b"\xff\xd8" * 20}
    broken["fractions"] = encode(Image.fromarray(photo[..., 0].astype("float32")), "TIFF")
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=r"cannot be read as an image: .+\. Expected"):
            read_image(tmp_path / name)
        path = str(tmp_path / name)
        reason = batches.why_unreadable(sources.Files([path], [0]), path, 3)
        assert reason and "Error" not in reason and "0x" not in reason, name

"""What may be opened as an image, and how much of it: files made to harm, in prediction and in class folders."""

import os
import socket
import struct
import subprocess
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from photographs import encode
from photographs import png_chunk as chunk
from PIL import Image

from keras_vit import data
from keras_vit.commands import predict
from keras_vit.data.datasets import folder
from keras_vit.data.reading import batches, sources
from keras_vit.errors import ImageError
from keras_vit.images import pillow, tf_jpeg
from keras_vit.images.pillow import read_image
from keras_vit.inference import predicting

GHOSTSCRIPT = "#!/bin/sh\necho started >> {log}\n"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def saved(kind, size=(40, 30), mode="RGB", **options):
    return encode(Image.new(mode, size, 120), kind, **options)


def png(width, height, bits=1, colour=0, rows=b"", extra=b""):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def scanned(scans, size=(2000, 1600), after=b""):
    """A progressive JPEG whose last scan is repeated until there are so many."""
    content = saved("JPEG", size, "L", progressive=True)
    last = content.rindex(b"\xff\xda")
    start, end = content.rindex(b"\xff\xc4", 0, last), len(content) - 2
    missing = scans - pillow.count_scans(content)
    return content[:end] + content[start:end] * missing + content[end:] + after


def one_after_the_other(size=(8000, 8000)):
    """A JPEG that is not progressive: 200 scans of one component each, without any coded pixels."""
    content = saved("JPEG", size)
    scan = content.rindex(b"\xff\xda")
    return content[:scan] + b"".join(b"\xff\xda\0\x08\1%c\0\0\x3f\0" % (1 + n % 3) for n in range(200)) + b"\xff\xd9"


MANY = pillow.MOST_SCANNED // (2000 * 1600) + 1
HARMFUL = {
    "EPS": (EPS, "none of the formats"),
    "PSD": (b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 30_000, 30_000, 8, 3) + bytes(20), "none of the formats"),
    "FITS": (b"SIMPLE  =                    T" + b" " * 2850, "none of the formats"),
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "none of the formats"),
    "zeros": (bytes(1000), "none of the formats"),
    "a PNG of a row": (png(100_000_000, 1, rows=bytes(12_500_001)), "pixels"),
    "a PNG of a column": (png(1, 100_000_000), "pixels"),
    "a PNG of 2^62 pixels": (png(2**31 - 1, 2**31 - 1), "pixels"),
    "a TIFF": (saved("TIFF", (9000, 9000), "1", compression="group4"), "pixels"),
    "a GIF": (saved("GIF")[:6] + struct.pack("<HH", 65_000, 65_000) + saved("GIF")[10:], "pixels"),
    "scans": (scanned(MANY), rf"it has {MANY:,} scans of 3,200,000 pixels; at most {MANY - 1:,} of these are read"),
    "scans of a component": (one_after_the_other(), "it has 200 scans of 64,000,000 pixels; at most 67 of these"),
}


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The lines that a Ghostscript in the way leaves when it is started."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text(GHOSTSCRIPT.format(log=tmp_path / "log"))
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return lambda: (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", HARMFUL)
def test_harmful_images_are_a_sentence(name, tmp_path, started):
    content, sentence = HARMFUL[name]
    path = tmp_path / "cat.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=rf"cat\.jpg cannot be read as an image: .*{sentence}"):
        read_image(path)
    reason = batches.why_unreadable(sources.Files([str(path)], [0]), str(path), 3)
    assert reason and "Error" not in reason
    assert not started()


def test_a_photo_of_an_iphone_names_what_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pillow, "installed_formats", lambda: ["JPEG", "PNG"])
    (tmp_path / "photo.heic").write_bytes(b"\0\0\0\x24ftypheic" + bytes(100))
    with pytest.raises(ImageError, match=r"photo\.heic .* which pillow-heif reads: pip install '\.\[heic\]'"):
        read_image(tmp_path / "photo.heic")


def test_many_scans_of_a_small_image_are_read():
    """And what looks like scans after the end of one is none."""
    for content in (scanned(300, (200, 100)), scanned(20, after=b"\xff\xda" * 3000)):
        with pillow.open_image(content) as image:
            assert np.ptp(pillow.to_array(image, 3)) == 0
        assert np.ptp(sources.read_photo(tf.constant(content), sources.whole_image, 3).numpy()) == 0


def test_the_glance_at_a_jpeg_is_right():
    """What it lets through is within the limits; what many encoders write is let through."""
    for options in ({}, {"optimize": True}, {"progressive": True}, {"quality": 5}, {"subsampling": 0}):
        for mode in ("RGB", "L"):
            assert tf_jpeg.is_ordinary(tf.constant(saved("JPEG", mode=mode, **options))), options
    assert tf_jpeg.is_ordinary(tf.io.encode_jpeg(np.zeros((8, 9, 3), "uint8")))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 1, "a" * 5000
    assert tf_jpeg.is_ordinary(tf.constant(saved("JPEG", exif=exif)))
    exif[0x0112] = 6
    turned = saved("JPEG", exif=exif)
    profiles = [struct.pack(">HH", 0xFFE2, 2 + len(values)) + values for values in (bytes(65_000), b"\xff\xda" * 500)]
    behind = [turned[:2] + profile + turned[2:] for profile in (2 * profiles[0], profiles[1])]
    for content in (turned, *behind, saved("JPEG", mode="CMYK"), scanned(MANY), one_after_the_other()):
        assert not tf_jpeg.is_ordinary(tf.constant(content))


@pytest.mark.parametrize("value", [65536, -1])
def test_whole_numbers_of_more_than_16_bits_are_refused(value, tmp_path):
    for last in (65535, value):
        Image.fromarray(np.array([[0, last]], "int32")).save(tmp_path / f"{last}.tif")
    assert read_image(tmp_path / "65535.tif", 1)[..., 0].tolist() == [[0, 255]]
    Image.fromarray(np.array([[7, 255]], "int32")).save(tmp_path / "8.tif")
    assert read_image(tmp_path / "8.tif", 1)[..., 0].tolist() == [[7, 255]]
    with pytest.raises(ImageError, match="whole numbers of more than 16 bits"):
        read_image(tmp_path / f"{value}.tif", 1)


def test_what_is_not_a_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "device.png").symlink_to("/dev/zero")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket.png"))
    server.close()
    (tmp_path / "folder.png").mkdir()
    why = {"pipe": "it is not a regular file", "device": "it is not a regular file", "folder": "Is a directory"}
    for kind, reason in {**why, "socket": "No such device"}.items():
        with pytest.raises(ImageError, match=f"cannot be read as an image: {reason}"):
            read_image(tmp_path / f"{kind}.png")
    with open(tmp_path / "sparse.png", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ImageError, match="bytes; at most"):
        read_image(tmp_path / "sparse.png")
    for path, sentence in (("a\0b", "null"), ("x" * 5000, "too long")):
        with pytest.raises(ImageError, match=sentence):
            read_image(path)


def test_addresses_are_not_paths():
    with pytest.raises(ImageError) as error:
        read_image("https://me:secret@example.com/a/cat.jpg?key=secret")
    assert str(error.value) == "https://example.com/a/cat.jpg is an address. Download it first, and pass the file."


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bad_image_does_not_stop_a_prediction(tmp_path, monkeypatch, capsys):
    (tmp_path / "eps.jpg").write_bytes(EPS)
    (tmp_path / "flat.png").write_bytes(HARMFUL["a PNG of a row"][0])
    (tmp_path / "ok.png").write_bytes(saved("PNG"))
    model = SimpleNamespace(
        config=SimpleNamespace(num_channels=3, num_classes=2, probabilities="softmax"),
        preprocessing=np.asarray,
        labels=None,
        predict_on_batch=lambda images: np.zeros((len(images), 2)),
    )
    monkeypatch.setattr(predicting, "open_classifier", lambda model: model)
    paths = [str(tmp_path / name) for name in ("eps.jpg", "flat.png", "ok.png")]
    assert predict.predict_images(model, paths, predict.write_lines, None, 1, 8) == 2
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 1 and "ok.png" in output.out
    assert [line.split(" cannot be read")[0] for line in output.err.splitlines()] == [
        f"keras-vit: {path}" for path in paths[:2]
    ]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_images_of_a_class_folder_are_skipped(tmp_path, caplog, started):
    root = tmp_path / "photos"
    for kind in ("cat", "dog"):
        (root / kind).mkdir(parents=True)
        for number in range(4):
            (root / kind / f"{number}.png").write_bytes(saved("PNG"))
    (root / "cat" / "eps.jpg").write_bytes(EPS)
    (root / "cat" / "flat.png").write_bytes(HARMFUL["a PNG of a row"][0])
    (root / "dog" / "scans.jpg").write_bytes(HARMFUL["scans"][0])
    os.mkfifo(root / "dog" / "pipe.jpg")
    (root / "dog" / "zero.png").symlink_to("/dev/zero")
    examples = data.load(f"folder:{root}", "train+validation")
    assert examples.num_examples == 11
    with data.data_errors():
        batches = list(examples.evaluation(11))
    assert sum(weights.numpy().sum() for *_, weights in batches) == 8
    assert all(name in caplog.messages[0] for name in ("These are pipes, devices", "pipe.jpg'", "zero.png'"))
    named = [message.split(" cannot be read")[0] for message in caplog.messages if "is skipped" in message]
    assert sorted(map(os.path.basename, named)) == ["eps.jpg", "flat.png", "scans.jpg"]
    assert not started()


def test_links_that_fan_out_and_deep_folders_end(tmp_path):
    """Forty links make 2^20 paths, which end in the same folder."""
    root = tmp_path / "photos"
    for kind in ("cat", "dog"):
        (root / kind / "0").mkdir(parents=True)
        (root / kind / "0" / "a.png").write_bytes(saved("PNG"))
    for depth in range(20):
        (root / "cat" / str(depth + 1)).mkdir()
        for side in "ab":
            (root / "cat" / str(depth) / side).symlink_to(root / "cat" / str(depth + 1))
    deep = os.open(root / "dog", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("x", dir_fd=deep)
        below = os.open("x", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    paths, _, _ = folder.scan(root, "train")
    # pytest removes old folders by a function that calls itself, too deep here.
    subprocess.run(["rm", "-rf", root / "dog" / "x"], check=True)
    assert [Path(path).relative_to(root).as_posix() for path in paths] == ["cat/0/a.png", "dog/0/a.png"]

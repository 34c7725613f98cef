"""masks:FOLDER: image and mask stay pixel on pixel, and what is refused."""

import shutil
import struct
import zlib

import numpy as np
import pytest
import shapes
from photographs import png_chunk
from PIL import Image

from keras_vit import data, models
from keras_vit.data.datasets import schemes
from keras_vit.errors import DataError

COLOURS = np.array([[10, 200, 30], [220, 40, 90], [60, 90, 250]], "uint8")
SMALL = models.Preprocessing((24, 24))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures 24 x 24 whose colours are those of their classes, in blocks of 6 pixels; a rim of the last is 255."""
    root, rng = tmp_path_factory.mktemp("masks"), np.random.default_rng(0)
    for part in ("images", "masks"):
        (root / part).mkdir()
    for i in range(20):
        mask = np.kron(rng.integers(0, 3, (4, 4)), np.ones((6, 6), int)).astype("uint8")
        Image.fromarray(COLOURS[mask]).save(root / f"images/{i}.png")
        mask[:, -2:] = 255
        Image.fromarray(mask).save(root / f"masks/{i}.png")
    (root / "classes.txt").write_text("sky\nroad\ncar\n")
    return root


@pytest.mark.parametrize("augmentation", ["none", "flip", "pad-crop", "inception", "bit", "resmall"])
def test_masks_follow_their_images(folder, augmentation):
    row = data.Augmentation(crop="resize_small_crop", resize=40) if augmentation == "resmall" else augmentation
    row = data.Augmentation(crop="resize_crop", resize=40) if augmentation == "bit" else row
    examples = data.load(f"masks:{folder}")
    assert examples.class_names == ("sky", "road", "car") and examples.masked and examples.class_counts() is None
    seen = 0
    for images, labels, weights in examples.train(6, SMALL, augmentation=row, dtype="uint8", steps=6):
        images, labels, weights = map(np.asarray, (images, labels, weights))
        assert labels.dtype == "int32" and np.array_equal(weights, labels != 255)
        same = (images[..., None, :] == COLOURS).all(-1)  # of pixels that no other class's are mixed into
        pure = same.any(-1) & (weights > 0)
        assert np.array_equal(same.argmax(-1)[pure], labels[pure])
        seen += pure.sum() / (weights > 0).sum() / 6
        if augmentation in ("none", "flip", "pad-crop"):
            assert pure[weights > 0].all()
    assert seen > 0.5


def test_evaluation_counts_every_pixel_once(folder):
    examples = data.load(f"masks:{folder}", "validation")
    batches = list(examples.evaluation(3, models.Preprocessing((12, 12), crop=0.9)))
    assert sum(float(weights.numpy().any((1, 2)).sum()) for *_, weights in batches) == examples.num_examples == 4
    assert all(images.shape[1:3] == labels.shape[1:] == (12, 12) for images, labels, _ in batches)
    few = data.load(f"masks:{folder}", examples=5, seed=1)
    assert few.masked and few.num_examples == 5 and next(iter(few.train(5, SMALL)))[1].shape == (5, 24, 24)


def test_splits(folder, tmp_path, monkeypatch):
    for part, start in (("train", 0), ("val", 10), ("test", 20)):
        shapes.write(tmp_path / part, 4, start=start, names=())
    counts = {split: data.load(f"masks:{tmp_path}", split).num_examples for split in ("train", "validation", "test")}
    assert counts == {"train": 4, "validation": 4, "test": 4}
    assert data.load(f"masks:{tmp_path}").class_names == ("class 0", "class 1", "class 2")
    (tmp_path / "classes.txt").write_text("sky\nsea\nsand\n", "utf-8-sig")  # as Windows' editor writes it
    assert data.load(f"masks:{tmp_path}").class_names == ("sky", "sea", "sand")
    with pytest.raises(DataError, match="stratified=True needs examples in memory that have one class each"):
        data.load(f"masks:{tmp_path}", examples=2, stratified=True)
    every = data.load(f"masks:{folder}", "train+validation")
    assert every.num_examples == 20 and data.load(f"masks:{folder}").num_examples == 16
    held_out = data.load(f"masks:{folder}", "validation").paths()
    monkeypatch.chdir(folder)
    assert [str(folder / path) for path in data.load("masks:.", "validation").paths()] == held_out
    assert schemes.would_read(f"masks:{folder}", folder / "images") and not schemes.would_read(f"masks:{folder}", "run")


def palette(mask):
    image = Image.fromarray(mask, "P")
    image.putpalette([0, 0, 0, 255, 0, 0])
    return image


def write_grey(path, bits):
    """Writes a grey PNG of 28 x 28 pixels of class 1, each in so many bits."""
    row = b"\0" + np.packbits(np.tile([*[0] * (bits - 1), 1], 28).astype("uint8")).tobytes()
    header = struct.pack(">IIBBBBB", 28, 28, bits, 0, 0, 0, 0)
    parts = {b"IHDR": header, b"IDAT": zlib.compress(28 * row), b"IEND": b""}
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts.items()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: write_grey(f / "masks/0001.png", 1), "is a grey PNG of 1 bit. A mask is a grey PNG of 8 bits"),
        (lambda f: write_grey(f / "masks/0001.png", 2), "is a grey PNG of 2 bits, which is read as multiples of 85"),
        (lambda f: write_grey(f / "masks/0001.png", 4), "is a grey PNG of 4 bits, which is read as multiples of 17"),
        (lambda f: shutil.rmtree(f / "masks"), "has no folder masks. Expected a folder with images/ and masks/"),
        (lambda f: (f / "masks/0001.png").unlink(), "has no PNG for '0001.png'. Add a mask of the same name"),
        (lambda f: Image.new("L", (9, 8)).save(f / "masks/0001.png"), "has 9 x 8 pixels; .* upright, has 28 x 28"),
        (lambda f: Image.fromarray(np.full((28, 28), 7, "uint8")).save(f / "masks/0001.png"), "pixels of class 7, but"),
        (lambda f: Image.new("RGB", (28, 28)).save(f / "masks/0001.png"), "is a PNG of colours. A mask is a grey PNG"),
        (lambda f: palette(np.ones((28, 28), "uint8")).save(f / "masks/0001.png"), "is a PNG with a palette. A mask"),
        (lambda f: Image.new("I;16", (28, 28)).save(f / "masks/0001.png"), "is of mode I;16. A mask is a grey PNG"),
        (lambda f: (f / "masks/0001.png").write_bytes(b"\x89PNG"), "cannot be read as a mask: .* Save it as PNG"),
        (lambda f: (f / "classes.txt").write_text("sky\nsky\n"), "must name 2 to 255 classes .* Received: 2"),
        (lambda f: (f / "classes.txt").write_text("ciel\nété\n", "latin-1"), "is not text in UTF-8. Save it as UTF-8"),
        (lambda f: shutil.copy(f / "images/0001.png", f / "images/0001.jpg"), "0001.jpg and 0001.png for one mask"),
        (shutil.rmtree, "There is no folder .* Expected a folder with images/ and masks/"),
    ],
)
def test_what_is_refused_and_what_to_do(tmp_path, change, says):
    folder = shapes.write(tmp_path / "data", 3)
    change(folder)
    with pytest.raises(DataError, match=says):
        data.load(f"masks:{folder}")


def test_a_split_without_a_pixel_that_counts_is_refused(tmp_path):
    shapes.write(tmp_path / "train", 4)
    shapes.write(tmp_path / "test", 2)
    for path in (tmp_path / "test/masks").iterdir():
        Image.new("L", (28, 28), 255).save(path)
    assert data.load(f"masks:{tmp_path}").num_examples
    with pytest.raises(DataError, match=r"No mask of .* \(test\) has a pixel that counts: all of them are 255"):
        data.load(f"masks:{tmp_path}", "test")


def test_masks_are_not_mixed(folder):
    for augmentation in ("bit-mixup", "light1"):
        with pytest.raises(DataError, match="not through mixup, cutmix or RandAugment"):
            data.load(f"masks:{folder}").train(4, SMALL, augmentation=augmentation)
    with pytest.raises(DataError, match="has no folder test"):
        data.load(f"masks:{folder}", "test")

"""Masks of pictures, against Pillow's resizing and pictures whose classes are known; what the command writes."""

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_vit import data, inference, zoo
from keras_vit.cli import app
from keras_vit.errors import ConfigError
from keras_vit.models import Preprocessing

GREYS = np.array([20, 90, 160, 230])  # of the classes


class Greys:
    """A model whose classes are greys: what it should answer is known of every picture."""

    name, labels, gives_vectors = "greys", tuple("abcd"), False

    class config:
        num_classes, num_channels, classifier = 4, 3, "patches"

    def __init__(self, **fields):
        self.preprocessing = Preprocessing((24, 32), **fields)

    def predict_on_batch(self, images):
        pixels = (np.asarray(images)[..., :1] * 0.5 + 0.5) * 255
        return -abs(pixels - GREYS)


def make_picture(height, width):
    """Pixels of 3 x 4 fields of one grey each, and their classes."""
    classes = np.random.default_rng(height).integers(0, 4, (3, 4)).repeat(height // 3, 0).repeat(width // 4, 1)
    return GREYS[classes][..., None].repeat(3, -1).astype("uint8"), classes


@pytest.mark.parametrize(
    ("fields", "height", "width", "seen"),
    [
        ({}, 90, 40, (slice(None), slice(None))),
        ({"crop": 1.0}, 48, 128, (slice(None), slice(32, 96))),  # the middle of the longer side
        ({"crop": 0.5}, 96, 128, (slice(24, 72), slice(32, 96))),
        ({"crop": 0.5, "crop_mode": "squash"}, 120, 120, (slice(30, 90), slice(30, 90))),
    ],
)
def test_every_pixel_has_its_class(fields, height, width, seen):
    pixels, classes = make_picture(height, width)
    mask = inference.segment(Greys(interpolation="nearest", **fields), pixels)
    assert mask.dtype == "uint8" and mask.shape == (height, width)
    expected = np.full(mask.shape, 255)
    expected[seen] = classes[seen]
    assert (mask == expected).mean() > 0.93  # borders move by a part of the model's pixel
    outside = np.ones(mask.shape, bool)
    outside[seen] = False
    assert (mask[outside] == 255).all() and (mask[~outside] < 4).all()


def test_what_a_mask_cannot_hold(monkeypatch):
    monkeypatch.setattr(Greys.config, "num_classes", 256)
    with pytest.raises(ConfigError, match="models of at most 255 classes. Received: batch_size=8, and 256 classes"):
        inference.segment_each(Greys(), [], batch_size=8)


def dense():
    model = zoo.load("ViT-Test/4", weights=None, classifier="patches", image_size=28, labels=list("abc"))
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    return model


def test_a_mask_is_pillows_nearest_enlargement():
    model, pictures = dense(), np.random.default_rng(0).integers(0, 256, (3, 60, 48, 3), "uint8")
    found = inference.segment(model, list(pictures))
    maps = np.asarray(model.predict_on_batch(model.preprocessing(pictures))).argmax(-1).astype("uint8")
    for classes, mask in zip(maps, found, strict=True):
        np.testing.assert_array_equal(mask, Image.fromarray(classes).resize((48, 60), Image.Resampling.NEAREST))


def test_the_command_writes_masks_that_can_be_trained_on(tmp_path):
    model = dense()
    model.save(tmp_path / "model.keras")
    (tmp_path / "new/images").mkdir(parents=True)
    for i, size in enumerate(((40, 30), (25, 60))):
        pixels = np.random.default_rng(i).integers(0, 256, (*size, 3), "uint8")
        Image.fromarray(pixels).save(tmp_path / f"new/images/{i}.png")
    (tmp_path / "new/images/bad.png").write_bytes(b"no picture")

    def run(*words):
        words = ["predict", str(tmp_path / "new/images"), "--model", str(tmp_path / "model.keras"), *words]
        return CliRunner().invoke(app, words)

    done = run("--masks", str(tmp_path / "out"))
    assert done.exit_code == 1 and "2 of 3 images" in done.stdout and "bad.png" in done.stderr, done.output
    for i in range(2):
        expected = inference.segment(model, tmp_path / f"new/images/{i}.png")
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / f"out/masks/{i}.png")), expected)
        assert Image.open(tmp_path / f"out/painted/{i}.png").size == expected.shape[::-1]
    (tmp_path / "new/images/bad.png").unlink()
    (tmp_path / "out/masks").rename(tmp_path / "new/masks")
    (tmp_path / "new/classes.txt").write_text("a\nb\nc\n")
    assert data.load(f"masks:{tmp_path / 'new'}").class_names == tuple("abc")
    again = run("--masks", str(tmp_path / "new"))
    assert again.exit_code and "is not empty" in str(again.exception)
    for words in (["--json"], ["--top", "3"]):
        both = run("--masks", str(tmp_path / "x"), *words)
        assert both.exit_code and "not both" in str(both.exception), words


def test_the_command_reads_no_more_images_at_a_time_than_asked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(inference, "segment_each", lambda model, names, size, skip: asked.append(size) or iter(()))
    dense().save(tmp_path / "model.keras")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    words = ["predict", str(tmp_path / "a.png"), "--model", str(tmp_path / "model.keras"), "--masks"]
    for number, size in enumerate((["--batch-size", "1"], [])):
        assert not CliRunner().invoke(app, [*words, str(tmp_path / str(number)), *size]).exit_code
    assert asked == [1, 8]


def test_what_has_no_masks():
    with pytest.raises(ConfigError, match="^The model gives an image one class, not each pixel. Fine-tune"):
        inference.segment("ViT-Mini/4:fashion-mnist", np.zeros((8, 8), "uint8"))

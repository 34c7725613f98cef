"""The figure of what a model will see: its views are those of training, checked against resizing and mixing by hand."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import data
from keras_vit.data import previewing
from keras_vit.models import Preprocessing


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "a class of a long name"):
        (root / name).mkdir()
        for number in range(9):
            pixels = rng.integers(0, 256, (20 + number, 30, 3), "uint8")
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return data.load(f"folder:{root}")


def resized(image):
    return tf.image.resize(image, (16, 12)).numpy()


def test_without_variation_every_view_is_the_image(photos):
    originals, views, shares, labels = previewing.collect_views(photos, Preprocessing((16, 12)), "none", 6, 3)
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]  # as many of each class
    assert len({image.tobytes() for image in originals}) == 6
    for image, versions in zip(originals, views, strict=True):
        np.testing.assert_allclose(versions, np.repeat(resized(image)[None], 3, 0), atol=0.51)
    np.testing.assert_array_equal(shares, np.repeat(np.eye(6)[:, None], 3, 1))


def test_a_mixed_view_is_what_its_title_says(photos):
    mixing = data.Augmentation(crop="resize", flip=False, mixup=5.0)
    originals, views, shares, labels = previewing.collect_views(photos, Preprocessing((16, 12)), mixing, 5, 4, seed=3)
    inputs = np.stack([resized(image) for image in originals])
    np.testing.assert_allclose(shares.sum(-1), 1, atol=1e-6)
    assert (shares.max(-1) < 0.95).all()
    assert (shares.argmax(-1) == np.arange(5)[:, None]).all()
    np.testing.assert_allclose(views, np.einsum("ijk,khwc->ijhwc", shares, inputs), atol=0.51)
    names = [photos.class_names[label] for label in labels]
    title = previewing.describe_shares(names, np.array([0.7, 0, 0.3, 0, 0]))
    assert "70%\n+ " in title and title.endswith("30%")


def test_images_of_several_classes_or_none_are_called_so(tmp_path, monkeypatch):
    lines = ["path,labels"]
    for i, label in enumerate(["", "cat", "cat|dog", "dog"] * 3):
        Image.new("RGB", (9, 9)).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{label}")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    drawn = []
    monkeypatch.setattr(previewing, "draw_grid", lambda path, originals, views, names, *rest: drawn.extend(names))
    data.draw_preview(data.load(f"csv:{tmp_path / 'a.csv'}", "train+validation"), tmp_path / "a.png", count=12)
    assert sorted(drawn) == sorted(["no class", "cat", "cat|dog", "dog"] * 3)


def test_a_damaged_image_is_named(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_text("no image")
    with pytest.raises(data.DataError, match="1.png cannot be read: "):
        data.draw_preview(data.load(f"folder:{tmp_path}", "train+validation"), tmp_path / "a.png", count=1)


@pytest.mark.slow
def test_the_figure(photos, tmp_path):
    data.draw_preview(photos, tmp_path / "a.png", augmentation="strong1", count=4, versions=2)
    with Image.open(tmp_path / "a.png") as figure:
        assert figure.format == "PNG" and figure.width == round(3 * previewing.TILE * 110)
    row = data.AUGMENTATIONS["strong1"]
    said = previewing.describe_augmentation(row, "strong1", Preprocessing((32, 24)))
    assert said == (
        "Augmentation strong1: a random part, 32 x 24 pixels, mirrored by chance, RandAugment(2, 20), mixup 0.5"
    )
    data.draw_preview(data.load("digits"), tmp_path / "b", Preprocessing((8, 8), mean=(0.5,), std=(0.5,)), count=1)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.png", "b"]
    with pytest.raises(data.DataError, match="Did you mean strong2 or strong1"):
        data.draw_preview(photos, tmp_path / "c.png", augmentation="strong3")
    with pytest.raises(data.DataError, match="at least one image"):
        data.draw_preview(photos, tmp_path / "c.png", versions=0)
    assert not (tmp_path / "c.png").exists()

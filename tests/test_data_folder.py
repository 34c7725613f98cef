"""Folders of photographs, their splits, and what is wrong with them; arrays that come with packages."""

import gzip
import logging
import shutil
import struct

import numpy as np
import pytest
from PIL import Image

from keras_vit import data
from keras_vit.data import folder
from keras_vit.data.augmentation import Augmentation
from keras_vit.models import Preprocessing

SIZE = Preprocessing((16, 16))
PLAIN = Augmentation("resize", flip=False)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """40 parts of two photographs as JPEGs, in the folders china and flower."""
    from sklearn.datasets import load_sample_images

    root = tmp_path_factory.mktemp("photos")
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        (root / name).mkdir()
        for i in range(20):
            Image.fromarray(pixels[5 * i : 5 * i + 60, 9 * i : 9 * i + 80]).save(root / name / f"{i:02}.jpg")
    return root


@pytest.fixture
def photos(photographs, tmp_path):
    return shutil.copytree(photographs, tmp_path / "photos")


def load(path, split="train", **options):
    return data.load(f"folder:{path}", split, **options)


def train(examples, batch=8, steps=10, **options):
    with data.data_errors():
        return list(examples.train(batch, SIZE, augmentation=PLAIN, steps=steps, **options))


def test_a_split_by_hash_is_the_files_own(photographs, photos):
    paths = {split: folder.scan(photographs, split)[0] for split in ("train", "validation", "train+validation")}
    assert sorted(paths["train"] + paths["validation"]) == paths["train+validation"]
    assert len(paths["train+validation"]) == 40 and 1 <= len(paths["validation"]) <= 9
    (photos / "china" / "00.jpg").unlink()
    shutil.copy(photos / "flower" / "01.jpg", photos / "flower" / "new.jpg")

    def names(root, files):
        return {str(path.relative_to(root)) for path in files}

    before, now = names(photographs, paths["validation"]), names(photos, folder.scan(photos, "validation")[0])
    assert before - {"china/00.jpg"} == now - {"flower/new.jpg"}
    with pytest.raises(data.DataError, match="no folder test"):
        load(photos, "test")


def test_about_a_tenth_is_held_out(tmp_path):
    root = tmp_path / "photos"
    held_out = [folder.is_held_out(root / "cat" / f"{i}.jpg", root) for i in range(4000)]
    assert 0.08 < np.mean(held_out) < 0.12


@pytest.mark.parametrize("name", ["validation", "val", "valid", "dev"])
def test_split_folders(photographs, tmp_path, name):
    for part, first, last in (("train", 0, 12), (name, 12, 16), ("test", 16, 20)):
        for kind in ("china", "flower"):
            (tmp_path / part / kind).mkdir(parents=True)
            for path in sorted((photographs / kind).iterdir())[first:last]:
                shutil.copy(path, tmp_path / part / kind)
    counts = {split: load(tmp_path, split).num_examples for split in ("train", "validation", "test")}
    assert counts == {"train": 24, "validation": 8, "test": 8}
    assert load(tmp_path, "train+validation").num_examples == 32
    assert load(tmp_path, "test").class_names == ("china", "flower")
    shutil.rmtree(tmp_path / name)
    assert load(tmp_path).num_examples + load(tmp_path, "validation").num_examples == 24
    (tmp_path / "test" / "dog").mkdir()
    with pytest.raises(data.DataError, match="folders for 'dog', which the training folder has not"):
        load(tmp_path, "test")


def test_what_is_no_picture_is_left_out(photos, caplog):
    (photos / "china" / "notes.txt").write_text("taken in China")
    (photos / "china" / "._01.jpg").write_bytes(b"resource fork")
    (photos / ".git").mkdir()
    (photos / "__MACOSX" / "china").mkdir(parents=True)
    (photos / "__MACOSX" / "china" / "._02.jpg").write_bytes(b"resource fork")
    (photos / "china" / ".thumbnails").mkdir()
    shutil.copy(photos / "china" / "01.jpg", photos / "china" / ".thumbnails" / "01.jpg")
    Image.new("RGB", (20, 20)).save(photos / "china" / "UPPER.PNG")
    (photos / "china" / "deeper").mkdir()
    Image.new("RGB", (20, 20)).save(photos / "china" / "deeper" / "a.jpeg")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        assert load(photos, "train+validation").num_examples == 42
    assert not caplog.records
    for name in ("a.HEIC", "b.tif", "c.tif"):
        (photos / "flower" / name).write_bytes(b"no kind that TensorFlow reads")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        assert load(photos, "train+validation").num_examples == 42
    assert "these files are not read: 1 .heic, 2 .tif." in caplog.text


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda p: shutil.rmtree(p), "There is no folder"),
        (lambda p: [shutil.rmtree(p / k) for k in ("china", "flower")], "has no folders. Expected one folder"),
        (lambda p: shutil.rmtree(p / "china"), "has one class, 'flower'"),
        (lambda p: [path.unlink() for path in (p / "china").iterdir()], "No pictures for 'china'"),
        (lambda p: (p / "empty").mkdir(), "No pictures for 'empty'"),
    ],
)
def test_a_folder_that_nothing_can_be_trained_on(photos, change, sentence):
    change(photos)
    with pytest.raises(data.DataError, match=sentence):
        load(photos)


def test_unknown_names():
    with pytest.raises(data.DataError, match="Did you mean cifar10"):
        data.load("cifar-10")
    with pytest.raises(data.DataError, match="Received: 'all'"):
        data.load("digits", "all")


def spoil(photos):
    """Four ways a photograph is broken; gives the files."""
    files = [photos / "china" / f"{i:02}.jpg" for i in range(4)]
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:700])
    files[2].write_text("<html>404</html>")
    files[3].write_bytes(b"\xff\xd8\xff\xe0" + np.random.default_rng(0).bytes(900))
    return files


def test_unreadable_pictures_are_named_and_skipped(photos, caplog):
    files = spoil(photos)
    examples = load(photos, "train+validation")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        batches = train(examples)
        again = train(examples, start=5)
    named = {record.getMessage().split(" cannot be read")[0] for record in caplog.records if record.name == "keras_vit"}
    assert named == {str(path) for path in files}
    assert not [record.getMessage() for record in caplog.records if "[[{{" in record.getMessage()]
    assert not [record for record in caplog.records if "retracing" in record.getMessage()]
    assert len(batches) == 10
    assert all(np.ptp(image) > 0 for images, _ in batches for image in images)
    for (images, labels), (other, other_labels) in zip(batches[5:], again, strict=True):
        np.testing.assert_array_equal(images, other)
        np.testing.assert_array_equal(labels, other_labels)


def test_unreadable_pictures_do_not_count_in_evaluation(photos):
    spoil(photos)
    batches = list(load(photos, "train+validation").evaluation(16, SIZE))
    weights = np.concatenate([weight for _, _, weight in batches])
    labels = np.concatenate([label for _, label, _ in batches])
    assert weights.shape == (48,) and weights.sum() == 36
    assert (labels[weights > 0] == 0).sum() == 16


def test_too_many_unreadable_pictures_are_an_error(photos):
    spoil(photos)
    with pytest.raises(data.DataError, match="cannot be read, 3 may be skipped; the last: .*jpg"):
        train(load(photos, "train+validation", max_unreadable=3))


def test_a_file_that_vanishes_is_skipped(photos):
    examples = load(photos, "train+validation")
    (photos / "china" / "07.jpg").unlink()
    assert len(train(examples, steps=6)) == 6


def test_other_errors_pass_through():
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError), data.data_errors():
        tf.io.decode_jpeg(b"no picture")


def test_digits_are_the_demos():
    from keras_vit import demo

    train, held_out = demo.digits()
    parts = {split: data.load("digits", split) for split in ("train", "validation", "train+validation", "test")}
    assert {split: part.num_examples for split, part in parts.items()} == {
        "train": 1293,
        "validation": 144,
        "train+validation": 1437,
        "test": 360,
    }
    images, labels, _ = next(iter(parts["test"].evaluation(360, Preprocessing((8, 8)), dtype="uint8")))
    np.testing.assert_array_equal(images, held_out[0])
    np.testing.assert_array_equal(labels, held_out[1])


def write_idx(path, array):
    header = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def fashion(tmp_path):
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 50), ("t10k", 20)):
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 28, 28), "uint8"))
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", np.arange(count, dtype="uint8") % 10)
    return tmp_path


def test_fashion_mnist(fashion):
    counts = [data.load(f"fashion_mnist:{fashion}", split).num_examples for split in ("train", "validation", "test")]
    assert counts == [45, 5, 20]
    images, labels, _ = next(
        iter(data.load(f"fashion_mnist:{fashion}", "test").evaluation(20, Preprocessing((28, 28))))
    )
    assert images.shape == (20, 28, 28, 3)
    np.testing.assert_array_equal(labels, np.arange(20) % 10)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda path: path.unlink(), "There is no file"),
        (lambda path: path.write_bytes(b"no gzip"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-12]), "cannot be read"),
        (lambda path: path.write_bytes(gzip.compress(b"\0\0\10\1\0\0\0\7")), "is not an idx file"),
        (lambda path: write_idx(path, np.arange(7, dtype="uint8")), "50 train images and 7 labels"),
        (lambda path: write_idx(path, np.arange(50, dtype="uint8")), "Example 10 .* has the label 10"),
    ],
)
def test_broken_fashion_mnist(fashion, change, sentence):
    change(fashion / "train-labels-idx1-ubyte.gz")
    with pytest.raises(data.DataError, match=sentence):
        data.load(f"fashion_mnist:{fashion}")

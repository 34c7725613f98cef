"""Folders of photographs, their splits, and what is wrong with them; arrays that come with packages."""

import gzip
import hashlib
import logging
import os
import shutil
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from photographs import china, flower
from PIL import Image

from keras_vit import data
from keras_vit.data.augment.augmentations import Augmentation
from keras_vit.data.datasets import folder
from keras_vit.data.datasets.image_files import hold_out
from keras_vit.errors import ConfigError
from keras_vit.evaluation import Predictions, draw_mistakes
from keras_vit.models import Preprocessing
from keras_vit.trainers.choices import require_same_classes
from keras_vit.trainers.train import pretrain

SIZE = Preprocessing((16, 16))
PLAIN = Augmentation("resize", flip=False)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """40 parts of two photographs as JPEGs, in the folders china and flower."""
    root = tmp_path_factory.mktemp("photos")
    for name, pixels in {"china": china(), "flower": flower()}.items():
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
        return {os.path.relpath(path, root) for path in files}

    before, now = names(photographs, paths["validation"]), names(photos, folder.scan(photos, "validation")[0])
    assert before - {"china/00.jpg"} == now - {"flower/new.jpg"}
    with pytest.raises(data.DataError, match="no folder test"):
        load(photos, "test")


def hash_of(name):
    """By the rule's words, of a path within a folder: the first 64 bits of the SHA-256, as a share of 2^64."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:16], 16) / 2**64


def held_out_of(root, names):
    """{names} of the images that are held out, of a class of these paths within the folder."""
    return {path.relative_to(root).as_posix() for path, _ in hold_out({(root / name, 0) for name in names}, root)}


def test_a_hash_below_a_tenth_is_held_out(tmp_path):
    for count in (1, 2, 3, 12, 40, 550):
        for k in range(40):
            names = [f"class {k}/{i}.jpg" for i in range(count)]
            expected = {name for name in names if hash_of(name) < 0.1} or {min(names, key=hash_of)}
            assert held_out_of(tmp_path, names) == (expected if count > 1 else set())
    low = [name for name in (f"cat/{i}.jpg" for i in range(200)) if hash_of(name) < 0.1][:4]
    assert set(low) - held_out_of(tmp_path, low) == {max(low, key=hash_of)}, "a class keeps an image to train on"


def test_the_folder_that_one_stands_in_holds_out_the_same_images(photographs, monkeypatch):
    expected = set()
    for kind in ("china", "flower"):
        names = [f"{kind}/{i:02}.jpg" for i in range(20)]
        expected |= {name for name in names if hash_of(name) < 0.1} or {min(names, key=hash_of)}
    monkeypatch.chdir(photographs)
    assert set(folder.scan(".", "validation")[0]) == expected


@pytest.mark.slow
def test_images_keep_their_side_when_others_are_added(tmp_path):
    """One by one: only the image that was held out for lack of another may move, once; and never by other classes."""
    for k in range(40):
        names = [f"class {k}/{i}.jpg" for i in range(121)]
        for count in range(2, 121):
            before, now = held_out_of(tmp_path, names[:count]), held_out_of(tmp_path, names[: count + 1])
            moved = before ^ (now - {names[count]})
            assert len(moved) <= 1 and all(hash_of(name) >= 0.1 for name in moved)
    other = {(tmp_path / "dog" / f"{i}.jpg", 1) for i in range(77)}
    cats = [f"cat/{i}.jpg" for i in range(110)]
    both = other | {(tmp_path / name, 0) for name in cats}
    alone = {path.relative_to(tmp_path).as_posix() for path, label in hold_out(both, tmp_path) if label == 0}
    assert alone == held_out_of(tmp_path, cats)


@pytest.mark.parametrize("name", ["validation", "val", "valid", "dev", "Validation"])
@pytest.mark.parametrize("training", ["train", "Training"])
def test_split_folders(photographs, tmp_path, training, name):
    for part, first, last in ((training, 0, 12), (name, 12, 16), ("test", 16, 20)):
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
    with pytest.raises(data.DataError, match="The training folder has no folders for 'dog'"):
        load(tmp_path, "test")


def test_files_that_are_not_images_are_left_out(photos, caplog):
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
    (photos / "china" / "@eaDir").mkdir()
    shutil.copy(photos / "china" / "01.jpg", photos / "china" / "@eaDir" / "SYNOPHOTO_THUMB_M.jpg")
    for name in ("a.CR2", "b.nef", "c.nef", "Thumbs.db"):
        (photos / "flower" / name).write_bytes(b"no kind that Pillow reads")
    shutil.copy(photos / "china" / "01.jpg", photos / "loose.jpg")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        assert load(photos).num_examples + load(photos, "validation").num_examples == 42
    assert caplog.text.count("these files are not read: 1 .cr2, 2 .nef.") == 1
    assert caplog.text.count("outside of the class folders of") == 1


def test_a_class_that_validation_lacks_is_said(photographs, tmp_path, caplog):
    for part in ("train", "val"):
        shutil.copytree(photographs, tmp_path / part)
    shutil.rmtree(tmp_path / "val" / "china")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        examples = load(tmp_path, "validation")
    assert examples.num_examples == 20 and examples.class_names == ("china", "flower")
    assert "val has no images for 'china'." in caplog.text


def test_a_folder_named_train_may_be_a_class(photographs, tmp_path):
    for name in ("bus", "train"):
        shutil.copytree(photographs / "china", tmp_path / name)
    assert load(tmp_path, "train+validation").class_names == ("bus", "train")


@pytest.mark.parametrize("counts", [(2, 1), (2, 2), (5, 3)])
def test_few_images_leave_each_class_one_to_train_on_and_validation_one(photographs, tmp_path, counts):
    """Whatever their names, that is their hashes."""
    for first in range(12):
        root = tmp_path / str(first)
        for kind, count in zip(("china", "flower"), counts, strict=True):
            (root / kind).mkdir(parents=True)
            for path in sorted((photographs / kind).iterdir())[first : first + count]:
                shutil.copy(path, root / kind)
        train, held_out = (folder.scan(root, split) for split in ("train", "validation"))
        assert set(train[1]) == {0, 1} and held_out[0]
        assert sorted(train[0] + held_out[0]) == folder.scan(root, "train+validation")[0]


NAMES = ("two words", "größe 猫", "new\nline", "[a*?]", "x" * 200, "$x_$")


def test_names_as_people_write_them(photographs, tmp_path):
    source = photographs / "flower" / "07.jpg"
    expected = np.asarray(Image.open(source).convert("RGB")).astype(int)
    for name in NAMES:
        (tmp_path / name).mkdir()
        shutil.copy(source, tmp_path / name / f"{name[:50]}.JPG")
        shutil.copy(source, os.fsencode(tmp_path / name) + b"/ma\xf1ana.jpg")  # Latin-1, as in old archives
    examples = load(tmp_path, "train+validation", max_unreadable=0)
    assert examples.class_names == tuple(sorted(NAMES))
    with data.data_errors():
        images, labels, _ = next(iter(examples.evaluation(12, Preprocessing((60, 80)), dtype="uint8")))
    assert sorted(labels.numpy()) == sorted(2 * list(range(6)))
    assert np.abs(images.numpy() - expected).mean((1, 2, 3)).max() < 1.6
    wrong = np.arange(6)
    worst = tuple((images[0].numpy() / 255, i, (i + 1) % 6, 0.9) for i in wrong)
    found = Predictions(wrong, (wrong + 1) % 6, np.full(6, 0.9), worst)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks
        draw_mistakes(found, examples.class_names, tmp_path / "mistakes.png")


def test_links(photographs, tmp_path):
    """To a class, to a folder in one, to an image; in a circle, and to nothing."""
    root = tmp_path / "photos"
    (root / "cat" / "sub").mkdir(parents=True)
    (root / "china").symlink_to(photographs / "china")
    (root / "cat" / "more").symlink_to(photographs / "flower")
    (root / "cat" / "one.jpg").symlink_to(photographs / "flower" / "03.jpg")
    (root / "cat" / "sub" / "circle").symlink_to(root / "cat")
    (root / "cat" / "self").symlink_to(root / "cat" / "self")
    paths, labels, classes = folder.scan(root, "train+validation")
    assert classes == ("cat", "china") and np.bincount(labels).tolist() == [21, 20]
    assert len(set(paths)) == 41 and all(map(os.path.isfile, paths))


def test_a_data_folder_is_left_as_it_is(photos):
    def state():
        return {path: (path.stat().st_mtime_ns, path.is_dir() or path.read_bytes()) for path in photos.rglob("*")}

    before = state()
    train(load(photos))
    assert state() == before


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda p: shutil.rmtree(p), "There is no folder"),
        (lambda p: [shutil.rmtree(p), p.write_text("zip")], "is a file. Expected a folder"),
        (lambda p: [shutil.rmtree(p / k) for k in ("china", "flower")], "has no folders. Expected one folder"),
        (lambda p: shutil.rmtree(p / "china"), r"has one class, 'flower'. A classifier needs at least two.$"),
        (
            lambda p: [shutil.copytree(p, p / "in"), *map(shutil.rmtree, (p / "china", p / "flower"))],
            "folders in it, give",
        ),
        (lambda p: [p.rename(p.parent / "x"), shutil.move(p.parent / "x", p / "Test")], "no folder train"),
        (
            lambda p: [(p / "china").rename(p / "train"), (p / "flower").rename(p / "val")],
            "and no folder train that has",
        ),
        (lambda p: [shutil.copytree(p, p / kind) for kind in ("Train", "training")], "may be the split 'train'"),
        (lambda p: os.mkdir(os.fsencode(p) + b"/ma\xf1ana"), "is not in UTF-8"),
        (lambda p: [path.unlink() for path in (p / "china").iterdir()], "has no images of 'china' to train on"),
        (lambda p: (p / "empty").mkdir(), "has no images of 'empty' to train on"),
        (
            lambda p: shutil.copytree(p, p.parent / "x").rename(p / "test"),
            "both have 'china', 'flower', so test seems to be a split. Move the classes of .* into .*photos/train",
        ),
    ],
)
def test_a_folder_that_nothing_can_be_trained_on(photos, change, sentence):
    change(photos)
    with pytest.raises(data.DataError, match=sentence):
        load(photos)


def test_one_image_in_each_class_leaves_none_to_validate(photographs, tmp_path):
    for kind in ("china", "flower"):
        (tmp_path / kind).mkdir()
        shutil.copy(photographs / kind / "00.jpg", tmp_path / kind)
    assert load(tmp_path).num_examples == 2
    with pytest.raises(data.DataError, match="none can be held out. Add images, or train on all"):
        load(tmp_path, "validation")


def test_a_folder_without_a_name():
    with pytest.raises(data.DataError, match="'folder:' lacks its PATH. Expected folder:PATH, a folder that has one"):
        data.load("folder:")


def test_where_a_run_would_be_read_as_a_class(photos, tmp_path):
    inside = {"runs/1": True, "": True, "china/run": True, "../runs": False, ".runs/1": False, "../photos2": False}
    assert {path: folder.would_read(photos, photos / path) for path in inside} == inside
    (tmp_path / "split").mkdir()
    photos.rename(tmp_path / "split" / "train")
    inside = {"runs/1": False, "": False, "train/run": True, "train/china": True}
    assert {path: folder.would_read(tmp_path / "split", tmp_path / "split" / path) for path in inside} == inside
    (tmp_path / "link").symlink_to(tmp_path / "split" / "train")
    assert folder.would_read(tmp_path / "split", tmp_path / "link" / "run")


def test_a_run_among_its_own_images_is_refused(photos):
    with pytest.raises(ConfigError, match="lies among the class folders .* Choose a folder outside of it"):
        pretrain(f"folder:{photos}", out=photos / "runs" / "1", model="ViT-Test/4")
    assert not (photos / "runs").exists()


def test_a_run_is_not_resumed_with_other_classes(photos, tmp_path):
    begun = {"recipe": {}, "classes": ["china", "flower"]}
    require_same_classes(load(photos), tmp_path, begun)
    (photos / "flower").rename(photos / "blossom")
    with pytest.raises(ConfigError, match="2 classes, now folder:.* has 2: 'flower' gone, 'blossom' new"):
        require_same_classes(load(photos), tmp_path, begun)


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


@pytest.mark.slow
def test_unreadable_images_are_named_and_skipped(photos, caplog):
    files = spoil(photos)
    examples = load(photos, "train+validation")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        batches = train(examples)
        again = train(examples, start=5)
        list(examples.evaluation(8, SIZE))
    named = [record.getMessage().split(" cannot be read")[0] for record in caplog.records if record.name == "keras_vit"]
    assert sorted(named) == sorted(examples.unreadable.names) == [str(path) for path in files]  # each once
    assert not [record.getMessage() for record in caplog.records if "[[{{" in record.getMessage()]
    assert not [record for record in caplog.records if "retracing" in record.getMessage()]
    assert len(batches) == 10
    assert all(np.ptp(image) > 0 for images, _ in batches for image in images)
    for (images, labels), (other, other_labels) in zip(batches[5:], again, strict=True):
        np.testing.assert_array_equal(images, other)
        np.testing.assert_array_equal(labels, other_labels)


def test_unreadable_images_do_not_count_in_evaluation(photos):
    spoil(photos)
    batches = list(load(photos, "train+validation").evaluation(16, SIZE))
    weights = np.concatenate([weight for _, _, weight in batches])
    labels = np.concatenate([label for _, label, _ in batches])
    assert weights.shape == (48,) and weights.sum() == 36
    assert (labels[weights > 0] == 0).sum() == 16


@pytest.mark.parametrize("batch_size", [1, 32])
def test_the_last_image_may_be_the_one_that_is_unreadable(photos, batch_size):
    """Copies of it, of weight 0, fill the last batch."""
    examples = load(photos, "train+validation")
    some = load(photos, "train+validation", examples=5)
    assert len(some.paths()) == 5 and set(some.paths()) < set(examples.paths())
    Path(examples.paths()[-1]).write_text("no image")
    weights = np.concatenate([weight for _, _, weight in examples.evaluation(batch_size, SIZE)])
    assert weights.sum() == examples.num_examples - 1


def test_paths_are_of_the_images_that_were_evaluated(tmp_path):
    """Each image is of one shade, which its name says."""
    for i in range(20):
        path = tmp_path / ("cat", "dog")[i % 2] / f"{10 * i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), (10 * i,) * 3).save(path)
        if i in (4, 13):
            path.write_text("no image")
    examples = load(tmp_path, "train+validation")
    batches = list(examples.evaluation(6, SIZE))
    kept = np.concatenate([np.asarray(images)[weights > 0] for images, _, weights in batches])
    shades = [round((image.mean() + 1) / 2 * 255) for image in kept]
    assert [int(os.path.basename(path)[:-4]) for path in examples.paths()] == shades and len(shades) == 18


def test_pipelines_are_not_optimized_in_every_epoch(photos):
    """Neither, under a strategy, at every validation."""
    for batches in (load(photos).train(8, SIZE), load(photos).evaluation(8, SIZE)):
        assert batches.options().experimental_optimization.apply_default_optimizations is False


def test_too_many_unreadable_images_are_an_error(photos):
    spoil(photos)
    with pytest.raises(data.DataError, match="cannot be read, and at most 3 are skipped; the last: .*jpg"):
        train(load(photos, "train+validation", max_unreadable=3))


def test_a_file_that_vanishes_is_skipped(photos):
    examples = load(photos, "train+validation")
    (photos / "china" / "07.jpg").unlink()
    assert len(train(examples, steps=6)) == 6


def test_other_errors_pass_through():
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError), data.data_errors():
        tf.io.decode_jpeg(b"not an image")


def test_digits_are_split_by_class():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels = np.repeat((digits.images[..., None] * (255 / 16)).astype("uint8"), 3, axis=-1)
    _, images_held_out, _, labels_held_out = train_test_split(
        pixels, digits.target, test_size=0.2, random_state=0, stratify=digits.target
    )
    splits = ("train", "validation", "train+validation", "test", "train+validation+test")
    parts = {split: data.load("digits", split) for split in splits}
    assert {split: part.num_examples for split, part in parts.items()} == {
        "train": 1293,
        "validation": 144,
        "train+validation": 1437,
        "test": 360,
        "train+validation+test": 1797,
    }
    images, labels, _ = next(iter(parts["test"].evaluation(360, Preprocessing((8, 8)), dtype="uint8")))
    np.testing.assert_array_equal(images, images_held_out)
    np.testing.assert_array_equal(labels, labels_held_out)


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


def test_fashion_mnist(fashion, monkeypatch):
    counts = [data.load(f"fashion_mnist:{fashion}", split).num_examples for split in ("train", "validation", "test")]
    assert counts == [45, 5, 20]
    joined = data.load(f"fashion_mnist:{fashion}", "test+train")
    ((_, labels, _),) = joined.evaluation(65, Preprocessing((28, 28)))
    np.testing.assert_array_equal(labels, [*np.arange(20) % 10, *np.arange(45) % 10])
    images, labels, _ = next(
        iter(data.load(f"fashion_mnist:{fashion}", "test").evaluation(20, Preprocessing((28, 28))))
    )
    assert images.shape == (20, 28, 28, 3)
    np.testing.assert_array_equal(labels, np.arange(20) % 10)
    monkeypatch.setenv("HOME", str(fashion))
    assert data.load("fashion_mnist:~", "test").num_examples == 20


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda path: path.unlink(), "There is no file"),
        (lambda path: path.write_bytes(b"no gzip"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-12]), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:10] + b"\xff" * 40), "cannot be read"),
        (lambda path: path.write_bytes(gzip.compress(b"\0\0\10\1\0\0\0\7")), "is not an idx file"),
        (lambda path: write_idx(path, np.arange(7, dtype="uint8")), "50 train images and 7 labels"),
        (lambda path: write_idx(path, np.arange(50, dtype="uint8")), "Example 10 .* has the label 10"),
    ],
)
def test_broken_fashion_mnist(fashion, change, sentence):
    change(fashion / "train-labels-idx1-ubyte.gz")
    with pytest.raises(data.DataError, match=sentence):
        data.load(f"fashion_mnist:{fashion}")


@pytest.mark.slow
def test_a_script_that_images_stop_ends(tmp_path):
    """The readers, threads that call Python, do not hold up or abort its shutdown after an uncaught error."""
    for number in range(80):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(path) if number % 4 else path.write_text("no picture")
    code = (
        "import time\n"
        "from keras_vit import data\n"
        "from keras_vit.data.reading import batches as reading\n"
        "find = reading.why_unreadable\n"
        "reading.why_unreadable = lambda *image: time.sleep(0.05) or find(*image)\n"  # some still read at the end
        "def main():\n"
        "    batches = iter(data.load('folder:photos').train(16))\n"
        "    with data.data_errors():\n"
        "        list(batches)\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "at most 10 are skipped" in done.stderr, done

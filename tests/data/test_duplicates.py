"""Near-duplicates: planted copies among distinct photographs, and training without them."""

import dataclasses
import io
import json
import types

import numpy as np
import pytest
from photographs import china, encode, flower
from PIL import Image

from keras_vit import data
from keras_vit.data import DataError
from keras_vit.data.duplicates import near_pairs, numbers_to_leave_out
from keras_vit.data.reading import order, stream
from keras_vit.data.reading.sources import choose_numbers

SIDE = 128
ALL = "train+validation"  # nothing held out


def distinct(count, seed):
    """Different places of two photographs, uint8 (128, 128, 3) each: those of seed 0 to the left of those of seed 1."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        photo, left = (china(), flower())[i % 2], 320 * seed + rng.integers(0, 320 - SIDE)
        top = (i // 2) * 33 % (427 - SIDE)
        yield photo[top : top + SIDE, left : left + SIDE]


def shifted(image, by):
    return np.clip(image.astype(int) + by, 0, 255).astype("uint8")


def resized(image, size):
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def compressed(image, quality):
    return np.asarray(Image.open(io.BytesIO(encode(image, quality=quality))))


FOUND = {
    "same": lambda x: x,
    "smaller": lambda x: resized(x, (48, 48)),
    "larger": lambda x: resized(x, (300, 300)),
    "stretched": lambda x: resized(x, (200, 90)),
    "compressed": lambda x: compressed(x, 30),
    "brighter": lambda x: shifted(x, 25),
    "darker": lambda x: shifted(x, -25),
    "grey": lambda x: np.asarray(Image.fromarray(x).convert("L")),
    "mirrored": lambda x: x[:, ::-1],
    "all": lambda x: compressed(shifted(resized(x, (96, 96)), 20), 50)[:, ::-1],
}
NOT_FOUND = {
    "half": lambda x: x[:, : SIDE // 2],
    "turned": lambda x: np.rot90(x),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """(name of the dataset, {kind of copy: number of its training image}): 10 distinct images in each class."""
    root = tmp_path_factory.mktemp("photos")
    tests = list(distinct(18, seed=1))
    for split, images in (("train", list(distinct(18, seed=0))), ("test", tests)):
        for i, image in enumerate(images):
            folder = root / split / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{i:02}.png")
    for i, (name, change) in enumerate({**FOUND, **NOT_FOUND}.items()):
        Image.fromarray(np.ascontiguousarray(change(tests[i]))).save(root / "train" / "b" / f"copy_{name}.png")
    return f"folder:{root}"


@pytest.fixture(scope="module")
def found(photos):
    return data.find_duplicates(data.load(photos, ALL), [data.load(photos, "test")])


def test_copies_are_found_and_no_other(found, photos):
    copies = {pair.name.rpartition("copy_")[2].removesuffix(".png"): pair for pair in found.pairs}
    assert set(copies) == set(FOUND) and len(found.pairs) == len(FOUND)
    for name, i in zip(FOUND, range(len(FOUND)), strict=True):
        assert copies[name].other_name.endswith(f"{i:02}.png"), name
        assert copies[name].mirrored == (name in ("mirrored", "all"))
    assert [pair.bits for pair in found.pairs] == sorted(pair.bits for pair in found.pairs)
    train, test = (data.load(photos, split) for split in (ALL, "test"))
    (image,) = data.read_images(train, [copies["mirrored"].number])
    (other,) = data.read_images(test, [copies["mirrored"].other])
    np.testing.assert_array_equal(image, other[:, ::-1])


def test_the_list_is_left_out(found, photos, tmp_path):
    found.save(tmp_path / "list.json")
    assert data.read_duplicates(tmp_path / "list.json") == found
    whole, rest = data.load(photos, ALL), data.load(photos, ALL, without=tmp_path / "list.json")
    assert rest.num_examples == whole.num_examples - len(FOUND) and rest.class_names == whole.class_names
    names = [rest.source.name_of(i) for i in range(rest.num_examples)]
    assert sum("copy" in name for name in names) == len(NOT_FOUND)
    assert len(set(names)) == rest.num_examples
    edited = json.loads((tmp_path / "list.json").read_text())
    edited["pairs"] = edited["pairs"][:3]  # a person takes out what is no pair
    (tmp_path / "list.json").write_text(json.dumps(edited))
    assert data.load(photos, ALL, without=tmp_path / "list.json").num_examples == whole.num_examples - 3


@pytest.mark.parametrize("labels", [None, np.arange(100) % 3], ids=["random", "stratified"])
def test_choices_stay_nested_and_the_same_but_for_the_duplicates(labels):
    gone = np.array([3, 50, 77, 90])
    sets = [set(choose_numbers(100, count, 7, labels, gone).tolist()) for count in (5, 30, 96)]
    assert [len(chosen) for chosen in sets] == [5, 30, 96]
    assert sets[0] < sets[1] < sets[2] and not sets[2] & set(gone)
    if labels is None:
        before = set(choose_numbers(100, 30, 7).tolist())
        assert before - set(gone.tolist()) <= sets[1]
    with pytest.raises(DataError, match="from 1 to the 96"):
        choose_numbers(100, 97, 7, labels, gone)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda read: read.update(split="validation"), "is for the split validation of .* Make a new one: keras-vit"),
        (lambda read: read.update(num_examples=31), "is for 31 examples; .* has 30"),
        (lambda read: read["pairs"][0].update(number=0), r"calls example 0 .*copy_\w+.png; it is .*00.png now"),
        (lambda read: read["pairs"][0].update(number=-1), "is not a list of duplicates"),
        (lambda read: read["pairs"][0].pop("bits"), "is not a list of duplicates"),
        (lambda read: read.pop("pairs"), "is not a list of duplicates"),
    ],
)
def test_a_list_of_something_else_is_refused(change, sentence, found, photos, tmp_path):
    found.save(tmp_path / "list.json")
    read = json.loads((tmp_path / "list.json").read_text())
    change(read)
    (tmp_path / "list.json").write_text(json.dumps(read))
    with pytest.raises(DataError, match=sentence):
        data.load(photos, ALL, without=tmp_path / "list.json")
    with pytest.raises(DataError, match="is not a list of duplicates"):
        data.load(photos, ALL, without=tmp_path / "absent.json")


def test_another_spelling_of_the_same_place_is_the_same(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataclasses.replace(found, dataset="fashion_mnist:./x").save("list.json")
    source = types.SimpleNamespace(paths=None, num_examples=found.num_examples)
    arguments = f"fashion_mnist:{tmp_path}/x", found.split, source
    assert numbers_to_leave_out("list.json", *arguments) == found.numbers


def test_bad_input_is_refused(photos, found, tmp_path):
    with pytest.raises(DataError, match="most_bits must be from 0 to 127. Received: 128"):
        data.find_duplicates(data.load(photos, ALL), [], most_bits=128)
    assert data.find_duplicates(data.load(photos, ALL), data.load(photos, "test")) == found
    found.save(tmp_path / "list.json")
    with pytest.raises(DataError, match="from 1 to the 20 that the split has. Received: 21"):
        data.load(photos, ALL, examples=21, without=tmp_path / "list.json")


def test_near_pairs_are_all_that_there_are():
    """Against a count of bits by text, over more than one part of the rows."""
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 2**63, (n, 4), "uint64") for n in (700, 600))
    second[5:300] = first[:295] ^ (
        rng.integers(0, 2**63, (295, 4), "uint64") & rng.integers(0, 2**63, (295, 4), "uint64")
    )
    found = near_pairs(first, second, 72)

    def bits(x):
        return np.array([[c == "1" for word in row for c in f"{int(word):064b}"] for row in x], int)

    a, b = bits(first), bits(second)
    distance = a.sum(1)[:, None] + b.sum(1)[None] - 2 * a @ b.T
    expected = {(int(i), int(j), int(distance[i, j])) for i, j in np.argwhere(distance <= 72)}
    assert set(map(tuple, found.tolist())) == expected and 200 < len(expected) < 295


class Instruction:
    """Of TFDS: ten records in a file."""

    def __init__(self, path):
        self.filename, self.skip, self.take, self.examples_in_shard = path, 0, -1, 10


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """60 numbers in six TFRecord files."""
    import tensorflow as tf

    instructions = []
    for file in range(6):
        path = str(tmp_path_factory.mktemp("records") / f"{file}")
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(10):
                writer.write(str(10 * file + i).encode())
        instructions.append(Instruction(path))
    return stream.Stream(instructions, lambda record: (record, tf.strings.to_number(record, tf.int32)), window=8)


def visited(source, share, start, stop):
    chunks = source.training_chunks(share, start, stop, 5).as_numpy_iterator()
    return np.concatenate([chunk["label"] for chunk in chunks])


def test_no_images_of_a_stream_are_read(streamed):
    """As for the page of a stream that has no duplicates."""
    assert data.read_images(data.Examples("tfds:numbers", "test", ("a", "b"), streamed), []) == []


@pytest.mark.slow
def test_a_stream_without_some_has_every_other_once_an_epoch_and_resumes(streamed):
    gone = [0, 9, 10, 31, 32, 33, 59, 20, 21, 22, 40, 45]
    rest = streamed.leave_out(gone)
    kept = sorted(set(range(60)) - set(gone))
    assert rest.num_examples == len(kept) == 48
    seen = visited(rest, order.Share(8), 0, 18)
    for epoch in seen.reshape(3, 48):
        assert sorted(epoch) == kept
    for start in (5, 11):
        np.testing.assert_array_equal(visited(rest, order.Share(8), start, 18), seen[8 * start :])
    for hosts in (1, 3):
        counted = []
        for host in range(hosts):
            for chunk in rest.evaluation_chunks(order.Share(4 * hosts, host, hosts)).as_numpy_iterator():
                counted += chunk["label"][chunk["weight"] > 0].tolist()
        assert sorted(counted) == kept

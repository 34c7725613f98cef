"""Rows over TensorFlow Datasets: TFDS's own builders, prepared on disk with a few invented examples."""

import dataclasses
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from invented_tfds import prepare
from slowness import slow_but
from tensorflow_datasets.core.download import downloader

from keras_vit import data
from keras_vit.data.datasets import builders, catalogue
from keras_vit.data.datasets.schemes import SPLITS
from keras_vit.data.reading import order, sources, stream
from keras_vit.data.reading.sources import Pixels
from keras_vit.errors import DataError
from keras_vit.models import Preprocessing
from keras_vit.trainers.plan import augmentation_for, recipe_for
from keras_vit.trainers.settings import Settings

SIZE = Preprocessing((8, 8))


def examples_of(name, split, folder):
    return data.load(name, split, data_dir=folder, download=False)


def seen(examples):
    """(first pixel, label) of every example, in order."""
    batches = list(examples.evaluation(16, SIZE, dtype="uint8"))
    images, labels, weights = (np.concatenate(column) for column in zip(*batches, strict=True))
    return images[:, 0, 0, 0][weights > 0], labels[weights > 0]


COUNTS = {"train": 100, "validation": 30, "test": 20}
# Counts of train, validation and test by the percentages of task_adaptation, of 100, 30 and 20 examples.
NINETY, ALL, SIXTY, EIGHTY = (90, 10, 20), (100, 30, 20), (60, 20, 20), (80, 10, 10)
TASKS = {
    "caltech101": ("caltech101", NINETY, 102),
    "cifar100": ("cifar100", NINETY, 100),
    "dtd": ("dtd", ALL, 47),
    "oxford_flowers102": ("oxford_flowers102", ALL, 102),
    "oxford_iiit_pet": ("oxford_iiit_pet", (80, 20, 20), 37),
    "sun397": ("sun397/tfds", ALL, 397),
    "svhn": ("svhn_cropped", NINETY, 10),
    "patch_camelyon": ("patch_camelyon", ALL, 2),
    "eurosat": ("eurosat/rgb", SIXTY, 10),
    "resisc45": ("resisc45", SIXTY, 45),
    "diabetic_retinopathy": ("diabetic_retinopathy_detection/btgraham-300", ALL, 5),
    "clevr_count_all": ("clevr", (90, 10, 30), 8),
    "clevr_closest_object_distance": ("clevr", (90, 10, 30), 6),
    "dmlab": ("dmlab", ALL, 6),
    "kitti_closest_vehicle_distance": ("kitti", ALL, 4),
    "dsprites_x_position": ("dsprites", EIGHTY, 16),
    "dsprites_orientation": ("dsprites", EIGHTY, 16),
    "smallnorb_azimuth": ("smallnorb", (100, 10, 10), 18),
    "smallnorb_elevation": ("smallnorb", (100, 10, 10), 9),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Gives the folder in which a builder is prepared, once for all tests."""
    root, done = tmp_path_factory.mktemp("tfds"), set()

    def folder(name):
        if name not in done:
            prepare(name, root, **COUNTS)
            done.add(name)
        return root

    return folder


def stored(name, split, folder):
    """TFDS's own reading of a split, as numpy."""
    config = tfds.ReadConfig(interleave_cycle_length=1)
    return list(tfds.as_numpy(tfds.builder(name, data_dir=folder).as_dataset(split=split, read_config=config)))


def distance(values, edges):
    return int(np.digitize(min(values), edges)) - 1


def vehicles(example):
    objects = example["objects"]
    return [z for kind, z in zip(objects["type"], objects["location"][:, 2], strict=True) if kind in (0, 1, 2)]


LABELS = {
    "clevr_count_all": lambda e: len(e["objects"]["shape"]) - 3,
    "clevr_closest_object_distance": lambda e: distance(e["objects"]["pixel_coords"][:, 2], [0, 8, 8.5, 9, 9.5, 10]),
    "kitti_closest_vehicle_distance": lambda e: distance([*vehicles(e), 1000], [-100, 8, 20, 999]),
    "dsprites_x_position": lambda e: e["label_x_position"] // 2,
    "dsprites_orientation": lambda e: int(e["label_orientation"] / 2.5),
    "smallnorb_azimuth": lambda e: e["label_azimuth"],
    "smallnorb_elevation": lambda e: e["label_elevation"],
}


def test_there_are_the_19_tasks():
    assert set(data.VTAB) == {f"vtab/{task}" for task in TASKS} and len(data.VTAB) == 19


@pytest.mark.parametrize(
    "task",
    slow_but(TASKS, "caltech101", "oxford_iiit_pet", "svhn", "clevr_count_all", "kitti_closest_vehicle_distance"),
)
def test_vtab(task, prepared):
    name, counts, classes = TASKS[task]
    folder = prepared(name)
    builder, row = builders.prepare(name, folder, download=False), data.CATALOGUE[f"vtab/{task}"]
    instructions = [builders.join_parts(builder, row, [split]) for split in SPLITS]
    assert tuple(builder.info.splits[instruction].num_examples for instruction in instructions) == counts
    train = examples_of(f"vtab/{task}", "train", folder)
    assert train.num_examples == counts[0] and train.num_classes == classes
    whole = stored(name, "train", folder)[: counts[0]]
    expected = [LABELS.get(task, lambda e: e["label"])(example) for example in whole]
    np.testing.assert_array_equal(train.source.labels, expected)
    for encoded, example in zip(train.source.stored.numpy()[::9], whole[::9], strict=True):
        np.testing.assert_array_equal(tf.io.decode_image(encoded), example["image"])


# arXiv 1912.11370, Supplement F: random flips and crops "for all tasks", but for these.
NO_FLIP = {"dsprites_orientation", "dsprites_x_position", "smallnorb_azimuth"}
NO_CROP = {
    "clevr_count_all",
    "clevr_closest_object_distance",
    "dmlab",
    "kitti_closest_vehicle_distance",
    "dsprites_x_position",
}


@pytest.mark.parametrize("task", TASKS)
def test_vtab_is_varied_as_kolesnikov_et_al_do(task):
    row = data.AUGMENTATIONS[data.CATALOGUE[f"vtab/{task}"].augmentation]
    crop = "resize" if task in NO_CROP else "resize_crop"
    assert row == data.Augmentation(crop=crop, flip=task not in NO_FLIP)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["eurosat", "dsprites_orientation", "clevr_count_all", "dsprites_x_position"])
@pytest.mark.parametrize("recipe", [None, "bit-hyperrule-small"])
def test_what_vtab_trains_on(task, recipe, prepared):
    """Of images that brighten to the right: some darken if they are mirrored, and edges are missing if cropped."""
    examples = examples_of(f"vtab/{task}", "train", prepared(TASKS[task][0]))
    ramps = np.broadcast_to(np.arange(0, 256, 5, "uint8")[None, :, None], (64, 52, 52, 1))
    examples = dataclasses.replace(examples, source=Pixels(ramps, np.zeros(64, "int32")))
    settings = Settings(dataset=examples.name, model="ViT-B/16", recipe=recipe)
    augmentation = augmentation_for(settings, recipe_for(settings, examples), examples)
    (images, _), *_ = examples.train(64, Preprocessing((24, 24)), augmentation=augmentation, steps=1, dtype="uint8")
    left, right = (images.numpy()[:, 0, column, 0].astype(int) for column in (0, -1))
    assert (left > right).any() == (task not in NO_FLIP)
    assert (np.ptp(np.minimum(left, right)) > 10) == (task not in NO_CROP)


def test_dsprites_are_black_and_white(tmp_path):
    prepare("dsprites", tmp_path, train=20)
    pixels, labels = seen(examples_of("vtab/dsprites_x_position", "train", tmp_path))
    whole = stored("dsprites", "train", tmp_path)[:16]
    np.testing.assert_array_equal(labels, [example["label_x_position"] // 2 for example in whole])
    np.testing.assert_array_equal(pixels, [int(example["image"][0, 0, 0]) * 255 % 256 for example in whole])


@pytest.mark.slow
def test_vtab_1k_is_800_and_200(tmp_path):
    prepare("eurosat/rgb", tmp_path, train=2000)
    whole = [example["label"] for example in stored("eurosat/rgb", "train", tmp_path)]
    for split, wanted in (("train", whole[:800]), ("validation", whole[1200:1400])):
        np.testing.assert_array_equal(examples_of("vtab/eurosat", split, tmp_path).source.labels, wanted)
    assert examples_of("vtab/eurosat", "train+validation", tmp_path).num_examples == 1000
    assert examples_of("vtab/eurosat", "test", tmp_path).num_examples == 400


@pytest.mark.parametrize(
    "name, counts", [("cifar10", (98, 2, 20)), ("oxford_iiit_pet", (90, 10, 20)), ("imagenet2012", (99, 1, 30))]
)
def test_development_splits_of_the_paper(name, counts, prepared):
    folder = prepared(name)
    assert tuple(examples_of(name, s, folder).num_examples for s in ("train", "validation", "test")) == counts
    parts = [examples_of(name, s, folder).source for s in ("train", "validation", "train+validation")]
    train, validation, both = (part.stored.numpy() for part in parts)
    np.testing.assert_array_equal(np.concatenate([train, validation]), both)


@pytest.mark.parametrize("percent, total, kept", [(98, 50_000, 49_000), (99, 1_281_167, 1_268_355), (90, 3680, 3312)])
def test_development_splits_at_full_size(percent, total, kept):
    assert catalogue.Part("train", 0, percent).bounds(total) == (0, kept)
    assert catalogue.Part("train", percent, 100).bounds(total) == (kept, total)


def test_imagenet21k_holds_out_the_first():
    row = data.CATALOGUE["imagenet21k"]
    assert row.train.bounds(14_197_122) == (51_200, 14_197_122)
    assert row.validation.bounds(14_197_122) == (0, 51_200)


def test_real_labels_are_sets_and_empty_ones_do_not_count(prepared):
    folder = prepared("imagenet2012_real")
    examples = examples_of("imagenet2012_real", "test", folder)
    expected = [set(example["real_label"]) for example in stored("imagenet2012_real", "validation", folder)]
    (images, labels, weights), *_ = examples.evaluation(30, SIZE)
    assert [set(np.flatnonzero(label)) for label in labels.numpy()] == expected
    np.testing.assert_array_equal(weights, [float(bool(classes)) for classes in expected])
    with pytest.raises(data.DataError, match="no examples for 'train'"):
        examples_of("imagenet2012_real", "train", folder)


def test_any_builder_by_its_tfds_name(prepared):
    folder = prepared("cifar10")
    assert examples_of("tfds:cifar10", "train", folder).num_examples == 100  # it has a validation split of its own
    assert examples_of("tfds:cifar10", "train[:10%]", folder).num_examples == 10
    assert examples_of("tfds:cifar10", "test", folder).num_classes == 10
    with pytest.raises(data.DataError, match="but not 'trian'"):
        examples_of("tfds:cifar10", "trian", folder)
    with pytest.raises(data.DataError, match="image and its class"):
        examples_of("tfds:clevr", "train", prepared("clevr"))
    with pytest.raises(data.DataError, match="image and its class"):
        examples_of("tfds:imdb_reviews", "train", prepared("imdb_reviews"))  # texts and their classes
    with pytest.raises(data.DataError, match="has no 'no_such_builder'"):
        examples_of("tfds:no_such_builder", "train", folder)
    with pytest.raises(data.DataError, match="not prepared"):
        examples_of("cifar100", "train", folder / "empty")


@pytest.mark.parametrize(
    ("name", "folder", "says"),
    [
        (
            "cifar100",
            "empty",
            r"cifar100 is not prepared in .*/empty/cifar100/\d.* KERAS_VIT_OFFLINE forbids fetching it",
        ),
        ("tfds:mnist", "empty", r"mnist is not prepared in .*/empty/mnist/"),
        ("tfds:huggingface:mnist", "empty", "huggingface:mnist is on the network, and KERAS_VIT_OFFLINE forbids it"),
        ("tfds:mnist", "gs://bucket/folder", "gs://bucket/folder is on the network, and KERAS_VIT_OFFLINE forbids it"),
    ],
)
def test_offline(name, folder, says, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", None)
    with pytest.raises(data.DataError, match=says):
        data.load(name, data_dir=folder if "://" in folder else tmp_path / folder)


@pytest.mark.parametrize("name", ["tfds:eurosat/rbg", "tfds:foo bar"])
def test_names_and_configurations_that_tfds_does_not_know(name, tmp_path):
    with pytest.raises(data.DataError, match=name.partition(":")[2]):
        data.load(name, data_dir=tmp_path, download=False)


def test_a_server_that_is_not_there(tmp_path, monkeypatch, caplog):
    """The pauses between TFDS's tries, three minutes by itself, are counted, not slept; nothing listens at port 1."""

    def fetch(builder):
        tries = downloader.get_downloader()
        with tries.tqdm():
            tries.download("http://127.0.0.1:1/mnist", tmp_path).get()

    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fetch)
    with pytest.raises(DataError, match="mnist is not prepared in .*, and 127.0.0.1 cannot be reached"):
        data.load("tfds:mnist", data_dir=tmp_path)
    assert 0 < sum(slept) < 10 and not caplog.messages


def test_what_is_prepared_loads_offline(prepared, monkeypatch):
    folder = prepared("cifar10")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", None)
    for name in ("cifar10", "tfds:cifar10", "tfds:cifar10:3.*.*"):
        assert data.load(name, "test", data_dir=folder).num_examples


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """240 numbered images in 7 files, read from disk: a few at a time, in small windows."""
    folder = tmp_path_factory.mktemp("sharded")
    config = tfds.download.DownloadConfig(num_shards=7)
    prepare("eurosat/rgb", folder, config, train=240)
    with mock.patch.object(builders, "IN_MEMORY", 0):
        source, classes = builders.open_builder("eurosat/rgb", "train+validation", data_dir=folder, download=False)
    with mock.patch.object(stream, "GROUP", 3), mock.patch.object(source, "window", 16):
        yield data.Examples("tfds:eurosat/rgb", "train+validation", classes, source, "none")


def numbers(batches):
    """The first pixels of batches of uint8 images: (batches, n)."""
    return np.stack([batch[0][:, 0, 0, 0] for batch in batches])


def visited(source, share, start=0, stop=30):
    chunks = source.training_chunks(share, start, stop, 5).as_numpy_iterator()
    return np.concatenate([chunk["index"] for chunk in chunks])


@pytest.mark.slow
def test_a_stream_has_every_example_once_an_epoch_and_resumes(sharded):
    seen = visited(sharded.source, order.Share(24))
    epochs = seen.reshape(3, 240)
    for epoch in epochs:
        assert sorted(epoch) == list(range(240))
    assert np.mean(epochs[0] == epochs[1]) < 0.1
    assert np.abs(np.diff(epochs[0])).mean() > 40
    for start in (1, 7, 10, 13, 29):
        stop = min(start + 11, 30)  # into the next epoch
        resumed = visited(sharded.source, order.Share(24), start, stop)
        np.testing.assert_array_equal(resumed, seen[24 * start : 24 * stop])


@pytest.mark.parametrize("hosts, files", slow_but([(2, 7), (4, 3)], (2, 7)))
def test_a_stream_is_shared_by_hosts(hosts, files, sharded):
    """By files, which are cut where there are more hosts."""
    source = stream.Stream(sharded.source.instructions[:files], sharded.source.parse, window=16)
    stop = 3 + source.num_examples  # the rest of an epoch and all of the next, also for the host with most files
    parts = [set(visited(source, order.Share(4 * hosts, host, hosts), 3, stop // hosts)) for host in range(hosts)]
    assert sorted(number for part in parts for number in part) == list(range(source.num_examples))
    counted, lengths = [], set()
    for host in range(hosts):
        chunks = list(source.evaluation_chunks(order.Share(4 * hosts, host, hosts)).as_numpy_iterator())
        lengths.add(len(chunks))
        counted += [index for chunk in chunks for index in chunk["index"][chunk["weight"] > 0]]
    assert sorted(counted) == list(range(source.num_examples)) and len(lengths) == 1


def test_a_subset_of_a_stream_is_read_into_memory(sharded):
    chosen = sources.choose_numbers(240, 30, seed=1)
    subset = sources.take_examples(sharded.source, 30, seed=1, stratified=False)
    value = {}
    for chunk in sharded.source.evaluation_chunks(order.Share(24)):
        for index, encoded in zip(chunk["index"].numpy(), chunk["data"], strict=True):
            value[int(index)] = int(sharded.source.read_part(encoded, sources.whole_image, 3)[0, 0, 0])
    stored = [int(subset.read_part(encoded, sources.whole_image, 3)[0, 0, 0]) for encoded in subset.stored]
    assert sorted(stored) == sorted(value[number] for number in chosen)
    np.testing.assert_array_equal(subset.labels, [pixel % 10 for pixel in stored])
    with pytest.raises(DataError, match="stratified=True needs examples in memory"):
        sources.take_examples(sharded.source, 30, seed=1, stratified=True)
    some = sources.take_examples(sources.leave_out(sharded.source, np.arange(100)), 20, seed=1, stratified=False)
    of_value = {pixel: number for number, pixel in value.items()}
    numbers = [of_value[int(some.read_part(encoded, sources.whole_image, 3)[0, 0, 0])] for encoded in some.stored]
    assert len(set(numbers)) == 20 and min(numbers) >= 100


@pytest.mark.slow
def test_batches_of_a_stream(sharded):
    for images, labels in sharded.train(24, SIZE, start=5, steps=12, dtype="uint8"):
        np.testing.assert_array_equal(images[:, 0, 0, 0] % 10, labels)
    batches = list(sharded.evaluation(100, SIZE, dtype="uint8"))
    assert [float(tf.reduce_sum(weights)) for _, _, weights in batches] == [100, 100, 40]

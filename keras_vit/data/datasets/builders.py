"""TensorFlow Datasets as sources: small splits are read into memory, large ones stay on disk.

A class is a feature of the stored example, or computed from it, as VTAB's structured tasks (task_adaptation/data) and
ImageNet ReaL ask: a function of the example, a dict as TFDS has it, to its class, an integer (), or for ReaL its
classes, float (1000,).
"""

import contextlib
import logging
import os
import re
from urllib.parse import urlsplit

import numpy as np
import requests
import tensorflow as tf

from keras_vit.data.datasets.arrays import require_classes
from keras_vit.data.datasets.catalogue import CATALOGUE, DatasetRow, Part
from keras_vit.data.datasets.schemes import SPLITS, parse_splits
from keras_vit.data.reading.sources import Indexed
from keras_vit.data.reading.stream import Stream
from keras_vit.errors import DataError
from keras_vit.files import is_offline

IN_MEMORY = 2 * 2**30  # bytes of encoded images up to which a split is kept in memory
RETRIES = 5  # of TFDS, after 0, 0.4, 0.8, 1.6 and 3.2 seconds
# TFDS looks "community:name" up in the network, but not "name:1.0.0".
COMMUNITY = re.compile(r"[^/:]*:(?![\d*]|experimental)")
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
NO_VEHICLE = 1000.0


def find_interval(value, lower):
    """The number of the interval (lower, next lower] that `value` is in; `lower` are the lower bounds of all."""
    return tf.reduce_sum(tf.cast(value > tf.constant(lower, value.dtype), tf.int32)) - 1


def find_vehicle(example):
    """The distance of the nearest car, van or truck (types 0 to 2); class 3 if there is none."""
    objects = example["objects"]
    away = tf.where(objects["type"] < 3, objects["location"][:, 2], NO_VEHICLE)
    return find_interval(tf.reduce_min(tf.concat([away, [NO_VEHICLE]], 0)), KITTI_DISTANCES)


LABELS = {
    "clevr_count_all": lambda example: tf.size(example["objects"]["size"]) - 3,  # 3 to 10 objects
    "clevr_closest_object_distance": lambda example: find_interval(
        tf.reduce_min(example["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCES
    ),
    "kitti_closest_vehicle_distance": find_vehicle,
    "dsprites_x_position": lambda example: example["label_x_position"] // 2,  # 32 places in 16 classes
    "dsprites_orientation": lambda example: example["label_orientation"] * 2 // 5,  # 40 angles, 2.5 of them in a class
    "imagenet2012_real": lambda example: tf.minimum(tf.reduce_sum(tf.one_hot(example["real_label"], 1000), 0), 1.0),
}


@contextlib.contextmanager
def few_retries():
    """Lets TFDS try a server again for about six seconds, instead of three minutes with a line in the log for each
    try."""
    from tensorflow_datasets.core.download import downloader

    log = logging.getLogger("urllib3.connectionpool")
    before = downloader.MAX_RETRIES, log.level
    downloader.MAX_RETRIES = RETRIES
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        downloader.MAX_RETRIES = before[0]
        log.setLevel(before[1])


def require_local(name, data_dir):
    """Refuses names and folders that TFDS looks up on the network, if the network may not be used."""
    remote = name if COMMUNITY.match(name) else data_dir if "://" in str(data_dir) else None
    if remote and is_offline():
        raise DataError(
            f"{remote} is on the network, and KERAS_VIT_OFFLINE forbids it. Unset it, or give a local data_dir."
        )


def prepare(name, data_dir, download):
    """The TFDS builder of a name, with its files on the disk."""
    import tensorflow_datasets as tfds

    require_local(name, data_dir or os.environ.get("TFDS_DATA_DIR"))
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if download and not is_offline():
            with few_retries():
                builder.download_and_prepare()
    except tfds.core.DatasetNotFoundError as error:
        raise DataError(
            f"TensorFlow Datasets has no {name!r}, and {data_dir or 'its folder'} holds no prepared files of it."
        ) from error
    except requests.exceptions.ConnectionError as error:
        host = urlsplit(getattr(error.request, "url", "")).hostname or "the network"
        raise DataError(
            f"{name} is not prepared in {data_dir or 'its folder'}, and {host} cannot be reached to fetch it. Try "
            "again when the network is there, or prepare it elsewhere and copy it there."
        ) from error
    # A name or configuration that TFDS does not know is a ValueError; its own folders in a cloud raise OpError.
    except (AssertionError, ValueError, OSError, tf.errors.OpError, tfds.download.DownloadError) as error:
        raise DataError(f"TensorFlow Datasets cannot prepare {name}: {error}") from error
    if not builder.info.splits:
        remedy = "Load it with download=True, or give data_dir."
        if is_offline():
            remedy = "KERAS_VIT_OFFLINE forbids fetching it: unset it, or prepare the dataset elsewhere and copy it."
        raise DataError(f"{name} is not prepared in {builder.data_dir}. {remedy}")
    return builder


def full_name(name):
    """Which of TFDS's builders, configurations and versions a row of CATALOGUE reads, such as "eurosat/rgb/2.0.0"."""
    return prepare(CATALOGUE[name].builder, data_dir=None, download=True).info.full_name


def row_of_builder(builder):
    """A row for a builder that is not in CATALOGUE, with its own splits; if it lacks validation, a tenth of train."""
    from tensorflow_datasets.core.features import Image

    splits, keys, features = builder.info.splits, builder.info.supervised_keys, dict(builder.info.features.items())
    if not keys or not isinstance(features.get(keys[0]), Image) or not hasattr(features.get(keys[1]), "num_classes"):
        raise DataError(f"{builder.name} does not say which of its features are the image and its class.")
    held_out = "validation" not in splits
    return DatasetRow(
        builder=builder.name,
        train=Part("train", high=90 if held_out else 100),
        validation=Part("train", low=90) if held_out else Part("validation"),
        test=Part("test"),
        label=keys[1],
    )


def count_examples(builder, instruction):
    """The number of examples of a split, or of another instruction for TFDS."""
    try:
        return builder.info.splits[instruction].num_examples
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{builder.name} has the splits {', '.join(builder.info.splits)}, but not {instruction!r}."
        ) from error


def join_parts(builder, row, names):
    """The instruction for TFDS, in whole examples, such as "train[0:49000]"; `names` are splits of the row."""
    wanted = []
    for name in names:
        part = getattr(row, name)
        if part is None:
            raise DataError(f"{builder.name} has no examples for {name!r}.")
        first, end = part.bounds(count_examples(builder, part.name))
        wanted.append(f"{part.name}[{first}:{end}]")
    return "+".join(wanted)


def read_class_names(builder, row):
    if row.classes:
        return tuple(str(number) for number in range(row.classes))
    feature = builder.info.features[row.label]
    return tuple(feature.names or [str(number) for number in range(feature.num_classes)])


def stored_bytes(builder, instruction):
    """About how many bytes the records of a split have: those of the largest split's examples, times their number."""
    splits = builder.info.splits.values()
    return count_examples(builder, instruction) * max(split.num_bytes / max(split.num_examples, 1) for split in splits)


def read_into_memory(builder, instruction, image, select, row, num_classes):
    import tensorflow_datasets as tfds

    examples = builder.as_dataset(
        split=instruction,
        decoders={image: tfds.decode.SkipDecoding()},
        # One file after the other, so that examples have the same numbers wherever they are read.
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
    )
    batches = list(examples.map(select).batch(1024).as_numpy_iterator())
    if not batches:
        raise DataError(f"The split {instruction} of {builder.name} has no examples.")
    data, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
    if labels.ndim == 1:
        require_classes(labels, num_classes, builder.name)
    return Indexed(data, labels, row.gain)


def stream_from_disk(builder, instruction, image, select, row):
    import tensorflow_datasets as tfds

    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        raise DataError(
            f"{builder.name} is prepared as {builder.info.file_format.value}. A dataset too large for memory is read "
            f"from tfrecord files only: prepare it with file_format='tfrecord'."
        )
    features, decoders = builder.info.features, {image: tfds.decode.SkipDecoding()}

    def parse(record):
        return select(features.deserialize_example(record, decoders=decoders))

    return Stream(builder.info.splits[instruction].file_instructions, parse, row.gain)


def open_instruction(builder, row, instruction):
    keys = builder.info.supervised_keys
    image = keys[0] if keys and keys[0] in builder.info.features else "image"
    classes = read_class_names(builder, row)

    def select(example):
        label = LABELS[row.label](example) if row.label in LABELS else example[row.label]
        return example[image], tf.cast(label, tf.int32) if label.dtype.is_integer else label

    if stored_bytes(builder, instruction) <= IN_MEMORY:
        return read_into_memory(builder, instruction, image, select, row, len(classes)), classes
    return stream_from_disk(builder, instruction, image, select, row), classes


def open_catalogued(name, split, *, data_dir=None, download=True):
    """(source, class names) of a split of a row of CATALOGUE, as `schemes` asks; options as `data.load`."""
    row, names = CATALOGUE[name], parse_splits(split, name)
    builder = prepare(row.builder, data_dir, download)
    return open_instruction(builder, row, join_parts(builder, row, names))


def open_builder(name, split, *, data_dir=None, download=True):
    """(source, class names) of a split of any TFDS builder, as `schemes` asks: one of ours, or any that TFDS reads."""
    builder = prepare(name, data_dir, download)
    row = row_of_builder(builder)
    if set(split.split("+")) <= set(SPLITS):
        split = join_parts(builder, row, parse_splits(split, name))
    return open_instruction(builder, row, split)

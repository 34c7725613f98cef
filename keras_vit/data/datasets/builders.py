"""TensorFlow Datasets as sources: small splits are read into memory, large ones stay on disk."""

import os
import re

import numpy as np
import tensorflow as tf

from keras_vit.data.datasets.arrays import check_labels
from keras_vit.data.datasets.catalogue import CATALOGUE, Part, Row
from keras_vit.data.datasets.targets import LABELS
from keras_vit.data.errors import DataError
from keras_vit.data.reading.sources import Encoded
from keras_vit.data.reading.stream import Stream
from keras_vit.offline import is_offline
from keras_vit.text import printable

IN_MEMORY = 2 * 2**30  # bytes


def source(name, split, data_dir=None, download=True, in_memory=IN_MEMORY):
    """A split of a row of CATALOGUE, or of any TFDS builder ("tfds:NAME"): (source, class names, augmentation).

    Args:
        name: of the row, or "tfds:" and TFDS's name.
        split: "train", "validation", "test", "train+validation"; of "tfds:NAME" also any split TFDS understands.
        data_dir: TFDS's folder; None for its default.
        download: downloads and prepares what is not there, unless KERAS_VIT_OFFLINE=1.
        in_memory: bytes up to which a split's encoded pictures are kept in memory.

    Raises:
        DataError: when TFDS has no such builder, split, or pair of picture and class, or cannot prepare it.
    """
    row = CATALOGUE.get(name)
    builder = prepared(row.builder if row else name.removeprefix("tfds:"), data_dir, download)
    row = row or generic(builder)
    wanted = instruction(builder, row, split)
    image, class_names = described(builder, row)

    def parts(example):
        return example[image], label(example, row)

    if size(builder, wanted) <= in_memory:
        found = in_memory_source(builder, wanted, image, parts, row, len(class_names))
    else:
        found = stream(builder, wanted, image, parts, row)
    return found, class_names, row.augmentation


def prepared(name, data_dir, download):
    import tensorflow_datasets as tfds

    download = download and not is_offline()
    require_local(name, data_dir or os.environ.get("TFDS_DATA_DIR"))
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if download:
            builder.download_and_prepare()
    except tfds.core.DatasetNotFoundError as error:
        raise DataError(
            f"TensorFlow Datasets has no {name!r}, and {data_dir or 'its folder'} holds no prepared files of it."
        ) from error
    except (AssertionError, OSError, ConnectionError, tfds.download.DownloadError) as error:
        raise DataError(f"TensorFlow Datasets cannot prepare {name}: {error}") from error
    if not builder.info.splits:
        way = "Load it with download=True, or give data_dir."
        if is_offline():
            way = "KERAS_VIT_OFFLINE forbids fetching it: unset it, or prepare the dataset elsewhere and put it there."
        raise DataError(f"{name} is not prepared in {builder.data_dir}. {way}")
    return builder


def require_local(name, data_dir):
    """Refuses, while the network is not to be used, names and folders that TFDS looks up in it."""
    far = [name] if re.match(r"[^/:]*:(?![\d*]|experimental)", name) else []  # "community:name", not "name:1.0.0"
    far += [data_dir] if "://" in str(data_dir) else []
    if far and is_offline():
        raise DataError(
            f"KERAS_VIT_OFFLINE forbids the network, where {printable(far[0])} is. Unset it, or give a local data_dir."
        )


def generic(builder):
    """The row of a builder that has none: its own splits, a tenth of train where it has no validation split."""
    splits, keys = builder.info.splits, builder.info.supervised_keys
    if not keys or not hasattr(builder.info.features[keys[1]], "num_classes"):
        raise DataError(f"{builder.name} does not say which of its features are the picture and its class.")
    held_out = "validation" not in splits
    return Row(
        builder.name,
        Part("train", 0, 90 if held_out else 100),
        Part("train", 90, 100) if held_out else Part("validation"),
        Part("test"),
        label=keys[1],
    )


def instruction(builder, row, split):
    """What TFDS is asked for, in whole examples, such as "train[0:49000]"."""
    parts = {"train": row.train, "validation": row.validation, "test": row.test}
    names = split.split("+")
    if not set(names) <= set(parts):
        if row in CATALOGUE.values():
            raise DataError(f"The splits are {', '.join(parts)}, joined by +. Received: {split!r}.")
        return known(builder, split)
    wanted = []
    for name, part in ((name, parts[name]) for name in names):
        if part is None:
            raise DataError(f"{builder.name} has no examples for {name!r}.")
        if part.name not in builder.info.splits:
            raise DataError(f"{builder.name} has no split {part.name!r}, but {', '.join(builder.info.splits)}.")
        first, end = part.bounds(builder.info.splits[part.name].num_examples)
        wanted.append(f"{part.name}[{first}:{end}]")
    return "+".join(wanted)


def known(builder, split):
    try:
        builder.info.splits[split]
    except (KeyError, ValueError) as error:
        raise DataError(f"{builder.name} has no split {split!r}, but {', '.join(builder.info.splits)}.") from error
    return split


def described(builder, row):
    """(name of the picture's feature, class names)."""
    keys = builder.info.supervised_keys
    image = keys[0] if keys and keys[0] in builder.info.features else "image"
    if row.classes:
        return image, tuple(str(number) for number in range(row.classes))
    feature = builder.info.features[row.label]
    return image, tuple(feature.names or [str(number) for number in range(feature.num_classes)])


def label(example, row):
    found = LABELS[row.label](example) if row.label in LABELS else example[row.label]
    return tf.cast(found, tf.int32) if found.dtype.is_integer else found


def size(builder, wanted):
    """About how many bytes of a split's records there are."""
    splits = builder.info.splits
    bytes_each = max(split.num_bytes / max(split.num_examples, 1) for split in splits.values())
    return splits[wanted].num_examples * bytes_each


def in_memory_source(builder, wanted, image, parts, row, num_classes):
    import tensorflow_datasets as tfds

    examples = builder.as_dataset(
        split=wanted,
        decoders={image: tfds.decode.SkipDecoding()},
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
    )
    batches = list(examples.map(parts).batch(1024).as_numpy_iterator())
    if not batches:
        raise DataError(f"The split {wanted} of {builder.name} has no examples.")
    data, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
    if labels.ndim == 1:
        check_labels(labels, num_classes, builder.name)
    return Encoded(data, labels, row.gain)


def stream(builder, wanted, image, parts, row):
    import tensorflow_datasets as tfds

    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        raise DataError(
            f"{builder.name} is prepared as {builder.info.file_format.value}; too large for memory, it is read from "
            f"tfrecord files only. Prepare it with file_format='tfrecord', or raise in_memory."
        )
    features, decoders = builder.info.features, {image: tfds.decode.SkipDecoding()}

    def parse(record):
        return parts(features.deserialize_example(record, decoders=decoders))

    return Stream(builder.info.splits[wanted].file_instructions, parse, row.gain)

"""Datasets that come as arrays: scikit-learn's digits and Fashion-MNIST, their splits and their classes."""

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from keras_vit.data.datasets.schemes import parse_splits
from keras_vit.errors import DataError

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
IMAGES, LABELS = 0x803, 0x801  # magic numbers of idx files: uint8, 3 and 1 dimensions


def cut_train(images, labels):
    """{"train": (images, labels), "validation": the last tenth} of the examples to train on."""
    cut = len(labels) * 9 // 10
    return {"train": (images[:cut], labels[:cut]), "validation": (images[cut:], labels[cut:])}


def join(parts, splits):
    """(images, labels) of several splits, one after the other."""
    images, labels = zip(*(parts[name] for name in splits), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def require_classes(labels, num_classes, where):
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            f"Example {wrong[0]} of {where} has the label {labels[wrong[0]]}; labels must be from 0 to "
            f"{num_classes - 1}."
        )


def read_digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 8, 8, 1) and labels int32 (n,) of scikit-learn's digits; a fifth of each class is for "test".

    >>> images, labels = read_digits("test")
    >>> images.shape, labels.dtype
    ((360, 8, 8, 1), dtype('int32'))
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    splits = parse_splits(split, "digits")
    stored = load_digits()
    images = (stored.images[..., None] * (255 / 16)).astype("uint8")  # of 17 levels
    labels = stored.target.astype("int32")
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return join({**cut_train(train, train_labels), "test": (test, test_labels)}, splits)


def open_digits(name, split):
    from keras_vit.data.reading.sources import Pixels

    return Pixels(*read_digits(split)), DIGITS


def read_idx(path, magic):
    """A gzipped idx file of uint8, Fashion-MNIST's (arXiv 1708.07747), as an array."""
    try:
        data = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"There is no file {path}. Expected Fashion-MNIST's four idx.gz files in that folder."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    dimensions = magic & 0xFF
    header = np.frombuffer(data[: 4 + 4 * dimensions].ljust(4 + 4 * dimensions, b"\0"), ">i4")
    values = np.frombuffer(data, "uint8", offset=min(len(data), 4 + 4 * dimensions))
    if header[0] != magic or values.size != np.prod(header[1:]):
        raise DataError(f"{path} is not an idx file of {dimensions}-dimensional uint8, or is cut off.")
    return values.reshape(header[1:])


def read_pair(folder, prefix):
    """Images uint8 (n, 28, 28, 1) and labels int32 (n,) of the files that begin with `prefix`."""
    images = read_idx(Path(folder) / f"{prefix}-images-idx3-ubyte.gz", IMAGES)
    labels = read_idx(Path(folder) / f"{prefix}-labels-idx1-ubyte.gz", LABELS)
    if len(images) != len(labels):
        raise DataError(f"{folder} has {len(images)} {prefix} images and {len(labels)} labels.")
    require_classes(labels, len(FASHION), folder)
    return images[..., None], labels.astype("int32")


def open_fashion_mnist(folder, split):
    """(source, class names) of a split of the four files that Zalando publishes, as `schemes` asks."""
    from keras_vit.data.reading.sources import Pixels

    splits, folder = parse_splits(split, "fashion_mnist"), os.path.expanduser(folder)
    parts = {} if splits == ["test"] else cut_train(*read_pair(folder, "train"))
    if "test" in splits:
        parts["test"] = read_pair(folder, "t10k")
    return Pixels(*join(parts, splits)), FASHION

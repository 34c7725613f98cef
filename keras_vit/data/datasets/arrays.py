"""Small datasets that come with packages: scikit-learn's digits, Fashion-MNIST's files."""

import gzip
from pathlib import Path

import numpy as np

from keras_vit.data.errors import DataError

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
IMAGES, LABELS = 0x803, 0x801  # magic numbers: uint8, 3 and 1 dimensions


def digits(split):
    """scikit-learn's 1,797 digits: images uint8 (n, 8, 8, 1), labels int32; a fifth for "test", as in the demo."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = (data.images[..., None] * (255 / 16)).astype("uint8")
    train, test, train_labels, test_labels = train_test_split(
        images, data.target.astype("int32"), test_size=0.2, random_state=0, stratify=data.target
    )
    return select("digits", split, (train, train_labels), (test, test_labels))


def fashion_mnist(folder, split):
    """Zalando's files train-images-idx3-ubyte.gz ...: images uint8 (n, 28, 28, 1), labels int32.

    Raises:
        DataError: when a file is missing, damaged or not of this kind, or for an unknown split.
    """

    def pair(prefix):
        images = idx(Path(folder) / f"{prefix}-images-idx3-ubyte.gz", IMAGES)
        labels = idx(Path(folder) / f"{prefix}-labels-idx1-ubyte.gz", LABELS)
        if len(images) != len(labels):
            raise DataError(f"{folder} has {len(images)} {prefix} images and {len(labels)} labels.")
        check_labels(labels, len(FASHION), folder)
        return images[..., None], labels.astype("int32")

    test = pair("t10k") if split == "test" else None
    return select("fashion_mnist", split, None if test else pair("train"), test)


def select(name, split, train, test):
    """(images, labels) of a split: "validation" is the last tenth of the training examples, "train" the rest."""
    if split == "test":
        return test
    if split not in ("train", "validation", "train+validation"):
        raise DataError(f"{name} has the splits train, validation, train+validation and test. Received: {split!r}.")
    cut = len(train[1]) * 9 // 10
    wanted = {"train": slice(cut), "validation": slice(cut, None), "train+validation": slice(None)}[split]
    return train[0][wanted], train[1][wanted]


def idx(path, magic):
    """A gzipped idx file of uint8 as an array."""
    try:
        data = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"There is no file {path}. Expected Fashion-MNIST's four idx.gz files in that folder."
        ) from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    dimensions = magic & 0xFF
    header = np.frombuffer(data[: 4 + 4 * dimensions].ljust(4 + 4 * dimensions, b"\0"), ">i4")
    values = np.frombuffer(data, "uint8", offset=min(len(data), 4 + 4 * dimensions))
    if header[0] != magic or values.size != np.prod(header[1:]):
        raise DataError(f"{path} is not an idx file of {dimensions} dimensions of bytes, or is cut off.")
    return values.reshape(header[1:])


def check_labels(labels, num_classes, where):
    """Raises DataError for a label that is no class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            f"Example {wrong[0]} of {where} has the label {labels[wrong[0]]}; labels must be from 0 to "
            f"{num_classes - 1}."
        )

"""Zalando's Fashion-MNIST (arXiv 1708.07747), from the four files that its authors publish."""

import gzip
from pathlib import Path

import numpy as np

from keras_vit.data.datasets.arrays import require_classes, require_split, select_split
from keras_vit.data.errors import DataError
from keras_vit.data.reading.sources import Pixels

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
IMAGES, LABELS = 0x803, 0x801  # magic numbers: uint8, 3 and 1 dimensions


def read_idx(path, magic):
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
        raise DataError(f"{path} is not an idx file of {dimensions}-dimensional uint8, or is cut off.")
    return values.reshape(header[1:])


def read_pair(folder, prefix):
    """Images uint8 (n, 28, 28, 1) and labels int32 (n,) of the files that begin with `prefix`."""
    images = read_idx(Path(folder) / f"{prefix}-images-idx3-ubyte.gz", IMAGES)
    labels = read_idx(Path(folder) / f"{prefix}-labels-idx1-ubyte.gz", LABELS)
    if len(images) != len(labels):
        raise DataError(f"{folder} has {len(images)} {prefix} images and {len(labels)} labels.")
    require_classes(labels, len(CLASSES), folder)
    return images[..., None], labels.astype("int32")


def open_split(folder, split):
    """(source, class names) of a split, as `schemes` asks.

    Raises:
        DataError: when a file is missing, damaged or not of this kind, or for an unknown split.
    """
    require_split("fashion_mnist", split)
    if split == "test":
        return Pixels(*read_pair(folder, "t10k")), CLASSES
    return Pixels(*select_split(split, *read_pair(folder, "train"))), CLASSES

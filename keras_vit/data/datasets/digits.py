"""The 8 x 8 handwritten digits that scikit-learn ships: small enough to train on in a test."""

import numpy as np

from keras_vit.data.datasets.arrays import require_split, select_split

CLASSES = tuple("0123456789")


def read_split(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 8, 8, 1) and labels int32 (n,) of a split; a fifth of each class is for "test".

    >>> images, labels = read_split("test")
    >>> images.shape, labels.dtype
    ((360, 8, 8, 1), dtype('int32'))
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    require_split("digits", split)
    stored = load_digits()
    images = (stored.images[..., None] * (255 / 16)).astype("uint8")  # of 17 levels
    labels = stored.target.astype("int32")
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return (test, test_labels) if split == "test" else select_split(split, train, train_labels)


def open_split(name, split):
    """(source, class names) of a split, as `schemes` asks."""
    from keras_vit.data.reading.sources import Pixels

    return Pixels(*read_split(split)), CLASSES

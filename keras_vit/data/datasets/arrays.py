"""Datasets that come as arrays: their splits, and whether their labels are classes."""

import numpy as np

from keras_vit.data.errors import DataError

SPLITS = ("train", "validation", "train+validation", "test")


def require_split(name, split):
    """Raises DataError for a split that a dataset of arrays does not have."""
    if split not in SPLITS:
        raise DataError(f"{name} has the splits {', '.join(SPLITS)}. Received: {split!r}.")


def select_split(split, images, labels):
    """(images, labels) of "train", "validation" (the last tenth) or both, of the examples to train on."""
    cut = len(labels) * 9 // 10
    wanted = {"train": slice(cut), "validation": slice(cut, None), "train+validation": slice(None)}[split]
    return images[wanted], labels[wanted]


def require_classes(labels, num_classes, where):
    """Raises DataError for a label that is not the number of a class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
        raise DataError(
            f"Example {wrong[0]} of {where} has the label {labels[wrong[0]]}; labels must be from 0 to "
            f"{num_classes - 1}."
        )

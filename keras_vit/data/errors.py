"""Errors of data, also those raised inside TensorFlow's pipelines."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from keras_vit.errors import KerasVitError

# {split: the names that a dataset may give it}
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


class DataError(KerasVitError, ValueError):
    """Images or labels are unfit for training or evaluation, or a dataset or split does not exist."""


def parse_splits(split: str, dataset: str) -> list[str]:
    """The splits in a name such as "train+validation", each once.

    Raises:
        DataError: for a name that is no split; `dataset` is the subject of its message.
    """
    names = list(dict.fromkeys(split.split("+")))
    if not set(names) <= set(SPLITS):
        raise DataError(f"{dataset} has the splits {', '.join(SPLITS)}, joined by +. Received: {split!r}.")
    return names


@contextmanager
def data_errors() -> Iterator[None]:
    """Raises a `DataError` from inside a dataset itself, without TensorFlow's error around it.

    Use it around code that takes batches: `fit`, `evaluate` or a loop.

    >>> with keras_vit.data.data_errors():
    ...     (images, labels), *_ = keras_vit.data.load("digits").train(4, steps=1)
    >>> tuple(images.shape), tuple(labels.shape)
    ((4, 224, 224, 3), (4,))
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        sentence = re.search(r"^(?:\S+\.)?DataError: (.*)$", str(error), re.MULTILINE)
        if sentence is None:
            raise
        raise DataError(sentence[1]) from error

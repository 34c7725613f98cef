"""The error of data that are unfit or missing, and the names of splits."""

from keras_vit.errors import KerasVitError

# {split: the names that a dataset may give it}
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


class DataError(KerasVitError, ValueError):
    """Images or labels are unfit for training or evaluation, or a dataset or split does not exist."""


def parse_splits(split: str, dataset: str) -> list[str]:
    """The splits in a name such as "train+validation", each once; `dataset` is the subject of the error's message."""
    names = list(dict.fromkeys(split.split("+")))
    if not set(names) <= set(SPLITS):
        raise DataError(f"{dataset} has the splits {', '.join(SPLITS)}, joined by +. Received: {split!r}.")
    return names

"""Which examples of files a split has: those that the dataset states, or a part of train that a hash of names chooses.

An example is a tuple that begins with a path and a label. Paths are strings: a `Path` takes ten times as long for a
million files.
"""

import hashlib
import os

from keras_vit.data.datasets.image_files import SUFFIXES
from keras_vit.data.errors import DataError
from keras_vit.errors import quote_some

# {split: what a dataset may call it}
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
HELD_OUT = 0.1  # of the training images of a dataset that states no validation


def hash_name(name):
    """A number in [0, 1), drawn from a file's name within its dataset."""
    digest = hashlib.sha256(os.fsencode(name.replace(os.sep, "/"))).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def hold_out(examples, folder):
    """The examples for validation: of each class of two or more, at least one and never all.

    The paths begin with `folder`, "" for none.
    """
    start, classes = len(os.path.join(folder, "")), {}
    for example in examples:
        classes.setdefault(example[1], []).append((hash_name(os.fspath(example[0])[start:]), example))
    held_out = set()
    for images in classes.values():
        below = sum(number < HELD_OUT for number, _ in images)
        count = min(max(below, 1), len(images) - 1)
        held_out.update(example for _, example in sorted(images)[:count])
    return held_out


def choose_examples(dataset, names, stated, find, folder="", no_test="no images of the split test. Use"):
    """The set of the examples of the splits `names`; validation is a part of train if the dataset does not state it.

    Args:
        dataset: its name in errors.
        names: of the splits that are asked for.
        stated: those that the dataset has, train among them.
        find: from one of these to the set of its examples; called once for each that is needed.
        folder: what the paths of train begin with.
        no_test: what is said of a dataset without a test split, before "the split 'validation'".
    """
    if "test" in names and "test" not in stated:
        raise DataError(f"{dataset} has {no_test} the split 'validation'.")
    found = {name: find(name) for name in dict.fromkeys(name if name in stated else "train" for name in names)}
    if "validation" not in stated and ("train" in names) != ("validation" in names):  # both together are not divided
        train = found.pop("train")
        held_out = hold_out(train, folder)
        found["train"] = train - held_out if "train" in names else held_out
    chosen = set().union(*found.values())
    if not chosen and names == ["validation"] and "validation" not in stated:
        raise DataError(
            f"No class of {dataset} has two images to train on, so that none can be held out. Add images, or train on "
            "all of them: --split train+validation, in Python data.load(..., 'train+validation')."
        )
    if not chosen:
        raise DataError(
            f"No image of {dataset} falls into the split {'+'.join(names)!r}. Add some ({', '.join(SUFFIXES)})."
        )
    return chosen


def require_all_classes(place, classes, present):
    """Refuses classes that are not among those `present` in the training images."""
    empty = [name for name in classes if name not in present]
    if empty:
        raise DataError(
            f"{place} has no images of {quote_some(empty)} to train on. Add some ({', '.join(SUFFIXES)}), or remove "
            f"the class."
        )

"""Loads a split of a dataset by name."""

import os
import pkgutil

from keras_vit.data.datasets.schemes import find_scheme
from keras_vit.data.duplicates import numbers_to_leave_out
from keras_vit.data.examples import Examples
from keras_vit.data.reading.sources import leave_out, take_examples


def load(
    name: str,
    split: str = "train",
    *,
    examples: int | None = None,
    seed: int = 0,
    stratified: bool = False,
    without: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    download: bool = True,
    max_unreadable: int = 10,
) -> Examples:
    """Loads a split of a dataset.

    Args:
        name: "folder:PATH", a folder that has one folder of images per class; "csv:FILE", a CSV file with the columns
            path and label, or several labels of an image (docs/finetuning.md); a row of CATALOGUE such as "cifar10" or
            "vtab/caltech101"; "tfds:NAME", any dataset of TensorFlow Datasets whose examples are an image and its
            class; "digits"; "fashion_mnist:FOLDER", a folder with Zalando's four files; "objectnet:FOLDER", ObjectNet's
            folder of images, for its test split.
        split: "train", "validation" (held out of the training examples, to choose settings by), "test", or
            "train+validation". With "tfds:NAME" also any split that TFDS understands, such as "train[:10%]".
        examples: number of examples, chosen at random; None for all. They are read into memory if the dataset itself is
            too large for that.
        seed: seed of the choice. With the same seed, 600 examples are among the 6,000 (section 4.3).
        stratified: whether the chosen examples keep the share of each class, to within one example.
        without: path of a list of near-duplicates to leave out of this split, written by
            `find_duplicates(...).save(path)` or `keras-vit deduplicate`. A random choice keeps its other examples.
        data_dir: folder of TensorFlow Datasets; None for its default.
        download: whether TensorFlow Datasets may download and prepare missing data; not with KERAS_VIT_OFFLINE=1.
        max_unreadable: number of unreadable images, each named in the log, that are skipped before an error is raised.

    Raises:
        DataError: for an unknown name or split, for more examples than there are, or for data unfit for training.

    >>> load("digits", "validation").num_examples
    144
    >>> load("folder:photos", "validation").class_names  # doctest: +SKIP
    ('cat', 'dog')
    """
    scheme, argument = find_scheme(name)
    given = {"data_dir": data_dir, "download": download}
    open_split = pkgutil.resolve_name(scheme.opens)  # imports its module
    source, class_names = open_split(argument, split, **{option: given[option] for option in scheme.options})
    left_out = [] if without is None else numbers_to_leave_out(without, name, split, source)
    if examples is not None:
        source = take_examples(source, examples, seed, stratified, left_out)
    elif left_out:
        source = leave_out(source, left_out)
    return Examples(
        name=name,
        split=split,
        class_names=class_names,
        source=source,
        augmentation=scheme.augmentation,
        evaluation_crop=scheme.evaluation_crop,
        max_unreadable=max_unreadable,
    )

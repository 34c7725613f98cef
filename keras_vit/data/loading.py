"""`load`: a name to a split of a dataset."""

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
    """A split of a dataset.

    Args:
        name: "folder:PATH", a folder that has one folder of images per class; "csv:FILE", a CSV file with the columns
            path and label, or several labels of an image (docs/finetuning.md); a row of CATALOGUE such as "cifar10" or
            "vtab/caltech101"; "tfds:NAME", any dataset of TensorFlow Datasets whose examples are an image and its
            class; "digits"; "fashion_mnist:FOLDER", a folder with Zalando's four files; "objectnet:FOLDER", ObjectNet's
            folder of images, for its test split.
        split: "train", "validation" (held out of the training examples, to choose settings by), "test", or
            "train+validation". With "tfds:NAME" also any split that TFDS understands, such as "train[:10%]".
        examples: how many of the split, chosen at random; None for all. Those of a dataset that is too large for memory
            are read into memory.
        seed: of the choice. The same seed chooses 600 examples among its 6,000 (section 4.3).
        stratified: keeps the share of each class among the chosen, to within one example.
        without: a list of near-duplicates of this split to leave out: `find_duplicates(...).save(path)` or
            `keras-vit deduplicate` writes one. Of a random choice the other examples stay the same.
        data_dir: folder of TensorFlow Datasets; None for its default.
        download: lets TensorFlow Datasets download and prepare what is not there, unless KERAS_VIT_OFFLINE=1.
        max_unreadable: how many images that cannot be read are skipped, each named in the log, before an error.

    Raises:
        DataError: for an unknown name or split, for more examples than there are, and for data that cannot be trained
            on.

    >>> load("digits", "validation").num_examples
    144
    >>> load("folder:photos", "validation").class_names  # doctest: +SKIP
    ('cat', 'dog')
    """
    scheme, argument = find_scheme(name)
    given = {"data_dir": data_dir, "download": download}
    open_split = pkgutil.resolve_name(scheme.opens)  # its module is imported now
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

"""How a dataset is named: one row per scheme, and one per dataset of the catalogue. Only `load` imports TensorFlow.

A new scheme takes a module with the function of its row's `opens`, a row here, and tests: `data.load`, its errors and
the command line read the row.
"""

import os
import pkgutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from keras_vit.data.datasets.catalogue import CATALOGUE
from keras_vit.errors import DataError, describe_unknown

if TYPE_CHECKING:
    from keras_vit.data.examples import Examples

PACKAGE = "keras_vit.data.datasets"
# {split: the names that a dataset may give it}
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Scheme:
    """A kind of datasets named "name:argument", or the dataset named "name".

    `opens`, `splits` and `would_read` are "module:function". The functions take the text after the colon, or the name.

    - `opens` also takes the split and, if `from_tfds`, data_dir and download of `data.load`. It returns (source of the
      examples, class names); `reading.sources` says what a source has.
    - `splits` returns the splits that the dataset states, and raises DataError if none can be opened. It imports no
      TensorFlow and lists no images. None if all are stated.
    - `would_read` also takes a path, and returns whether files that are put there become examples. None if they never
      do: a run may then be written anywhere.
    """

    name: str
    argument: str | None  # the word that help writes after the colon, such as "PATH"; None if nothing follows it
    holds: str  # a description of such a dataset
    opens: str
    from_tfds: bool = False
    augmentation: str = "inception"
    evaluation_crop: float | None = None  # as in `Examples`
    would_read: str | None = None
    splits: str | None = None

    @property
    def written(self) -> str:
        return f"{self.name}:{self.argument}" if self.argument else self.name

    @property
    def is_path(self) -> bool:
        """Whether a file or folder follows the colon."""
        return self.argument in ("PATH", "FOLDER", "FILE")


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="folder",
            argument="PATH",
            holds="a folder that has one folder of images per class",
            opens=f"{PACKAGE}.folder:open_split",
            would_read=f"{PACKAGE}.folder:would_read",
            splits=f"{PACKAGE}.folder:list_splits",
        ),
        Scheme(
            name="csv",
            argument="FILE",
            holds="a CSV file with the columns path and label, several labels of an image joined by |",
            opens=f"{PACKAGE}.csv_file:open_split",
            splits=f"{PACKAGE}.csv_file:list_splits",
        ),
        Scheme(
            name="masks",
            argument="FOLDER",
            holds="a folder with images/ and masks/, PNG of class numbers, for segmentation",
            opens=f"{PACKAGE}.masks:open_split",
            would_read=f"{PACKAGE}.masks:would_read",
            splits=f"{PACKAGE}.masks:list_splits",
        ),
        Scheme(
            name="tfds",
            argument="NAME",
            holds="any dataset of TensorFlow Datasets whose examples are an image and its class",
            opens=f"{PACKAGE}.builders:open_builder",
            from_tfds=True,
        ),
        Scheme(
            name="digits",
            argument=None,
            holds="the 1,797 handwritten digits that scikit-learn ships",
            opens=f"{PACKAGE}.arrays:open_digits",
            augmentation="none",
        ),
        Scheme(
            name="fashion_mnist",
            argument="FOLDER",
            holds="a folder with Fashion-MNIST's four idx.gz files",
            opens=f"{PACKAGE}.arrays:open_fashion_mnist",
            augmentation="none",
        ),
        Scheme(
            name="objectnet",
            argument="FOLDER",
            holds="ObjectNet's folder of images, to evaluate models of ImageNet's classes on",
            opens=f"{PACKAGE}.folder:open_objectnet",
            # Appendix D.9, after arXiv 1912.11370, Supplement B: the middle 480 pixels of a short side of 512. Models
            # of other sizes see the same part.
            evaluation_crop=480 / 512,
        ),
    )
}

DATASETS = SCHEMES | {
    name: Scheme(
        name=name,
        argument=None,
        holds=f"{row.builder} of TensorFlow Datasets, its splits as in {row.source}",
        opens=f"{PACKAGE}.builders:open_catalogued",
        from_tfds=True,
        augmentation=row.augmentation,
    )
    for name, row in CATALOGUE.items()
}


def describe_schemes() -> str:
    """The names that `data.load` takes, for help."""
    schemes = [f"{scheme.written} ({scheme.holds})" for scheme in SCHEMES.values()]
    catalogued = [name for name in CATALOGUE if not name.startswith("vtab/")]
    return f"{', '.join(schemes)}, or a dataset by name: {', '.join(catalogued)}, vtab/TASK."


def describe_unknown_dataset(name):
    """The message for an unknown name; if it is the path of a folder or file, the message gives the right name."""
    for kind, prefix, is_there in (("folder", "folder", os.path.isdir), ("file", "csv", os.path.isfile)):
        if is_there(os.path.expanduser(name)):
            return f"There is no dataset {name!r}, but a {kind} of that name. Did you mean {prefix}:{name}?"
    expected = f"Nor is there a folder of that name. Expected {', '.join(row.written for row in SCHEMES.values())}"
    is_path = "/" in name and not name.startswith("vtab/")
    known = [] if is_path else [scheme.written for scheme in DATASETS.values()]
    return describe_unknown("dataset", name, known, f"{expected}, or a name that keras-vit finetune --help lists.")


def parse_splits(split: str, dataset: str) -> list[str]:
    """The splits in a name such as "train+validation", each once; `dataset` is the subject of the error's message."""
    names = list(dict.fromkeys(split.split("+")))
    if not set(names) <= set(SPLITS):
        raise DataError(f"{dataset} has the splits {', '.join(SPLITS)}, joined by +. Received: {split!r}.")
    return names


def find_scheme(name: str) -> tuple[Scheme, str]:
    """The row of a dataset's name, and the argument for its functions.

    >>> scheme, argument = find_scheme("folder:photos")
    >>> scheme.written, argument
    ('folder:PATH', 'photos')
    """
    prefix, _, argument = name.partition(":")
    scheme = DATASETS.get(prefix)
    if scheme is None or (argument and not scheme.argument):
        raise DataError(describe_unknown_dataset(name))
    if scheme.argument and not argument:
        raise DataError(f"{name!r} lacks its {scheme.argument}. Expected {scheme.written}, {scheme.holds}.")
    return scheme, argument or scheme.name


def bare_name(name: str) -> str:
    """TFDS's name of a dataset "tfds:NAME", without configuration and version; of any other name the scheme.

    >>> bare_name("tfds:eurosat/rgb:2.*"), bare_name("vtab/eurosat"), bare_name("folder:photos")
    ('eurosat', 'vtab/eurosat', 'folder')
    """
    scheme, _, argument = name.partition(":")
    return argument.partition(":")[0].partition("/")[0] if scheme == "tfds" else scheme


def require_dataset(name: str) -> Collection[str]:
    """The splits that a dataset states; refuses, before TensorFlow is imported, a name, folder or file without one."""
    scheme, argument = find_scheme(name)
    return pkgutil.resolve_name(scheme.splits)(argument) if scheme.splits else SPLITS


def would_read(name: str, path: str | os.PathLike) -> bool:
    """Whether files at `path`, which need not exist, would become examples of the dataset when it is read again."""
    scheme, argument = find_scheme(name)
    return scheme.would_read is not None and pkgutil.resolve_name(scheme.would_read)(argument, path)


def locate_dataset(name: str) -> str:
    """The name with its path absolute, in a folder without links: the same for every spelling of the same place.

    >>> locate_dataset("folder:photos/") == locate_dataset("folder:./photos"), locate_dataset("digits")
    (True, 'digits')
    """
    scheme, argument = find_scheme(name)
    if not scheme.is_path:
        return name
    folder, file = os.path.expanduser(argument), ""
    if scheme.argument == "FILE":  # its images are beside it, also where it is a link
        folder, file = os.path.split(folder)
    return f"{scheme.name}:{Path(os.path.realpath(folder), file)}"


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
) -> "Examples":
    """Loads a split of a dataset.

    Args:
        name: "folder:PATH", a folder that has one folder of images per class; "csv:FILE", a CSV file with the columns
            path and label, or several labels of an image (docs/finetuning.md); a row of CATALOGUE such as "cifar10" or
            "vtab/caltech101"; "tfds:NAME", any dataset of TensorFlow Datasets whose examples are an image and its
            class; "digits"; "fashion_mnist:FOLDER", a folder with Zalando's four files; "objectnet:FOLDER", ObjectNet's
            folder of images, for its test split; "masks:FOLDER", a folder with images/ and masks/, for segmentation.
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
    from keras_vit.data.examples import Examples
    from keras_vit.data.reading.sources import leave_out, take_examples

    scheme, argument = find_scheme(name)
    given = {"data_dir": data_dir, "download": download} if scheme.from_tfds else {}
    open_split = pkgutil.resolve_name(scheme.opens)  # imports its module
    source, class_names = open_split(argument, split, **given)
    left_out: list[int] = []
    if without is not None:
        from keras_vit.data.duplicates import numbers_to_leave_out

        left_out = numbers_to_leave_out(without, name, split, source)
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

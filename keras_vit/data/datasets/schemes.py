"""How a dataset is named: one row per scheme, and one per dataset of the catalogue. No TensorFlow here.

A new scheme is a module that has the function of its row's `opens`, a row here, and tests: `data.load`, its errors
and the command line take theirs from the row.
"""

import os
import pkgutil
from collections.abc import Collection
from dataclasses import dataclass

from keras_vit.data.datasets.catalogue import CATALOGUE
from keras_vit.data.errors import SPLITS, DataError
from keras_vit.errors import describe_unknown

PACKAGE = "keras_vit.data.datasets"
TFDS_OPTIONS = ("data_dir", "download")


@dataclass(frozen=True)
class Scheme:
    """A kind of datasets named "name:argument", or the dataset named "name".

    Args:
        name: what stands before the colon.
        argument: what follows it, as help writes it, such as "PATH"; None where nothing does.
        holds: what such a dataset is, in words.
        opens: "module:function" of what follows the colon (the name where nothing does), the split and the `options`,
            to (source of the examples, class names); `reading.sources` says what a source has.
        options: those keywords of `data.load` that the function takes.
        augmentation: name of the training augmentation that suits the images.
        evaluation_crop: the share of an image's middle to evaluate on, its aspect ratio kept, whatever the model's own
            preprocessing; None for that.
        splits: "module:function" of what follows the colon to the splits that it states, without TensorFlow and before
            the images are listed; it raises DataError where no split can be opened. None where all are stated.
        would_read: "module:function" of what follows the colon and a path: whether files that are put there become
            examples. None where they never do, so that a run may be written anywhere.
    """

    name: str
    argument: str | None
    holds: str
    opens: str
    options: tuple[str, ...] = ()
    augmentation: str = "inception"
    evaluation_crop: float | None = None
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
            options=TFDS_OPTIONS,
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
            opens=f"{PACKAGE}.objectnet:open_split",
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
        options=TFDS_OPTIONS,
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


def require_dataset(name: str) -> Collection[str]:
    """The splits that a dataset states; refuses, before TensorFlow is imported, a name, folder or file without one."""
    scheme, argument = find_scheme(name)
    return pkgutil.resolve_name(scheme.splits)(argument) if scheme.splits else SPLITS


def would_read(name: str, path: str | os.PathLike) -> bool:
    """Whether files at `path`, which need not exist, would become examples of the dataset when it is read again."""
    scheme, argument = find_scheme(name)
    return scheme.would_read is not None and pkgutil.resolve_name(scheme.would_read)(argument, path)


def locate_dataset(name: str) -> str:
    """The name with its path absolute, without links: the same for every spelling of the same place.

    >>> locate_dataset("folder:photos/") == locate_dataset("folder:./photos"), locate_dataset("digits")
    (True, 'digits')
    """
    scheme, argument = find_scheme(name)
    if not scheme.is_path:
        return name
    return f"{scheme.name}:{os.path.realpath(os.path.expanduser(argument))}"

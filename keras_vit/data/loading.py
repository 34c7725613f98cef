"""`load`: a name to a split of a dataset."""

from keras_vit.data.datasets import arrays, builders, folder
from keras_vit.data.datasets.catalogue import CATALOGUE
from keras_vit.data.errors import DataError
from keras_vit.data.examples import Examples
from keras_vit.data.reading.sources import Files, Pixels
from keras_vit.errors import describe_unknown

SCHEMES = ("folder:PATH", "tfds:NAME", "digits", "fashion_mnist:FOLDER")


def load(name, split="train", *, data_dir=None, download=True, max_unreadable=10):
    """A split of a dataset.

    Args:
        name: "folder:PATH", a folder of class folders of pictures; a row of CATALOGUE such as "cifar10" or
            "vtab/caltech101"; "tfds:NAME", any builder of TensorFlow Datasets whose examples are a picture and its
            class; "digits"; "fashion_mnist:FOLDER", Zalando's four files.
        split: "train", "validation" (held out of the training examples, to choose settings by), "test", or
            "train+validation". Of "tfds:NAME" also any split that TFDS understands, such as "train[:10%]".
        data_dir: folder of TensorFlow Datasets; None for its default.
        download: lets TensorFlow Datasets download and prepare what is not there, unless KERAS_VIT_OFFLINE=1.
        max_unreadable: how many pictures that cannot be read are skipped, each named in the log, before an error.

    Returns:
        `Examples`.

    Raises:
        DataError: for an unknown name or split, and for data that nothing can be trained on.

    >>> load("folder:photos", "validation").class_names
    ('cat', 'dog')
    """
    scheme, _, where = name.partition(":")
    if scheme == "folder":
        paths, labels, classes = folder.scan(where, split)
        return Examples(name, split, classes, Files(paths, labels), max_unreadable=max_unreadable)
    if scheme == "fashion_mnist":
        return Examples(name, split, arrays.FASHION, Pixels(*arrays.fashion_mnist(where, split)), "none")
    if name == "digits":
        return Examples(name, split, arrays.DIGITS, Pixels(*arrays.digits(split)), "none")
    if scheme == "tfds" or name in CATALOGUE:
        source, classes, augmentation = builders.source(name, split, data_dir, download)
        return Examples(name, split, classes, source, augmentation, max_unreadable)
    raise DataError(describe_unknown("dataset", name, (*SCHEMES, *CATALOGUE)))

"""ObjectNet (Barbu et al., NeurIPS 2019; Appendix D.9): photos of ImageNet's kinds of objects, as they lie about at
home.

objectnet.json has the 113 of its 313 classes that ImageNet has too, each with the numbers of ImageNet's classes that
count as it: mappings/objectnet_to_imagenet_1k.json and folder_to_objectnet_label.json of its archive. A prediction
among all 1,000 classes is right if it is one of these numbers.
"""

import functools
import importlib.resources
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.data.datasets.folder import require_folder
from keras_vit.data.datasets.image_files import SUFFIXES, walk_files
from keras_vit.data.errors import DataError
from keras_vit.data.reading.sources import Files

IMAGENET_CLASSES = 1000
BORDER = 2  # pixels on every side, red to mark a test set, are cut off (objectnet-template-pytorch)


@functools.cache
def overlap() -> dict[str, list[int]]:
    """{folder of ObjectNet: numbers of ImageNet's classes, from 0}, of the 113 classes that both have.

    >>> overlap()["tie"]  # bow tie, Windsor tie
    [457, 906]
    """
    return json.loads(
        importlib.resources.files("keras_vit.data.datasets").joinpath("objectnet.json").read_text("utf-8")
    )


class BorderedFiles(Files):
    """Image files that are read without their border."""

    def read_part(self, data, box, channels):
        def inside(shape):
            return box(shape - 2 * BORDER) + tf.constant([BORDER, BORDER, 0, 0])

        return super().read_part(data, inside, channels)


def open_split(path, split):
    """(source, class names) of ObjectNet's images that ImageNet has classes for, as `schemes` asks.

    The labels are float32 (n, 1000), 1 for every class that is right; the names are ImageNet's numbers.
    """
    if split != "test":
        raise DataError(f"ObjectNet is a test set: its only split is 'test'. Received: {split!r}.")
    root = require_folder(path)
    root = root / "images" if (root / "images").is_dir() else root
    found = sorted(
        (Path(entry.path), name)
        for name in overlap()
        if (root / name).is_dir()
        for entry in walk_files(root / name)
        if Path(entry.name).suffix.lower() in SUFFIXES and entry.is_file()
    )
    if not found:
        raise DataError(
            f"{root} has no images in folders such as alarm_clock and backpack. Expected ObjectNet's folder of images, "
            "objectnet-1.0/images."
        )
    labels = np.zeros((len(found), IMAGENET_CLASSES), "float32")
    for row, (_, name) in zip(labels, found, strict=True):
        row[overlap()[name]] = 1
    return BorderedFiles([path for path, _ in found], labels), tuple(map(str, range(IMAGENET_CLASSES)))

"""A folder with a folder of images per class; subfolders state the splits, or a hash of each file's name decides.

ObjectNet's folder is one too, of a test set.
"""

import functools
import json
import os
from pathlib import Path

import numpy as np

from keras_vit.data.datasets.image_files import (
    choose_examples,
    count_loose,
    find_images,
    is_hidden,
    require_all_classes,
    subfolders,
)
from keras_vit.data.datasets.schemes import SPLITS, parse_splits
from keras_vit.errors import DataError, quote_some

IMAGENET_CLASSES = 1000
EXPECTED = "Expected a folder that has one folder of images per class"


def require_folder(folder, expected=EXPECTED):
    path = Path(os.path.expanduser(folder))
    if path.is_file():
        raise DataError(f"{path} is a file. {expected}. Unpack it if it is an archive.")
    if not os.path.isdir(path):
        raise DataError(f"There is no folder {path}. {expected}.")
    return path


def split_folders(root):
    """{split: its folder} of those that there are; without a folder train, all of `root` is "train".

    A folder train without folders is a class (of railway trains).
    """
    inside = subfolders(root)
    found = {split: [path for path in inside if path.name.lower() in names] for split, names in SPLITS.items()}
    found["train"] = [path for path in found["train"] if subfolders(path)]
    if not found["train"]:
        known = [name for names in SPLITS.values() for name in names]
        if inside and all(path.name.lower() in known for path in inside):
            raise DataError(
                f"{root} has {quote_some(path.name for path in inside)}, and no folder train that has one folder of "
                f"images per class, such as {root}/train/cat."
            )
        for path in (path for paths in found.values() for path in paths):
            both = {inner.name for inner in subfolders(path)} & {other.name for other in inside}
            if both:
                raise DataError(
                    f"{path} and {root} both have {quote_some(sorted(both))}, so {path.name} seems to be a split. Move "
                    f"the classes of {root} into {root}/train, or rename {path.name}."
                )
        return {"train": root}
    for split, paths in found.items():
        if len(paths) > 1:
            names = quote_some(path.name for path in paths)
            raise DataError(f"Each of {names} in {root} may be the split {split!r}. Rename all but one.")
    return {split: paths[0] for split, paths in found.items() if paths}


def list_class_names(folder):
    """The names of the class folders, sorted; at least two."""
    classes = subfolders(folder)
    if not classes:
        loose = count_loose(folder)
        has = f"{loose:,} image{'s' * (loose > 1)} and no folders" if loose else "no folders"
        raise DataError(f"{folder} has {has}. Expected one folder of images per class, such as {folder}/cat.")
    if len(classes) == 1:
        inner = f" If the classes are the folders in it, give {classes[0]}." if subfolders(classes[0]) else ""
        raise DataError(f"{folder} has one class, {classes[0].name!r}. A classifier needs at least two.{inner}")
    for path in classes:
        if os.fsencode(path.name).decode(errors="ignore") != path.name:
            raise DataError(f"The name of the folder {path.name!r} in {folder} is not in UTF-8. Rename it.")
    return tuple(path.name for path in classes)


def sort_images(entries):
    """(paths, labels) of {(path, label)}, in the order of the labels and of the parts of the paths."""
    in_order = sorted(entries, key=lambda entry: (entry[1], entry[0].replace(os.sep, "\0")))
    return [path for path, _ in in_order], [label for _, label in in_order]


def scan(folder, split):
    """(paths, labels int, class names) of a split; docs/training.md says how the images of a folder are split.

    The paths are sorted within their classes; classes are the sorted folder names.
    """
    names = parse_splits(split, "A folder")
    places = split_folders(require_folder(folder))
    classes = list_class_names(places["train"])

    def find(name):
        foreign = [path.name for path in subfolders(places[name]) if path.name not in classes]
        if foreign:
            raise DataError(f"The training folder has no folders for {quote_some(foreign)}, but {places[name]} has.")
        # Whoever loads validation alone does not hear again what loading train has said of the same folder.
        return find_images(places[name], classes, warn=name != "train" or "train" in names)

    entries = choose_examples(folder, names, places, find, places["train"])
    if "train" in names:
        require_all_classes(places["train"], classes, {classes[label] for _, label in entries})
    return *sort_images(entries), classes


def open_split(path, split):
    from keras_vit.data.reading.sources import Files

    paths, labels, classes = scan(path, split)
    return Files(paths, labels), classes


def list_splits(folder):
    """The splits that have folders; refuses a missing folder, or one without two class folders."""
    places = split_folders(require_folder(folder))
    list_class_names(places["train"])
    return places


def would_read(folder, path):
    """Whether images at `path`, which need not exist, would be among those of a dataset's folder."""
    path = Path(path).resolve()
    for place in split_folders(require_folder(folder)).values():
        if path.is_relative_to(place.resolve()):
            return not any(map(is_hidden, path.relative_to(place.resolve()).parts))
    return False


@functools.cache
def overlap() -> dict[str, list[int]]:
    """{folder of ObjectNet: numbers of ImageNet's classes, from 0}, of the 113 of its 313 classes that both have.

    objectnet.json is made of mappings/objectnet_to_imagenet_1k.json and folder_to_objectnet_label.json of its archive.

    >>> overlap()["tie"]  # bow tie, Windsor tie
    [457, 906]
    """
    return json.loads(Path(__file__).with_name("objectnet.json").read_text("utf-8"))


def open_objectnet(path, split):
    """(source, class names) of ObjectNet's images that ImageNet has classes for, as `schemes` asks.

    ObjectNet (Barbu et al., NeurIPS 2019; Appendix D.9) has photos of ImageNet's kinds of objects, as they lie about at
    home. A prediction among all 1,000 classes is right if it is one of the numbers of `overlap`. The labels
    are float32 (n, 1000), 1 for every class that is right; the names are ImageNet's numbers.
    """
    from keras_vit.data.reading.sources import BorderedFiles

    if split != "test":
        raise DataError(f"ObjectNet is a test set: its only split is 'test'. Received: {split!r}.")
    root = require_folder(path)
    root = root / "images" if (root / "images").is_dir() else root
    found = find_images(root, overlap(), warn=False)
    if not found:
        raise DataError(
            f"{root} has no images in folders such as alarm_clock and backpack. Expected ObjectNet's folder of images, "
            "objectnet-1.0/images."
        )
    paths, folders = sort_images(found)
    right = np.zeros((len(overlap()), IMAGENET_CLASSES), "float32")
    for row, numbers in zip(right, overlap().values(), strict=True):
        row[numbers] = 1
    return BorderedFiles(paths, right[folders]), tuple(map(str, range(IMAGENET_CLASSES)))

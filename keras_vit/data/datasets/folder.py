"""A folder with a folder of images per class; subfolders state the splits, or a hash of each file's name decides."""

import hashlib
import os
from pathlib import Path

from keras_vit.data.datasets.image_files import SUFFIXES, count_loose, find_images, is_hidden, subfolders
from keras_vit.data.errors import DataError, parse_splits
from keras_vit.text import quote_some

SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
HELD_OUT = 0.1  # of the images of a folder without a validation folder
EXPECTED = "Expected a folder that has one folder of images per class"


def require_folder(folder):
    path = Path(os.path.expanduser(folder))
    if path.is_file():
        raise DataError(f"{path} is a file. {EXPECTED}. Unpack it if it is an archive.")
    if not os.path.isdir(path):
        raise DataError(f"There is no folder {path}. {EXPECTED}.")
    return path


def split_folders(root):
    """{split: its folder, or None}; without a folder train, all of `root` is "train".

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
        return {"train": root, "validation": None, "test": None}
    for split, paths in found.items():
        if len(paths) > 1:
            names = quote_some(path.name for path in paths)
            raise DataError(f"Each of {names} in {root} may be the split {split!r}. Rename all but one.")
    return {split: paths[0] if paths else None for split, paths in found.items()}


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


def hash_name(name):
    """A number in [0, 1), drawn from a file's name within its dataset."""
    digest = hashlib.sha256(os.fsencode(name.replace(os.sep, "/"))).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def hold_out(entries, folder):
    """The part of {(path, label)} for validation: of each class of two or more, at least one and never all.

    The paths begin with `folder`, "" for none. Strings, since a `Path` takes ten times as long for a million files.
    """
    start, classes = len(os.path.join(folder, "")), {}
    for path, label in entries:
        classes.setdefault(label, []).append((hash_name(os.fspath(path)[start:]), path))
    held_out = set()
    for label, images in classes.items():
        below = sum(number < HELD_OUT for number, _ in images)
        count = min(max(below, 1), len(images) - 1)
        held_out.update((path, label) for _, path in sorted(images)[:count])
    return held_out


def entries_of_splits(names, places, classes):
    """Sets of (path, label) that are the splits together; a folder that holds several splits is walked once."""
    train = places["train"]
    folders = dict.fromkeys(places[name] or train for name in names)
    # Whoever loads validation alone does not hear again what loading train has said of the same folder.
    found = {folder: find_images(folder, classes, warn=folder != train or "train" in names) for folder in folders}
    for name in names:
        entries = found[places[name] or train]
        if name == "test" or places["validation"] or {"train", "validation"} <= set(names):  # or both parts of it
            yield entries
        else:
            held_out = hold_out(entries, train)
            yield held_out if name == "validation" else entries - held_out


def require_all_classes(place, classes, present):
    """Refuses classes that are not among those `present` in the training images."""
    empty = [name for name in classes if name not in present]
    if empty:
        raise DataError(
            f"{place} has no images of {quote_some(empty)} to train on. Add some ({', '.join(SUFFIXES)}), or remove "
            f"the class."
        )


def scan(folder, split):
    """The images of one split.

    With a subfolder train (or training) of class folders, the splits are the subfolders: train, validation (valid,
    val, dev) and test, in any case. Without one for validation, about a tenth of train is held out; without one for
    test, "test" is an error. Without a subfolder train, the folder itself holds the classes: about a tenth of its
    images is "validation", the rest "train".

    An image is held out if the hash of its class and file name, a number in [0, 1), is below 0.1: wherever the folder
    is, and whatever else is in it. A class of two images or more has one on each side: where no hash is below 0.1, the
    image with the lowest is held out, and where all are, the one with the highest is trained on. An image that is
    added moves at most this one, back to the side of its hash, and no other. Renaming an image, its folder or its class
    may move it.

    Class folders may have subfolders. Links are followed.

    Returns:
        (paths, labels int, class names), the paths sorted within their classes; classes are the sorted folder names.
    """
    names = parse_splits(split, "A folder")
    places = split_folders(require_folder(folder))
    if "test" in names and not places["test"]:
        raise DataError(f"{folder} has no folder test. Add one, or use the split 'validation'.")
    classes = list_class_names(places["train"])
    entries = set().union(*entries_of_splits(names, places, classes))
    if "train" in names:
        require_all_classes(places["train"], classes, {classes[label] for _, label in entries})
    if names == ["validation"] and not entries and not places["validation"]:
        raise DataError(
            f"No class of {folder} has two images, so that none can be held out. Add images, or train on all of them: "
            "--split train+validation, in Python data.load(..., 'train+validation')."
        )
    if not entries:
        raise DataError(f"No image of {folder} falls into the split {split!r}. Add images to it.")
    entries = sorted(entries, key=lambda entry: (entry[1], entry[0].replace(os.sep, "\0")))  # the order of parts
    return [path for path, _ in entries], [label for _, label in entries], classes


def open_split(path, split):
    """(source, class names) of a split, as `schemes` asks."""
    from keras_vit.data.reading.sources import Files

    paths, labels, classes = scan(path, split)
    return Files(paths, labels), classes


def require_classes(folder):
    """Refuses a missing folder, or one without two class folders; the images are not listed."""
    list_class_names(split_folders(require_folder(folder))["train"])


def would_read(folder, path):
    """Whether images at `path`, which need not exist, would be among those of a dataset's folder."""
    path = Path(path).resolve()
    for place in filter(None, split_folders(require_folder(folder)).values()):
        if path.is_relative_to(place.resolve()):
            return not any(map(is_hidden, path.relative_to(place.resolve()).parts))
    return False

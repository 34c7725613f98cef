"""A folder of class folders of pictures, split as its subfolders say or by a hash of each file's name."""

import hashlib
import logging
from collections import Counter
from pathlib import Path

from keras_vit.data.errors import DataError

PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"}
# Pictures of which TensorFlow reads none.
FOREIGN = {".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".svg", ".tif", ".tiff"}
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
HELD_OUT = 10  # per cent of a folder without a validation folder

log = logging.getLogger("keras_vit")


def scan(folder, split):
    """The pictures of one split.

    With a subfolder train (or training), the splits are the subfolders: train, validation (valid, val, dev), test.
    Where there is none for validation, a tenth of train is held out; where there is none for test, "test" is an error.
    Without a subfolder train, the whole folder is split so: a tenth for "validation", the rest for "train". A file
    belongs to the same split wherever the folder is and whatever else is in it: its name and class decide.

    Args:
        folder: path.
        split: "train", "validation", "test" or "train+validation".

    Returns:
        (paths, labels int, class names), the paths sorted within their classes; classes are the sorted folder names.

    Raises:
        DataError: when there is no such folder or split, no class, one class only, or a class without pictures.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. Expected a folder that has one folder of pictures per class.")
    found = {name: subfolder(folder, names) for name, names in SPLITS.items()}
    parts = split.split("+")
    if not found["train"]:
        found = {"train": folder, "validation": None, "test": None}
    classes = class_folders(found["train"])
    entries = [entry for part in parts for entry in part_files(part, split, found, classes)]
    if not entries:
        raise DataError(f"No picture of {folder} falls into the split {split!r}. It has too few pictures to be split.")
    entries.sort(key=lambda entry: (entry[1], entry[0]))
    return [path for path, _ in entries], [label for _, label in entries], tuple(path.name for path in classes)


def subfolder(folder, names):
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def class_folders(folder):
    """The class folders, sorted; at least two, each with pictures."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not hidden(path.name))
    if not classes:
        raise DataError(f"{folder} has no folders. Expected one folder of pictures per class, such as {folder}/cat.")
    if len(classes) == 1:
        raise DataError(f"{folder} has one class, {classes[0].name!r}. A classifier needs at least two.")
    foreign = Counter(path.suffix.lower() for path in files(folder, FOREIGN))
    if foreign:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(foreign.items()))
        log.warning("Of %s these files are not read: %s. Save them as JPEG or PNG.", folder, kinds)
    empty = [path.name for path in classes if next(pictures(path), None) is None]
    if empty:
        raise DataError(
            f"No pictures for {listed(empty)} in {folder}. Add some ({', '.join(sorted(PICTURES))}), or remove the "
            f"folder."
        )
    return classes


def hidden(name):
    """Whether a system made it for itself: .git, ._a.jpg, and the folder that macOS puts into archives."""
    return name.startswith(".") or name == "__MACOSX"


def files(folder, suffixes):
    """The files of those endings in a folder and its subfolders, hidden ones left out."""
    for path in folder.rglob("*"):
        if path.suffix.lower() in suffixes and not any(map(hidden, path.relative_to(folder).parts)):
            yield path


def pictures(folder):
    return files(folder, PICTURES)


def part_files(part, split, found, classes):
    """[(path, label)] of one part of a split."""
    if part not in SPLITS:
        raise DataError(f"A folder has the splits {', '.join(SPLITS)}, joined by +. Received: {split!r}.")
    if part == "test" and not found["test"]:
        raise DataError(f"{found['train']} has no folder test beside it. Use the split 'validation'.")
    labels = {path.name: label for label, path in enumerate(classes)}
    if found[part] and (part != "train" or found["validation"]):
        return labelled(found[part], labels)
    entries = labelled(found["train"], labels)
    held_out = part == "validation"
    return entries if part == "test" else [e for e in entries if is_held_out(e[0], found["train"]) == held_out]


def labelled(folder, labels):
    foreign = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in labels)
    foreign = [name for name in foreign if not hidden(name)]
    if foreign:
        raise DataError(f"{folder} has folders for {listed(foreign)}, which the training folder has not.")
    return [(path, label) for name, label in labels.items() for path in pictures(folder / name)]


def is_held_out(path, folder):
    digest = hashlib.sha256(path.relative_to(folder).as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < HELD_OUT


def listed(names):
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more

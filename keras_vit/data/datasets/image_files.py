"""Image files: those in a folder of class folders, and those of a split, which the dataset states or a hash chooses.

The log names the files that are not read. An example is a tuple that begins with a path and a label. Paths are strings:
a `Path` takes ten times as long for a million files.
"""

import hashlib
import importlib.util
import os
from collections import Counter, deque
from pathlib import Path

from keras_vit.console import log
from keras_vit.errors import DataError, quote_some

HEIC = (".heic", ".heif")
READS_HEIC = importlib.util.find_spec("pillow_heif") is not None
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".avif", ".jp2"),
    *(HEIC if READS_HEIC else ()),
)
# Images that are not read.
FOREIGN_SUFFIXES = (".cr2", ".cr3", ".dng", ".jxl", ".nef", ".svg", *(() if READS_HEIC else HEIC))
HELD_OUT = 0.1  # of the training images of a dataset that states no validation
# What macOS puts into archives, Synology beside images and Windows at a disk's root; hidden as .git is.
SYSTEM = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"}


def is_hidden(name):
    return name.startswith(".") or name in SYSTEM


def is_folder(entry):
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))


def visible_entries(folder):
    """The entries of a folder by name, without those that a system made for itself."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not is_hidden(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror}.") from error


def subfolders(folder):
    return [Path(entry.path) for entry in visible_entries(folder) if is_folder(entry)]


def walk_files(folder):
    """The entries of a folder and its subfolders that are not folders.

    Links are followed. Links to folders wait until all plain paths are walked, and no folder is walked twice, so that
    circles end and every file has one path: without links if there is such a path.
    """
    folders, links, seen = deque([folder]), deque(), set()
    while folders or links:
        here = (folders or links).popleft()
        entries, about = visible_entries(here), os.stat(here)
        if (about.st_dev, about.st_ino) in seen:
            continue
        seen.add((about.st_dev, about.st_ino))
        for entry in entries:
            if is_folder(entry):
                (links if entry.is_symlink() else folders).append(entry.path)
            else:
                yield entry


def count_loose(folder):
    """How many images lie directly in a folder, not in its subfolders."""
    entries = visible_entries(folder)
    return sum(not is_folder(entry) and Path(entry.name).suffix.lower() in SUFFIXES for entry in entries)


def warn_of_unread(folder, unread, irregular):
    """Warns of files that are not read but look like examples."""
    if irregular:
        log.warning("These are pipes, devices, sockets or broken links, and are not read: %s.", quote_some(irregular))
    if unread:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(unread.items()))
        install = " .heic files are read once pillow-heif is installed." if set(unread) & set(HEIC) else ""
        log.warning("In %s these files are not read: %s. Save them as JPEG or PNG.%s", folder, kinds, install)
    if loose := count_loose(folder):
        log.warning("Images outside of the class folders of %s are not read: %d.", folder, loose)


def find_images(folder, classes, warn):
    """{(path, label)} of the images in a folder's folders of these classes; with `warn`, the log names unread files."""
    found, unread, irregular = set(), Counter(), []
    for label, name in enumerate(classes):
        for entry in walk_files(folder / name) if (folder / name).is_dir() else ():
            suffix = os.path.splitext(entry.name)[1].lower()
            if suffix in SUFFIXES and entry.is_file():
                found.add((entry.path, label))
            elif suffix in SUFFIXES:
                irregular.append(entry.path)
            elif suffix in FOREIGN_SUFFIXES:
                unread[suffix] += 1
    if warn:
        warn_of_unread(folder, unread, irregular)
        labels = {label for _, label in found}
        if missing := [name for label, name in enumerate(classes) if label not in labels]:
            log.warning("%s has no images for %s.", folder, quote_some(missing))
    return found


def hash_name(name):
    """A number in [0, 1), drawn from a file's name within its dataset."""
    digest = hashlib.sha256(os.fsencode(name.replace(os.sep, "/"))).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def hold_out(examples, folder):
    """The examples for validation: of each class of two or more, at least one and never all.

    They are those whose hash is below HELD_OUT, or else the one with the lowest; if all are below, all but the one with
    the highest. Adding an image moves at most that one. The paths begin with `folder`, "" for none.
    """
    start, classes = len(os.fspath(Path(folder) / "x")) - 1, {}  # a path in "." does not begin with it
    for example in examples:
        classes.setdefault(example[1], []).append((hash_name(os.fspath(example[0])[start:]), example))
    held_out = set()
    for images in classes.values():
        below = sum(number < HELD_OUT for number, _ in images)
        count = min(max(below, 1), len(images) - 1)
        held_out.update(example for _, example in sorted(images)[:count])
    return held_out


def choose_examples(dataset, names, stated, find, folder=""):
    """The set of the examples of the splits `names`; validation is a part of train if the dataset does not state it.

    `find` gives the set of the examples of a split in `stated`, and is called for those that are needed. The paths of
    train begin with `folder`, if each split has one.
    """
    if "test" in names and "test" not in stated:
        missing = "folder test. Add one, or use" if folder else "images of the split test. Use"
        raise DataError(f"{dataset} has no {missing} the split 'validation', as a training without --test does.")
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

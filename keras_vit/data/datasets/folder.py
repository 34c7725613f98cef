"""A folder of class folders of pictures, split as its subfolders say or by a hash of each file's name."""

import functools
import hashlib
import os
from collections import Counter, deque
from pathlib import Path

from keras_vit.console import log
from keras_vit.data.errors import DataError

PICTURES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".avif", ".jp2"),
)
# Pictures that Pillow does not read.
FOREIGN = (".cr2", ".cr3", ".dng", ".heic", ".heif", ".jxl", ".nef", ".svg")
SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
HELD_OUT = 10  # per cent of a folder without a validation folder
# What macOS puts into archives, Synology beside pictures and Windows at a disk's root; hidden as .git is.
SYSTEM = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"}


def scan(folder, split):
    """The pictures of one split.

    With a subfolder train (or training) of class folders, the splits are the subfolders: train, validation (valid,
    val, dev), test, in capitals or not. Where there is none for validation, a tenth of train is held out; where there
    is none for test, "test" is an error. Without a subfolder train, the whole folder is split so: a tenth for
    "validation", the rest for "train". A file belongs to the same split wherever the folder is and whatever else is in
    it, its name and class decide, but that a few pictures are split so that every class has one to train on, and
    validation has any.

    Class folders may have subfolders. Links are followed.

    Args:
        folder: path.
        split: "train", "validation", "test", or several joined by +, such as "train+validation".

    Returns:
        (paths, labels int, class names), the paths sorted within their classes; classes are the sorted folder names.

    Raises:
        DataError: when there is no such folder or split, no class, one class only, or a class without pictures.
    """
    parts = split.split("+")
    if not set(parts) <= set(SPLITS):
        raise DataError(f"A folder has the splits {', '.join(SPLITS)}, joined by +. Received: {split!r}.")
    places = split_folders(existing(folder))
    train = places["train"]
    if "test" in parts and not places["test"]:
        raise DataError(f"{train} has no folder test beside it. Use the split 'validation'.")
    classes = class_names(train)

    @functools.cache
    def pictures(place):
        return found_in(place, classes, warn=place != train or "train" in parts)

    def part(name):
        found = pictures(places[name] or train)
        if name == "test" or places["validation"]:
            return found
        held_out = held_out_of(found, train)
        return held_out if name == "validation" else found - held_out

    entries = set().union(*map(part, parts))
    if "train" in parts:
        require_all(classes, entries, train)
    if not entries:
        raise DataError(f"No picture of {folder} falls into the split {split!r}. Add pictures to it.")
    entries = sorted((label, path.parts, path) for path, label in entries)
    return [path for *_, path in entries], [label for label, *_ in entries], classes


def existing(folder):
    """The folder's path; DataError when there is none."""
    path = Path(os.path.expanduser(folder))
    expected = "Expected a folder that has one folder of pictures per class"
    if not folder:
        raise DataError(f"folder: names no folder. {expected}: folder:PATH.")
    if path.is_file():
        raise DataError(f"{path} is a file. {expected}. Unpack it if it is an archive.")
    if not os.path.isdir(path):
        raise DataError(f"There is no folder {path}. {expected}.")
    return path


def split_folders(root):
    """The folder of each split, None where there is none; all of a folder without a folder train is "train".

    A folder train that has no folders is a class (of vehicles).
    """
    inside = subfolders(root)
    found = {split: [path for path in inside if path.name.lower() in names] for split, names in SPLITS.items()}
    found["train"] = [path for path in found["train"] if subfolders(path)]
    if not found["train"]:
        known = [name for names in SPLITS.values() for name in names]
        if inside and all(path.name.lower() in known for path in inside):
            raise DataError(
                f"{root} has {listed(path.name for path in inside)}, and no folder train that has one folder of "
                f"pictures per class, such as {root}/train/cat."
            )
        return {"train": root, "validation": None, "test": None}
    for split, paths in found.items():
        if len(paths) > 1:
            names = listed(path.name for path in paths)
            raise DataError(f"Each of {names} in {root} may be the split {split!r}. Rename all but one.")
    return {split: paths[0] if paths else None for split, paths in found.items()}


def would_read(folder, path):
    """Whether pictures at `path`, which need not exist, would be among those of a dataset's folder."""
    path = Path(path).resolve()
    for place in filter(None, split_folders(existing(folder)).values()):
        if path.is_relative_to(place.resolve()):
            return not any(map(hidden, path.relative_to(place.resolve()).parts))
    return False


def class_names(folder):
    """The names of the class folders, sorted; at least two."""
    classes = subfolders(folder)
    if not classes:
        raise DataError(f"{folder} has no folders. Expected one folder of pictures per class, such as {folder}/cat.")
    if len(classes) == 1:
        inner = f" If the classes are the folders in it, give {classes[0]}." if subfolders(classes[0]) else ""
        raise DataError(f"{folder} has one class, {classes[0].name!r}. A classifier needs at least two.{inner}")
    for path in classes:
        if os.fsencode(path.name).decode(errors="ignore") != path.name:
            raise DataError(f"The name of the folder {path.name!r} in {folder} is not in UTF-8. Rename it.")
    return tuple(path.name for path in classes)


def subfolders(folder):
    return [Path(entry.path) for entry in visible(folder) if is_folder(entry)]


def visible(folder):
    """The entries of a folder by name, without those that a system made for itself."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not hidden(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror}.") from error


def hidden(name):
    return name.startswith(".") or name in SYSTEM


def is_folder(entry):
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))


def files(folder):
    """The entries of a folder and its subfolders that are not folders.

    Every folder is looked into once, whatever links lead to it, and by a path without links if there is one.
    """
    folders, links, seen = deque([folder]), deque(), set()
    while folders or links:
        here = (folders or links).popleft()
        if identity(here) in seen:
            continue
        seen.add(identity(here))
        for entry in visible(here):
            if is_folder(entry):
                (links if entry.is_symlink() else folders).append(entry.path)
            else:
                yield entry


def identity(folder):
    try:
        about = os.stat(folder)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror}.") from error
    return about.st_dev, about.st_ino


def found_in(place, classes, warn):
    """{(path, label)} of the pictures of a split's folder; with `warn`, what is not read is counted in the log."""
    foreign = [path.name for path in subfolders(place) if path.name not in classes]
    if foreign:
        raise DataError(f"{place} has folders for {listed(foreign)}, which the training folder has not.")
    found, unread, irregular = set(), Counter(), []
    for label, name in enumerate(classes):
        for entry in files(place / name) if (place / name).is_dir() else ():
            kind = Path(entry.name).suffix.lower()
            if kind in PICTURES and entry.is_file():
                found.add((Path(entry.path), label))
            elif kind in PICTURES:
                irregular.append(entry.path)
            elif kind in FOREIGN:
                unread[kind] += 1
    if warn:
        report(place, unread, irregular, classes, found)
    return found


def report(place, unread, irregular, classes, found):
    """Warns of files and folders of a split's folder `place` that a user may not have meant to be passed over."""
    if irregular:
        log.warning("These are pipes, devices, sockets or links to nothing, and are not read: %s.", listed(irregular))
    if unread:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(unread.items()))
        log.warning("Of %s these files are not read: %s. Save them as JPEG or PNG.", place, kinds)
    loose = sum(not is_folder(entry) and Path(entry.name).suffix.lower() in PICTURES for entry in visible(place))
    if loose:
        log.warning("Pictures outside of the class folders of %s are not read: %d.", place, loose)
    labels = {label for _, label in found}
    missing = [name for label, name in enumerate(classes) if label not in labels]
    if missing:
        log.warning("%s has no pictures for %s.", place, listed(missing))


def held_out_of(entries, folder):
    """Those of {(path, label)} that are for validation: at least one, if a class has two, and never all of a class."""
    hashes = {entry: percentile(entry[0], folder) for entry in entries}
    ranked = sorted(entries, key=lambda entry: (hashes[entry], entry))
    kept = {label: (path, label) for path, label in ranked}
    spare = [entry for entry in ranked if entry != kept[entry[1]]]
    return {entry for entry in spare if hashes[entry] < HELD_OUT} or set(spare[:1])


def percentile(path, folder):
    """0 to 99, of a file's name within its dataset."""
    digest = hashlib.sha256(os.fsencode(path.relative_to(folder).as_posix())).digest()
    return int.from_bytes(digest[:8], "big") % 100


def require_all(classes, entries, folder):
    """Raises DataError for classes without a picture to train on."""
    labels = {label for _, label in entries}
    empty = [name for label, name in enumerate(classes) if label not in labels]
    if empty:
        raise DataError(
            f"No pictures for {listed(empty)} to train on in {folder}. Add some ({', '.join(PICTURES)}), or remove the "
            f"folder."
        )


def listed(names):
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more

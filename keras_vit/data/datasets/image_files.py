"""Lists the image files of a folder of class folders; the log names the files that are not read."""

import importlib.util
import os
from collections import Counter, deque
from pathlib import Path

from keras_vit.console import log
from keras_vit.data.errors import DataError
from keras_vit.errors import quote_some

HEIC = (".heic", ".heif")
READS_HEIC = importlib.util.find_spec("pillow_heif") is not None
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".avif", ".jp2"),
    *(HEIC if READS_HEIC else ()),
)
# Images that are not read.
FOREIGN_SUFFIXES = (".cr2", ".cr3", ".dng", ".jxl", ".nef", ".svg", *(() if READS_HEIC else HEIC))
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
    """{(path, label)} of the images in a folder of class folders; with `warn`, the log says what is not read.

    Raises:
        DataError: when the folder has another class.
    """
    foreign = [path.name for path in subfolders(folder) if path.name not in classes]
    if foreign:
        raise DataError(f"The training folder has no folders for {quote_some(foreign)}, but {folder} has.")
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

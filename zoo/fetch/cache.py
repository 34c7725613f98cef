"""Fetched files on disk: where they lie, whether they are whole, and who may write one."""

import contextlib
import json
import logging
import os
import re
import stat
from pathlib import Path

import filelock

from keras_vit.errors import DownloadError
from keras_vit.files import read_json, sha256_of_regular, write_whole
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import place_in_cache, requested_address

MOST_NOTE = 1 << 16  # bytes

logger = logging.getLogger(__name__)


def cached_path(url: str) -> Path:
    """Where in the cache the file of a gs://, https:// or http:// address lies; a mirror's is kept apart.

    Raises:
        DownloadError: for an address without a file name, or whose path leads elsewhere.
    """
    return place_in_cache(requested_address(url, settings.mirror()), settings.cache_dir())


@contextlib.contextmanager
def describe_cache_errors(path):
    """Raises a DownloadError for what the cache's file system refuses."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{path} cannot be read or written: {error.strerror or error}. Free some space, or set KERAS_VIT_CACHE to "
            "a folder that can; what has come is kept."
        ) from error


def beside(path, ending):
    return path.with_name(path.name + ending)


def is_regular(path):
    """Whether a file of its own is there, not a link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def make_folder(root, path):
    """Makes the folder of `path` under `root`; a link on the way would lead out of the cache, and is refused."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.resolve() != root.resolve() / path.parent.relative_to(root) or not path.parent.is_dir():
        raise DownloadError(f"{path.parent} is in the way: expected a folder, not a link or file. Remove it.")


@contextlib.contextmanager
def lock_file(path):
    """Lets one process at a time fetch a file; the lock goes with its process, however that ends."""
    held = filelock.FileLock(beside(path, ".lock"))
    try:
        held.acquire(timeout=2)
    except filelock.Timeout:
        logger.warning("Another process is fetching %s; waiting for it.", path.name)
        held.acquire()
    try:
        yield
    finally:
        held.release()


def read_note(path):
    """The object in a small JSON file of the cache; {} for no file, and for what no fetch wrote."""
    try:
        found = read_json(path, MOST_NOTE)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_note(path, value):
    """Writes so that a reader sees the old object or the new, never a part."""
    with write_whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)


def record_path(path):
    return beside(path, ".sha256.json")


def recorded_sha256(path):
    """The SHA-256 that the file had when it was fetched, or None."""
    sha256 = str(read_note(record_path(path)).get("sha256"))
    return sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else None


def write_record(path, sha256, stamp):
    """Keeps the SHA-256 of a file, and the stamp by which it may be trusted unread (None: never)."""
    write_note(record_path(path), {"sha256": sha256, "stamp": stamp})


def stamp_of(path):
    """What cannot all stay the same when the file changes: size, place on disk, times of content and of inode."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def store(part, path, sha256):
    """Gives a checked file its name, with a record from before on: a file without one is taken as somebody's own."""
    with open(part, "r+b") as file:
        os.fsync(file.fileno())  # the bytes are on the disk before the name is
    write_record(path, sha256, stamp=None)
    os.replace(part, path)
    with contextlib.suppress(OSError):
        write_record(path, sha256, stamp_of(path))


def is_intact(path, sha256, bounds):
    """Whether the cache has the file, undamaged. One that somebody put there is taken as it is, and recorded.

    Args:
        sha256: the published one, or None.
        bounds: (least, most) bytes that a file without a record may have.
    """
    if not is_regular(path):
        return False
    recorded, stamp = recorded_sha256(path), stamp_of(path)
    if recorded and read_note(record_path(path)).get("stamp") == stamp and sha256 in (None, recorded):
        return True
    found, expected = sha256_of_regular(path), sha256 or recorded
    least, most = bounds
    if found != expected and (expected or not least <= path.stat().st_size <= most):
        return False
    with contextlib.suppress(OSError):  # a cache that may only be read
        write_record(path, found, stamp)
    return stamp == stamp_of(path)

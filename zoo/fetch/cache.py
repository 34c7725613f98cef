"""Files of the cache with their records and locks; never through a link that somebody put there.

Whoever else may write in the cache must not make this process read or write elsewhere.
"""

import contextlib
import json
import logging
import os
import re
import stat

import filelock

from keras_vit.errors import DownloadError
from keras_vit.files import read_json, sha256_of_regular, write_whole

MOST_NOTE = 1 << 16  # bytes

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def describe_cache_errors(path):
    """Raises a DownloadError for what the cache's file system refuses."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{path} cannot be read or written: {error.strerror or error}. Set KERAS_VIT_CACHE to a folder that can."
        ) from error


def beside(path, ending):
    return path.with_name(path.name + ending)


def is_regular(path):
    """Whether a file of its own is there, not a link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def make_folders(root, path):
    """Makes the folders of `path` under `root`; one of them that is a link leads out of the cache, and is refused."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root
    for name in path.parent.relative_to(root).parts:
        folder /= name
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        if folder.is_symlink() or not folder.is_dir():
            raise DownloadError(f"{folder} is in the way: expected a folder, not a link or file. Remove it.")


@contextlib.contextmanager
def lock_file(path):
    """Lets one process at a time fetch a file; the lock goes with its process, however that ends."""
    place = beside(path, ".lock")
    if os.path.lexists(place) and not is_regular(place):
        raise DownloadError(f"{place} is in the way: expected a file of its own, not a link. Remove it.")
    held = filelock.FileLock(place)
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


def read_record(path):
    record = read_note(record_path(path))
    return record if re.fullmatch("[0-9a-f]{64}", str(record.get("sha256"))) else {}


def write_record(path, sha256, stamp):
    """Keeps the SHA-256 of a file, and the stamp by which it may be trusted unread (None: never)."""
    write_note(record_path(path), {"sha256": sha256, "stamp": stamp})


def stamp_of(path):
    """What cannot all stay the same when the file changes: size, place on disk, times of content and of inode."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def is_intact(path, sha256, bounds):
    """Whether the cache has the file, undamaged. One that somebody put there is taken as it is, and recorded.

    Args:
        sha256: the published one, or None.
        bounds: (least, most) bytes that a file without a record may have.
    """
    if not is_regular(path):
        return False
    record, stamp = read_record(path), stamp_of(path)
    if record.get("stamp") == stamp and sha256 in (None, record["sha256"]):
        return True
    found, expected = sha256_of_regular(path), sha256 or record.get("sha256")
    least, most = bounds
    if found != expected and (expected or not least <= path.stat().st_size <= most):
        return False
    with contextlib.suppress(OSError):  # a cache that may only be read
        write_record(path, found, stamp)
    return stamp == stamp_of(path)

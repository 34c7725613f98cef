"""Fetched files on disk: their paths, their records and checks, and locks for writing them."""

import contextlib
import errno
import hashlib
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import filelock

from keras_vit.console import log
from keras_vit.errors import DownloadError, RecordError
from keras_vit.files import read_record, sha256_of_regular, write_whole
from keras_vit.owned import is_digest, is_regular
from keras_vit.zoo.fetch import places
from keras_vit.zoo.fetch.places import read_url, requested_address

FILE_NAME = re.compile(r'[^/\\:*?"<>|]*[^/\\:*?"<>|.\s]')  # valid on every system
RECORD = {"sha256": is_digest, "stamp": [int]}


def cached_path(url: str) -> Path:
    """The path in the cache for a gs://, https:// or http:// address: the requested host and path.

    It also depends on a stated port, on plain http and, by a hash in the name, on the query.

    Raises:
        DownloadError: for an address without a file name, or with a path that leads out of the cache.
    """
    address = requested_address(url)
    parts = read_url(address)
    names = [unquote(name, errors="surrogateescape") for name in parts.path.split("/")[1:]]
    if not names or not all(name.isprintable() and FILE_NAME.fullmatch(name) for name in names):
        raise DownloadError(f"{address} names no file. Expected an address such as https://host/folder/file.npz.")
    if parts.query:
        names[-1] = f"{hashlib.sha256(parts.query.encode()).hexdigest()[:12]}-{names[-1]}"
    # No host has a "+" in its name.
    scheme, port = "" if parts.scheme == "https" else "http+", f"+{parts.port}" if parts.port else ""
    host = (parts.hostname or "").replace(":", "-")
    return places.cache_dir().joinpath(f"{scheme}{host}{port}", *names)


@contextlib.contextmanager
def describe_cache_errors(path):
    """Turns errors of the cache's file system into DownloadErrors."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        advice = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Make it writable"
        raise DownloadError(
            f"{path} cannot be read or written: {error.strerror or error}. {advice}, or set KERAS_VIT_CACHE to a "
            "folder that can; what was received so far is kept."
        ) from error


def beside(path, ending):
    return path.with_name(path.name + ending)


def make_folder(root, path):
    """Makes the folder of `path` under `root`; refuses links on the way, since they could lead out of the cache."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.resolve() != root.resolve() / path.parent.relative_to(root) or not path.parent.is_dir():
        raise DownloadError(f"{path.parent} is in the way: expected a folder, not a link or file. Remove it.")


def lock_file(path):
    """A context in which one process at a time fetches a file; the lock ends with the process, even if it is killed."""
    lock = filelock.FileLock(beside(path, ".lock"))
    try:
        return lock.acquire(timeout=2)
    except NotImplementedError:
        return contextlib.nullcontext()  # a file system without locks
    except filelock.Timeout:
        log.warning("Another process is fetching %s; waiting for it.", path.name)
        return lock.acquire()


def record_path(path):
    return beside(path, ".sha256.json")


def recorded(path):
    """(SHA-256, stamp) of a file when it was last read, or None. With the same stamp it need not be read again."""
    try:
        record = read_record(record_path(path), RECORD, what="the record of a fetched file")
    except RecordError:
        return None, None
    return record["sha256"], record["stamp"]


def write_record(path, sha256, stamp):
    with contextlib.suppress(OSError), write_whole(record_path(path)) as temporary:  # the cache may be read-only
        temporary.write_text(json.dumps({"sha256": sha256, "stamp": stamp}), "utf-8")


def stamp_of(path):
    """Facts that change with the file: size, place on disk, times of its content and of its inode."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def store(part, path, sha256):
    """Gives a checked file its name."""
    with open(part, "r+b") as file:
        os.fsync(file.fileno())  # the bytes must be on the disk before the name
    os.replace(part, path)
    write_record(path, sha256, stamp_of(path))


def is_intact(path, sha256, bounds):
    """Whether the cache has the file, undamaged.

    A file that was put there by hand is accepted and recorded: with the published `sha256`, if there is one, else with
    a number of bytes in `bounds`, (least, most).
    """
    if not is_regular(path):
        return False
    (known, known_stamp), stamp = recorded(path), stamp_of(path)
    if known and known_stamp == stamp and sha256 in (None, known):
        return True
    found, expected = sha256_of_regular(path), sha256 or known
    least, most = bounds
    if found != expected and (expected or not least <= stamp[0] <= most):
        return False
    write_record(path, found, stamp)
    return stamp == stamp_of(path)

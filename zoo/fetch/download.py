"""Files by address, fetched once, checked, and kept: never a wrong file under the right name."""

import contextlib
import logging
import os
import re

import filelock

from keras_vit.errors import DownloadError
from keras_vit.offline import is_offline
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import address, cached_path
from keras_vit.zoo.fetch.integrity import checksums, hexadecimal
from keras_vit.zoo.fetch.partial import Partial, is_regular, is_single, make_folders, read_json, write_json
from keras_vit.zoo.fetch.session import credentials
from keras_vit.zoo.fetch.transfer import progress_bar, receive
from keras_vit.zoo.names.rows import Checkpoint

logger = logging.getLogger(__name__)


def fetch(source, *, most_bytes=None, progress=True):
    """The path of a file from the web: fetched and checked at the first call, found in the cache ever after.

    What the server says of the whole (length, MD5, CRC-32C) is checked before the file takes its name; its sha256 is
    recorded beside it then, and checked whenever the file's times or place on disk have changed since.

    Args:
        source: a `Checkpoint`, or an address: https://, gs:// or hf://owner/repo/file.
        most_bytes: that the file may have, where it is less than KERAS_VIT_MAX_BYTES.
        progress: draw a bar on a terminal.

    Raises:
        DownloadError: when the file cannot be fetched, or is not what was promised; nothing of that name is left then.

    >>> fetch(resolve("ViT-B/16:augreg-i21k"))
    PosixPath('.../storage.googleapis.com/vit_models/augreg/B_16-i21k-300ep-lr_0.001-...npz')
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint(url=str(source))
    url, path = address(checkpoint.url), cached_path(checkpoint.url)
    bounds = limits(checkpoint, most_bytes)
    with sentences(path):
        if is_kept(path, checkpoint, bounds):
            return path
        if is_offline():
            raise DownloadError(absent(path, checkpoint, url))
        make_folders(settings.cache_dir(), path)
        with locked(path):
            if not is_kept(path, checkpoint, bounds):
                with progress_bar(checkpoint.name if checkpoint.tag else path.name, progress) as bar:
                    bring(checkpoint, url, path, bounds, bar)
    return path


def absent(path, checkpoint, url):
    """The sentence for a file that is needed while the network is not to be used."""
    name = checkpoint.name if checkpoint.variant else url.public
    state = "is damaged in the cache" if is_regular(path) else "is not in the cache"
    if path.is_symlink():
        state = "is a link in the cache, which is not followed"
    return (
        f"{name} {state}, and KERAS_VIT_OFFLINE forbids fetching it. Unset KERAS_VIT_OFFLINE, or "
        f"fetch {url.public} elsewhere and put it at {path}."
    )


@contextlib.contextmanager
def sentences(path):
    """Turns what the cache's file system refuses into a sentence."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{path} cannot be read or written: {error.strerror or error}. Set KERAS_VIT_CACHE to a folder that can."
        ) from error


@contextlib.contextmanager
def locked(path):
    """Lets one process at a time fetch; the lock goes with its process, however that ends."""
    place = beside(path, ".lock")
    if os.path.lexists(place) and not is_single(place):
        raise DownloadError(f"{place} is in the way: expected a file of its own, not a link. Remove it.")
    lock = filelock.FileLock(place)
    try:
        lock.acquire(timeout=2)
    except filelock.Timeout:
        logger.warning("Another process is fetching %s; waiting for it.", path.name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def beside(path, ending):
    return path.with_name(path.name + ending)


def is_kept(path, checkpoint, bounds):
    """Whether the cache has the file, unharmed. One that somebody put there is taken as it is, and recorded."""
    if not is_regular(path):
        return False
    record, stamp = read_record(path), stamp_of(path)
    if record.get("stamp") == stamp and checkpoint.sha256 in (None, record["sha256"]):
        return True
    sha256 = hexadecimal(checksums(path)["sha256"])
    expected = checkpoint.sha256 or record.get("sha256")
    least, most = bounds
    if sha256 != expected and (expected or not least <= path.stat().st_size <= most):
        return False
    with contextlib.suppress(OSError):  # a cache that may only be read
        write_record(path, sha256, stamp)
    return stamp == stamp_of(path)


def read_record(path):
    record = read_json(beside(path, ".sha256.json"))
    return record if re.fullmatch("[0-9a-f]{64}", str(record.get("sha256"))) else {}


def stamp_of(path):
    """What a change of the file cannot leave as it was: size, place on disk, times of content and of inode."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def write_record(path, sha256, stamp):
    """Keeps the sha256 of a file, and the stamp under which it may be believed unread (None: under none)."""
    write_json(beside(path, ".sha256.json"), {"sha256": sha256, "stamp": stamp})


def limits(checkpoint, most_bytes=None):
    """(least, most) bytes that the file can have by what is known of it; listings are rounded, computed sizes low."""
    size, most = checkpoint.bytes, min(most_bytes or settings.max_bytes(), settings.max_bytes())
    if size is None:
        return 1, most
    if checkpoint.bytes_source == "exact":
        return size, size
    return int(0.98 * size), int(1.02 * size) if checkpoint.bytes_source == "listed" else most


def bring(checkpoint, url, path, bounds, progress):
    """Fetches into a partial file, checks it, and gives it its name; what fails the check is fetched once more."""
    partial = Partial(beside(path, ".part"))
    expected = {"recorded": read_record(path).get("sha256"), "published": checkpoint.sha256}
    for last in (False, True):
        remote = receive(url, partial, credentials(url), bounds, progress)
        fault, sha256 = verify(partial, remote, bounds, expected)
        if not fault:
            break
        partial.discard()
        if last:
            raise DownloadError(f"{url.public}: {fault}. {advice(path, expected)}")
    with partial.opened() as file:
        os.fsync(file.fileno())  # the bytes are on the disk before the name is
    write_record(path, sha256, stamp=None)
    os.replace(partial.path, path)
    partial.discard()
    with contextlib.suppress(OSError):
        write_record(path, sha256, stamp_of(path))


def verify(partial, remote, bounds, expected):
    """What is wrong with a file that has come (None if nothing), and its sha256."""
    found = checksums(partial.path, {"sha256", *remote.checksums})
    sha256 = hexadecimal(found["sha256"])
    size = partial.size()
    least, most = bounds if remote.total is None else (remote.total, remote.total)
    if not least <= size <= most:
        return f"{size:,} bytes came; expected {least:,}{f' to {most:,}' if most > least else ''}", sha256
    for name, promised in remote.checksums.items():
        if found[name] != promised:
            return (
                f"the bytes that came have the {name} {found[name]}; the server promised {printable(promised)}",
                sha256,
            )
    for name, known in expected.items():
        if known not in (None, sha256):
            return f"the file that came has the sha256 {sha256}; the {name} one is {known}", sha256
    return None, sha256


def advice(path, expected):
    if expected["recorded"]:
        return f"If the file was changed on purpose, delete {beside(path, '.sha256.json')} and fetch it again."
    return "It was fetched twice. Try another network, or set KERAS_VIT_MIRROR to another server of the same files."


def forget(source):
    """Removes a file from the cache, with its record; the next `fetch` takes what the server has then."""
    url = source.url if isinstance(source, Checkpoint) else str(source)
    path = cached_path(url)
    with sentences(path):
        make_folders(settings.cache_dir(), path)
        with locked(path):
            for file in (path, beside(path, ".sha256.json")):
                file.unlink(missing_ok=True)
            Partial(beside(path, ".part")).discard()

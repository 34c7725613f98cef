"""Files by address, fetched once, checked, and kept: never a wrong file under the right name."""

import contextlib
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from keras_vit.errors import DownloadError
from keras_vit.files import is_offline
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import cached_path, requested_url, web_address
from keras_vit.zoo.fetch.cache import (
    beside,
    describe_cache_errors,
    is_intact,
    is_regular,
    lock_file,
    make_folders,
    read_record,
    record_path,
    stamp_of,
    write_record,
)
from keras_vit.zoo.fetch.replies import NotFoundError, compute_checksums, to_hexadecimal
from keras_vit.zoo.fetch.session import authorization
from keras_vit.zoo.fetch.transfer import Partial, receive
from keras_vit.zoo.formats.torch.stated import COMPANIONS, MOST_BYTES
from keras_vit.zoo.names.rows import PublicCheckpoint

TRIES = 2  # a file that fails its checks is fetched once more


class Mismatch(Exception):
    """A file that came and is not the one expected; the message says in what."""


def as_checkpoint(source):
    return source if isinstance(source, PublicCheckpoint) else PublicCheckpoint(url=str(source))


def describe_offline(path, checkpoint, url):
    """The sentence for a file that is needed while the network is not to be used."""
    name = checkpoint.name if checkpoint.variant else url.public
    state = "is damaged in the cache" if is_regular(path) else "is not in the cache"
    if path.is_symlink():
        state = "is a link in the cache, which is not followed"
    return (
        f"{name} {state}, and KERAS_VIT_OFFLINE forbids fetching it. Unset KERAS_VIT_OFFLINE, or "
        f"fetch {url.public} elsewhere and put it at {path}."
    )


def size_bounds(checkpoint, most_bytes=None):
    """(least, most) bytes that the file can have by what is known of it; listings are rounded, computed sizes low."""
    size, most = checkpoint.bytes, min(most_bytes or settings.max_bytes(), settings.max_bytes())
    if size is None:
        return 1, most
    if checkpoint.bytes_source == "exact":
        return size, size
    return int(0.98 * size), int(1.02 * size) if checkpoint.bytes_source == "listed" else most


def verify_received(partial, remote, bounds, expected):
    """The SHA-256 of a file that has come, if its size, the server's checksums and known digests are as expected."""
    found = compute_checksums(partial.path, {"sha256", *remote.checksums})
    sha256, size = to_hexadecimal(found["sha256"]), partial.size()
    least, most = bounds if remote.total is None else (remote.total, remote.total)
    if not least <= size <= most:
        raise Mismatch(f"{size:,} bytes came; expected {least:,}{f' to {most:,}' if most > least else ''}")
    for name, announced in remote.checksums.items():
        if found[name] != announced:
            raise Mismatch(
                f"the bytes that came have the {name} {found[name]}; the server announced {printable(announced)}"
            )
    for name, known in expected.items():
        if known not in (None, sha256):
            raise Mismatch(f"the file that came has the sha256 {sha256}; the {name} one is {known}")
    return sha256


def store_checked(partial, path, sha256):
    """Gives a checked file its name, with a record from before on: a file without one is taken as somebody's own."""
    with partial.open() as file:
        os.fsync(file.fileno())  # the bytes are on the disk before the name is
    write_record(path, sha256, stamp=None)
    os.replace(partial.path, path)
    partial.discard()
    with contextlib.suppress(OSError):
        write_record(path, sha256, stamp_of(path))


@contextlib.contextmanager
def progress_bar(name, wanted):
    """Yields a function of (bytes so far, bytes in all) that draws on a terminal, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from keras_vit.console import Console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def advise(path, expected):
    if expected["recorded"]:
        return f"If the file was changed on purpose, delete {record_path(path)} and fetch it again."
    return "It was fetched twice. Try another network, or set KERAS_VIT_MIRROR to another server of the same files."


def download(checkpoint, url, path, bounds, progress):
    """Fetches into a partial file, checks it, and only then gives it its name."""
    partial = Partial(beside(path, ".part"))
    expected = {"recorded": read_record(path).get("sha256"), "published": checkpoint.sha256}
    for _ in range(TRIES):
        remote = receive(url, partial, authorization(url), bounds, progress)
        try:
            sha256 = verify_received(partial, remote, bounds, expected)
        except Mismatch as error:
            partial.discard()
            fault = str(error)
        else:
            return store_checked(partial, path, sha256)
    raise DownloadError(f"{url.public}: {fault}. {advise(path, expected)}")


def fetch(source: PublicCheckpoint | str, *, most_bytes: int | None = None, progress: bool = True) -> Path:
    """The path of a file from the web: fetched and checked at the first call, found in the cache ever after.

    What the server announces of the whole file (length, MD5, CRC-32C) is checked before the file takes its name; its
    SHA-256 is recorded beside it then, and checked whenever the file's times or place on disk have changed since.

    Args:
        source: a `PublicCheckpoint`, or an address: https://, gs:// or hf://owner/repo/file.
        most_bytes: the most bytes that the file may have, where that is less than KERAS_VIT_MAX_BYTES.
        progress: draw a bar on a terminal.

    Raises:
        DownloadError: when the file cannot be fetched, or is not the one expected; no file of that name is left then.

    >>> fetch(resolve("ViT-B/16:augreg-i21k"))  # doctest: +SKIP
    PosixPath('.../storage.googleapis.com/vit_models/augreg/B_16-i21k-300ep-lr_0.001-...npz')
    """
    checkpoint = as_checkpoint(source)
    url, path = requested_url(checkpoint.url), cached_path(checkpoint.url)
    bounds = size_bounds(checkpoint, most_bytes)
    with describe_cache_errors(path):
        if is_intact(path, checkpoint.sha256, bounds):
            return path
        if is_offline():
            raise DownloadError(describe_offline(path, checkpoint, url))
        make_folders(settings.cache_dir(), path)
        with lock_file(path):
            if not is_intact(path, checkpoint.sha256, bounds):  # another process may have fetched it meanwhile
                with progress_bar(checkpoint.name if checkpoint.tag else path.name, progress) as bar:
                    download(checkpoint, url, path, bounds, bar)
    return path


def neighbour(url, name):
    """The address of another file in the same folder."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def fetch_with_companions(checkpoint: PublicCheckpoint) -> Path:
    """The path of a checkpoint's file; before a .safetensors file of the Hub come the JSON files beside it, if any."""
    url = web_address(checkpoint.url)
    of_hub = url.startswith(f"{settings.hub()}/") and urlsplit(url).path.endswith(".safetensors")
    if of_hub and not is_offline() and not cached_path(url).is_file():
        for name in COMPANIONS:
            with contextlib.suppress(NotFoundError):
                fetch(neighbour(url, name), most_bytes=MOST_BYTES, progress=False)
    return fetch(checkpoint)

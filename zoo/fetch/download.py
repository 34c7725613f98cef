"""Files by address, fetched once, checked, and kept: never a wrong file under the right name.

`requests` asks; the rest of a file that broke off in the middle is asked for here, on the condition that it is still
the same file.
"""

import base64
import contextlib
import dataclasses
import hashlib
import logging
import shutil
import sys
import time
from pathlib import Path

import google_crc32c
import requests
from urllib3.exceptions import HTTPError

from keras_vit.errors import DownloadError, RecordError
from keras_vit.files import is_offline, open_regular, read_record
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import public_form, requested_address, whole_address
from keras_vit.zoo.fetch.cache import (
    beside,
    cached_path,
    describe_cache_errors,
    is_intact,
    is_regular,
    lock_file,
    make_folder,
    record_path,
    recorded_sha256,
    store,
    write_note,
)
from keras_vit.zoo.fetch.hub import fetch_from_hub, find_on_disk, hub_form
from keras_vit.zoo.fetch.web import (
    RETRIED,
    EndedEarlyError,
    NotFoundError,
    Remote,
    ask,
    continues,
    describe_cause,
    read_reply,
    refusal_error,
)
from keras_vit.zoo.formats.torch.stated import COMPANIONS, MOST_BYTES
from keras_vit.zoo.names.rows import PublicCheckpoint

CHUNK = 1 << 20
REMOTE = {"address": str, "total": (int, None), "version": (str, None), "checksums": {str: str}}  # as it is kept
FAILURES = 5  # in a row that get no further into the file
CONNECTIONS = 200  # for one file
BACKOFF = 0.5  # seconds, doubled at each failure
TRIES = 2  # a file that fails its checks is fetched once more

logger = logging.getLogger(__name__)


class MismatchError(Exception):
    """A file that came and is not the one expected; the message says in what."""


@contextlib.contextmanager
def progress_bar(name, wanted):
    """Yields a function of (bytes so far, bytes in all) that draws on a terminal, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    from keras_vit.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class Partial:
    """The bytes received so far, which survive a killed process, and beside them what is known of the whole file."""

    def __init__(self, path):
        self.path, self.note = beside(path, ".part"), beside(path, ".part.json")

    def size(self):
        return self.path.stat().st_size if is_regular(self.path) else 0

    def remote(self):
        """The `Remote` that the bytes so far belong to; None where nothing tells."""
        try:
            note = read_record(self.note, REMOTE, what="the note of a partial file")
        except RecordError:
            return None
        return Remote(**{name: note[name] for name in REMOTE})

    def start(self, remote):
        """Begins the file anew, for the bytes of `remote`."""
        self.discard()
        with open(self.path, "xb"):
            write_note(self.note, dataclasses.asdict(remote))

    def discard(self):
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def require_size(remote, bounds):
    """Refuses a file whose announced size is not within `bounds`, (least, most) bytes."""
    least, most = bounds
    if remote.total is not None and not least <= remote.total <= most:
        bound = f"at least {least:,}" if remote.total < least else f"at most {most:,}"
        raise DownloadError(
            f"{remote.address} has {remote.total:,} bytes; expected {bound}. Check the address or the mirror; "
            "KERAS_VIT_MAX_BYTES sets the most for a file of unknown size."
        )


def accept_reply(reply, address, partial, offset, bounds):
    """(Remote, first byte) of the body that follows; `offset` is the byte that was asked for, 0 for all of the file.

    Bytes so far that do not belong to it are discarded.
    """
    known = partial.remote()
    if reply.status_code == 200:
        remote = read_reply(reply, address)
        require_size(remote, bounds)
        partial.start(remote)
        return remote, 0
    if offset and reply.status_code == 206:
        if continues(reply, known, offset):
            return known, offset
        partial.discard()
        raise EndedEarlyError("the file on the server is not the one that was begun")
    if offset and reply.status_code == 416:
        partial.discard()
        raise EndedEarlyError(f"the server has no byte {offset:,} of {known.total or 'an unknown number of':,} bytes")
    if reply.status_code in RETRIED:
        raise EndedEarlyError(f"the server answered {reply.status_code} {printable(reply.reason)}".rstrip())
    raise refusal_error(reply, public_form(address))


def append(raw, partial, offset, remote, most, draw):
    """Writes the body of a reply behind the first `offset` bytes."""
    free = shutil.disk_usage(partial.path.parent).free
    if remote.total is not None and remote.total - offset > free:
        raise OSError(f"{remote.total - offset:,} bytes are to come, {free:,} are free")
    with open_regular(partial.path, "r+b") as file:
        file.seek(offset)
        while chunk := raw.read1(CHUNK, decode_content=False):
            offset += len(chunk)
            if offset > most:
                partial.discard()
                raise DownloadError(f"{remote.address} sent more than {most:,} bytes; expected no more.")
            file.write(chunk)
            file.flush()  # what has come survives a killed process
            if draw:
                draw(offset, remote.total)
    if remote.total is not None and offset != remote.total:
        raise EndedEarlyError("the connection was closed")


def receive_once(address, partial, bounds, draw):
    """One connection: the rest of the file, or all of it where the server does not resume."""
    known, offset = partial.remote(), partial.size()
    if known and known.total == offset:
        return known
    offset = offset if known and known.resumable else 0
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    if offset and known.version:
        headers["If-Range"] = known.version
    with ask(address, headers) as reply:
        remote, offset = accept_reply(reply, address, partial, offset, bounds)
        append(reply.raw, partial, offset, remote, bounds[1] if remote.total is None else remote.total, draw)
    return remote


def receive(address, partial, bounds, draw):
    """Fills `partial` with the file at an address, however often the connection breaks, and returns its `Remote`.

    Raises:
        DownloadError: when the server refuses, sends something else, or breaks off too often.
    """
    shown = public_form(address)
    if (known := partial.remote()) and not (known.address == shown and known.resumable):
        partial.discard()  # of another address, or nothing would tell a changed file
    failures, furthest, cause = 0, partial.size(), ""
    for _ in range(CONNECTIONS):
        try:
            return receive_once(address, partial, bounds, draw)
        except (requests.RequestException, HTTPError, EndedEarlyError, ValueError) as error:
            cause = describe_cause(error)
            lasting = isinstance(error, requests.exceptions.SSLError | ValueError)
        failures, furthest = (0, partial.size()) if partial.size() > furthest else (failures + 1, furthest)
        if failures == FAILURES or lasting:
            break
        if failures == 1:
            logger.warning("%s: %s. Trying again for some seconds.", shown, cause)
        time.sleep(BACKOFF / 2 * 2**failures)
    if partial.size() == 0:
        raise DownloadError(
            f"{shown} could not be fetched: {cause}. Try again when the network is there, set KERAS_VIT_MIRROR to "
            f"another server of the same files, or fetch it elsewhere and put it at {partial.path.with_suffix('')}. "
            "KERAS_VIT_OFFLINE=1 never asks the network."
        )
    known = partial.remote()
    total = f"{known.total:,}" if known and known.total is not None else "an unknown number of"
    raise DownloadError(
        f"{shown} could not be fetched: {partial.size():,} of {total} bytes came, then {cause}. Try again later: what "
        "has come is kept, and the next try continues from there."
    )


def compute_checksums(path, names):
    """Checksums of a file by name, as base64 text, in one reading."""
    digests = {
        name: google_crc32c.Checksum() if name == "crc32c" else hashlib.new(name, usedforsecurity=False)
        for name in names
    }
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            for digest in digests.values():
                digest.update(block)
    return {name: base64.b64encode(digest.digest()).decode() for name, digest in digests.items()}


def require_expected(partial, remote, bounds, expected):
    """The SHA-256 of a file that has come, if its size, the server's checksums and known digests are as expected."""
    found = compute_checksums(partial.path, {"sha256", *remote.checksums})
    sha256, size = base64.b64decode(found["sha256"]).hex(), partial.size()
    least, most = bounds if remote.total is None else (remote.total, remote.total)
    if not least <= size <= most:
        raise MismatchError(f"{size:,} bytes came; expected {least:,}{f' to {most:,}' if most > least else ''}")
    for name, announced in remote.checksums.items():
        if found[name] != announced:
            raise MismatchError(f"the bytes that came have the {name} {found[name]}; the server announced {announced}")
    for name, known in expected.items():
        if known not in (None, sha256):
            raise MismatchError(f"the file that came has the sha256 {sha256}; the {name} one is {known}")
    return sha256


def download(checkpoint, address, path, bounds, draw):
    """Fetches into a partial file, checks it, and only then gives it its name."""
    partial, fault = Partial(path), ""
    expected = {"recorded": recorded_sha256(path), "published": checkpoint.sha256}
    for _ in range(TRIES):
        remote = receive(address, partial, bounds, draw)
        try:
            sha256 = require_expected(partial, remote, bounds, expected)
        except MismatchError as error:
            partial.discard()
            fault = str(error)
            continue
        store(partial.path, path, sha256)
        return partial.discard()
    advice = "It was fetched twice. Try another network, or set KERAS_VIT_MIRROR to another server of the same files."
    if expected["recorded"]:
        advice = f"If the file was changed on purpose, delete {record_path(path)} and fetch it again."
    raise DownloadError(f"{public_form(address)}: {fault}. {advice}")


def size_bounds(checkpoint, most):
    """(least, most) bytes that the file can have by what is known of it; listings are rounded, computed sizes low."""
    size = checkpoint.bytes
    if size is None:
        return 1, most
    if checkpoint.bytes_source == "exact":
        return size, size
    return int(0.98 * size), int(1.02 * size) if checkpoint.bytes_source == "listed" else most


def find_fetched(url: str) -> Path | None:
    """The file of an address that was fetched before, or None."""
    if (url := hub_form(url)).startswith("hf://"):
        return find_on_disk(url)
    path = cached_path(url)
    return path if is_regular(path) else None


def fetch(source: PublicCheckpoint | str, *, most_bytes: int | None = None, progress: bool = True) -> Path:
    """The path of a file from the web: fetched and checked at the first call, found in the cache ever after.

    Size, and what the server announces of the whole file (MD5, CRC-32C; the Hub's SHA-256), are checked before the
    file takes its name; its SHA-256 is recorded beside it then, and checked whenever the file's times or place on disk
    have changed since. Files of hf:// lie in the Hub's own cache.

    Args:
        source: a `PublicCheckpoint`, or an address: https://, gs:// or hf://owner/repo/file.
        most_bytes: the most bytes that the file may have, where that is less than KERAS_VIT_MAX_BYTES.
        progress: draw a bar on a terminal.

    Raises:
        DownloadError: when the file cannot be fetched, or is not the one expected; no file of that name is left then.

    >>> fetch(resolve("ViT-B/16:augreg-i21k"))  # doctest: +SKIP
    PosixPath('.../storage.googleapis.com/vit_models/augreg/B_16-i21k-300ep-lr_0.001-...npz')
    """
    checkpoint = source if isinstance(source, PublicCheckpoint) else PublicCheckpoint(url=str(source))
    most = min(most_bytes or settings.max_bytes(), settings.max_bytes())
    if (url := hub_form(checkpoint.url)).startswith("hf://"):
        return fetch_from_hub(url, most, progress)
    address, path, bounds = requested_address(url, settings.mirror()), cached_path(url), size_bounds(checkpoint, most)
    name = checkpoint.name if checkpoint.variant else public_form(address)
    with describe_cache_errors(path):
        if is_intact(path, checkpoint.sha256, bounds):
            return path
        if is_offline():
            state = "is damaged in the cache" if is_regular(path) else "is not in the cache"
            raise DownloadError(
                f"{name} {state}, and KERAS_VIT_OFFLINE forbids fetching it. Unset KERAS_VIT_OFFLINE, or fetch "
                f"{public_form(address)} elsewhere and put it at {path}."
            )
        make_folder(settings.cache_dir(), path)
        with lock_file(path):
            if not is_intact(path, checkpoint.sha256, bounds):  # another process may have fetched it meanwhile
                with progress_bar(checkpoint.name if checkpoint.tag else path.name, progress) as draw:
                    download(checkpoint, address, path, bounds, draw)
    return path


def fetch_with_companions(checkpoint: PublicCheckpoint) -> Path:
    """The path of a checkpoint's file; before a .safetensors file of the Hub come the JSON files beside it, if any."""
    url = whole_address(hub_form(checkpoint.url))
    if url.startswith("hf://") and url.endswith(".safetensors") and not is_offline() and find_on_disk(url) is None:
        for name in COMPANIONS:
            with contextlib.suppress(NotFoundError):
                fetch(f"{url.rpartition('/')[0]}/{name}", most_bytes=MOST_BYTES, progress=False)
    return fetch(dataclasses.replace(checkpoint, url=url))

"""Fetches files by address once, checks them and keeps them: there is never a wrong file under the right name. For
hf://, huggingface_hub gives the name first, and a file that is then found wrong is removed at once.

The requests are made by `requests`. After a broken download, this module requests only the rest, if the file is still
the same.
"""

import base64
import contextlib
import dataclasses
import glob
import hashlib
import time
from pathlib import Path

import google_crc32c
import requests
from urllib3.exceptions import HTTPError

from keras_vit.console import Console, log
from keras_vit.errors import DownloadError, printable, without_secrets
from keras_vit.files import is_offline, open_regular
from keras_vit.owned import is_regular
from keras_vit.zoo.fetch import places
from keras_vit.zoo.fetch.cache import (
    cached_path,
    describe_cache_errors,
    is_intact,
    lock_file,
    make_folder,
    record_path,
    recorded,
    store,
)
from keras_vit.zoo.fetch.hub import NotFoundError, fetch_from_hub, find_on_disk, look_on_disk
from keras_vit.zoo.fetch.places import requested_address, whole_address
from keras_vit.zoo.fetch.web import EndedEarlyError, ask, describe_cause, read_reply, require_file
from keras_vit.zoo.formats.torch.stated import COMPANIONS, MOST_BYTES
from keras_vit.zoo.names.rows import PublicCheckpoint

CHUNK = 1 << 20
FAILURES = 5  # in a row without any progress
CONNECTIONS = 200  # for one file
BACKOFF = 0.5  # seconds, doubled at each failure
LASTING = (requests.exceptions.SSLError, requests.TooManyRedirects, ValueError)  # errors that would occur again


@contextlib.contextmanager
def progress_bar(name):
    """Yields a function of (bytes so far, bytes in all) that draws on a terminal."""
    from rich import progress

    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def list_partial(path):
    """The file with the bytes received so far, also after a kill, as a list of one or none."""
    return [*path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 16}.part")]


def discard_partial(path):
    for part in list_partial(path):
        part.unlink()


def size_begun(path):
    return max((part.stat().st_size for part in list_partial(path) if is_regular(part)), default=0)


def name_partial(path, remote):
    """The name of the partial file of `remote`; each version of the file has its own."""
    told_apart = hashlib.sha256(f"{remote.total} {remote.version}".encode()).hexdigest()
    return path.with_name(f"{path.name}.{told_apart[:16]}.part")


def append(raw, part, offset, remote, bounds, draw):
    """Writes the body of a reply after the first `offset` bytes."""
    least, most = bounds if remote.total is None else (remote.total, remote.total)
    with open_regular(part, "r+b") as file:
        file.seek(offset)
        while chunk := raw.read1(CHUNK, decode_content=False):
            offset += len(chunk)
            if offset > most:
                part.unlink()
                raise DownloadError(f"The server sent more than {most:,} bytes; expected no more. Check the address.")
            file.write(chunk)
            file.flush()  # received bytes survive if the process is killed
            draw(offset, remote.total)
    if offset < least:
        raise EndedEarlyError("the connection was closed")


def receive_once(address, path, bounds, draw):
    """Tries once to receive the file, or the rest of it if the beginning is here. Returns its path and its `Remote`.

    The first reply identifies the file, so that the beginning of a different file is not continued.
    """
    with ask(address) as reply:
        remote = read_reply(reply, address, bounds)
        part = name_partial(path, remote)
        version, total = remote.version or "", remote.total or 0
        offset = part.stat().st_size if version and total and is_regular(part) else 0
        if not offset or offset > total:
            discard_partial(path)
            part.touch(exist_ok=False)
            append(reply.raw, part, 0, remote, bounds, draw)
            return part, remote
    if offset < total:
        with ask(address, {"Range": f"bytes={offset}-", "If-Range": version}) as reply:
            span = f"bytes {offset}-{total - 1}/{total}"
            stated = reply.status_code, reply.headers.get("Content-Range"), reply.headers.get("ETag")
            if stated != (206, span, version):
                if reply.status_code in (200, 206, 416):  # the server cannot resume
                    part.unlink()
                raise EndedEarlyError(f"the server answered {reply.status_code} when asked for the rest")
            require_file(reply.headers, address)
            append(reply.raw, part, offset, remote, bounds, draw)
    return part, remote


def receive(address, path, bounds, draw):
    """Calls `receive_once` again whenever the connection breaks."""
    shown, failures, furthest = without_secrets(address), 0, size_begun(path)
    for _ in range(CONNECTIONS):
        try:
            return receive_once(address, path, bounds, draw)
        except (requests.RequestException, HTTPError, EndedEarlyError, ValueError) as error:
            cause, lasting = describe_cause(error), isinstance(error, LASTING)
        size = size_begun(path)
        failures, furthest = (0, size) if size > furthest else (failures + 1, furthest)
        if failures == FAILURES or lasting:
            break
        if failures == 1:
            log.warning("%s: %s. Trying again for some seconds.", shown, cause)
        time.sleep(BACKOFF / 2 * 2**failures)
    came = f"{size:,} bytes came and are kept, then " if size else ""
    raise DownloadError(
        f"{shown} could not be fetched: {came}{cause}. Try again when the network is there, set KERAS_VIT_MIRROR to "
        f"another server of the same files, or fetch it elsewhere and put it at {path}. KERAS_VIT_OFFLINE=1 never asks "
        "the network."
    )


def compute_checksums(path, names):
    """Computes checksums of a file, {name: bytes}, by reading it once."""
    sums = {
        name: google_crc32c.Checksum() if name == "crc32c" else hashlib.new(name, usedforsecurity=False)
        for name in names
    }
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            for checksum in sums.values():
                checksum.update(block)
    return {name: checksum.digest() for name, checksum in sums.items()}


def download(checkpoint, address, path, bounds, draw):
    """Fetches a file, checks it, and only then gives it its name."""
    part, remote = receive(address, path, bounds, draw)
    found = compute_checksums(part, {"sha256", *remote.checksums})
    sha256, before = found["sha256"].hex(), recorded(path)[0]
    checks = {
        f"{name} that the server announced": (base64.b64encode(found[name]).decode(), announced)
        for name, announced in remote.checksums.items()
    }
    checks["sha256 that it had when it was fetched before"] = sha256, before
    checks["published sha256"] = sha256, checkpoint.sha256
    advice = "Try again on another network, or set KERAS_VIT_MIRROR to another server of the same files."
    if before:
        advice = f"If it was changed on purpose, delete {record_path(path)} and fetch it again."
    for what, (value, expected) in checks.items():
        if expected not in (None, value):
            discard_partial(path)
            raise DownloadError(
                f"{address}: the file received does not have the {what}, {expected}, but {value}. {advice}"
            )
    store(part, path, sha256)


def size_bounds(checkpoint):
    """(least, most) bytes of the file; listed sizes are rounded, computed sizes are slightly too low."""
    size, most = checkpoint.bytes, places.max_bytes()
    if size is None:
        return 1, most
    if checkpoint.bytes_source == "exact":
        return size, min(size, most)
    return int(0.98 * size), min(int(1.02 * size), most) if checkpoint.bytes_source == "listed" else most


def find_fetched(url: str) -> Path | None:
    """The file of an address if it was fetched before, otherwise None."""
    if (url := whole_address(url)).startswith("hf://"):
        return find_on_disk(url)
    path = cached_path(url)
    return path if is_regular(path) else None


def fetch(source: PublicCheckpoint | str) -> Path:
    """Fetches and checks a file from the web at the first call; returns its path in the cache.

    Its size and the server's checksum (MD5, CRC-32C; the Hub's SHA-256) are checked before the file gets its name; for
    hf://, right after. Then its SHA-256 is recorded, and checked again whenever the file's times or place on disk have
    changed. Files of hf:// are in the Hub's own cache.

    Args:
        source: a `PublicCheckpoint`, or an address: https://, gs:// or hf://owner/repo/file.

    Raises:
        DownloadError: if the file cannot be fetched or is not the expected one; then no file of that name is left.

    >>> fetch(resolve("ViT-B/16:augreg-i21k"))  # doctest: +SKIP
    PosixPath('.../storage.googleapis.com/vit_models/augreg/B_16-i21k-300ep-lr_0.001-...npz')
    """
    checkpoint = source if isinstance(source, PublicCheckpoint) else PublicCheckpoint(url=str(source))
    if (url := whole_address(checkpoint.url)).startswith("hf://"):
        return fetch_from_hub(url, places.max_bytes())
    address, path, bounds = requested_address(url), cached_path(url), size_bounds(checkpoint)
    name = checkpoint.name if checkpoint.variant else address
    with describe_cache_errors(path):
        if is_intact(path, checkpoint.sha256, bounds):
            return path
        if is_offline():
            state = "is damaged in the cache" if is_regular(path) else "is not in the cache"
            raise DownloadError(
                f"{name} {state}, and KERAS_VIT_OFFLINE forbids fetching it. Unset KERAS_VIT_OFFLINE, or fetch "
                f"{address} elsewhere and put it at {path}."
            )
        make_folder(places.cache_dir(), path)
        with lock_file(path):
            if not is_intact(path, checkpoint.sha256, bounds):  # another process may have fetched it in the meantime
                with progress_bar(checkpoint.name if checkpoint.tag else path.name) as draw:
                    download(checkpoint, address, path, bounds, draw)
    return path


def fetch_companions(url, forgiven):
    """Fetches the JSON files beside a file hf://..., if the Hub's cache does not know of them."""
    for beside in (f"{url.rpartition('/')[0]}/{name}" for name in COMPANIONS):
        if look_on_disk(beside) is None:
            with contextlib.suppress(forgiven):
                fetch_from_hub(beside, min(MOST_BYTES, places.max_bytes()))


def fetch_with_companions(checkpoint: PublicCheckpoint) -> Path:
    """Fetches a checkpoint's file, and the JSON files beside it if it is a .safetensors file of the Hub.

    They are asked for before the file, so that it is not here without them if the connection breaks, and again after
    it, since it may be of a newer commit than those that were here.
    """
    checkpoint = dataclasses.replace(checkpoint, url=whole_address(checkpoint.url))
    if not (checkpoint.url.startswith("hf://") and checkpoint.url.endswith(".safetensors")) or is_offline():
        return fetch(checkpoint)
    forgiven = NotFoundError if find_on_disk(checkpoint.url) is None else DownloadError
    fetch_companions(checkpoint.url, forgiven)
    path = fetch(checkpoint)
    fetch_companions(checkpoint.url, forgiven)
    return path

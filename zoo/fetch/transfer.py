"""Bytes from a server into a partial file, however often the connection breaks.

`urllib3.Retry` repeats requests whose reply has not begun; the rest of a file that broke off in the middle is asked for
here, on the condition that it is still the same file.
"""

import dataclasses
import logging
import re
import shutil
import time

import requests
from urllib3.exceptions import HTTPError

from keras_vit.errors import DownloadError
from keras_vit.files import open_regular
from keras_vit.text import printable
from keras_vit.zoo.fetch.cache import is_regular, read_note, write_note
from keras_vit.zoo.fetch.replies import (
    Remote,
    continues,
    is_remote,
    read_reply,
    refusal_error,
    require_size,
    status_line,
)
from keras_vit.zoo.fetch.session import Misled, Session

CHUNK = 1 << 20
FAILURES = 5  # in a row that get no further into the file
CONNECTIONS = 200  # for one file
BACKOFF = 0.5  # seconds, doubled at each failure
RETRIED = (408, 429, 500, 502, 503, 504)

logger = logging.getLogger(__name__)


class Partial:
    """The bytes received so far, and beside them what is known of the whole file.

    What has come survives a killed process, and is continued by the next.
    """

    def __init__(self, path):
        self.path = path
        self.note = path.with_name(path.name + ".json")

    def size(self):
        return self.path.stat().st_size if is_regular(self.path) else 0

    def remote(self):
        """The `Remote` that the bytes so far belong to, or None."""
        fields = read_note(self.note) if is_regular(self.path) else {}
        return Remote(**fields) if is_remote(fields) else None

    def start(self, remote):
        """Begins the file anew, for the bytes of `remote`."""
        self.discard()
        with open(self.path, "xb"):
            write_note(self.note, dataclasses.asdict(remote))

    def open(self):
        """The file, to be written to, unbuffered: what has come survives a killed process."""
        return open_regular(self.path, "r+b", buffering=0)

    def discard(self):
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def space_error(path, what):
    return DownloadError(
        f"{path} cannot be written: {what}. Free some space, or set KERAS_VIT_CACHE to a folder elsewhere; what has "
        "come is kept."
    )


def require_space(remote, offset, path):
    """Refuses the rest of a file, from byte `offset`, for which the disk has no space."""
    free = shutil.disk_usage(path.parent).free
    if remote.total is not None and remote.total - offset > free:
        raise space_error(path, f"{remote.total - offset:,} bytes are to come, {free:,} are free")


def write_chunk(file, chunk, path):
    """Writes all of `chunk`; one call of an unbuffered file's `write` may write a part."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise space_error(path, error.strerror or str(error)) from error


class EndedEarly(Exception):
    """A try that ended early, and may be followed by another."""


def total_of(partial):
    known = partial.remote()
    return f"{known.total:,}" if known and known.total is not None else "an unknown number of"


def describe_cause(error):
    """The innermost cause, in the words of the operating system or of this module.

    Messages of libraries contain addresses and headers, and with them secrets: only the name of their error is told.
    """
    inner = getattr(error, "reason", None) or error.__cause__ or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return describe_cause(inner)
    if isinstance(error, EndedEarly):
        return str(error)
    words = error.strerror if isinstance(error, OSError) and not isinstance(error, requests.RequestException) else None
    return printable(words or re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower())


def rest_headers(offset, known):
    """Headers that ask for the rest, provided that the file is still the same."""
    return {"Range": f"bytes={offset}-", **({"If-Range": known.version} if known.version else {})}


def accept_reply(responses, url, partial, offset, bounds):
    """(Remote, first byte) of the body that follows; `offset` is the byte that was asked for, None for all of the file.

    Bytes so far that do not belong to it are discarded.
    """
    response, known = responses[-1], partial.remote()
    if response.status_code == 200:
        remote = read_reply(responses, url)
        require_size(remote, bounds)
        partial.start(remote)
        return remote, 0
    if offset is not None and response.status_code == 206:
        if continues(responses, url, known, offset):
            return known, offset
        partial.discard()
        raise EndedEarly("the file on the server is not the one that was begun")
    if offset is not None and response.status_code == 416:
        announced = total_of(partial)
        partial.discard()
        raise EndedEarly(f"the server has no byte {offset:,} of {announced} bytes")
    if response.status_code in RETRIED:
        raise EndedEarly(f"the server answered {status_line(response)}")
    raise refusal_error(response, url)


def append(raw, partial, offset, remote, bounds, progress):
    """Writes the body of a reply behind the first `offset` bytes."""
    most = bounds[1] if remote.total is None else remote.total
    with partial.open() as file:
        file.seek(offset)
        while chunk := raw.read1(CHUNK, decode_content=False):
            if offset + len(chunk) > most:
                partial.discard()
                raise DownloadError(f"{remote.url} sent more than {most:,} bytes; expected no more.")
            write_chunk(file, chunk, partial.path)
            offset += len(chunk)
            if progress:
                progress(offset, remote.total)
    if remote.total is not None and offset != remote.total:
        raise EndedEarly("the connection was closed")


def receive_once(session, url, partial, headers, bounds, progress):
    """One connection: the rest of the file, or all of it where the server does not resume."""
    offset, known = partial.size(), partial.remote()
    if known and known.total == offset:
        return known
    rest = rest_headers(offset, known) if known and known.resumable and offset else {}
    responses = session.follow({**headers, **rest})
    with responses[-1] as response:
        remote, offset = accept_reply(responses, url, partial, offset if rest else None, bounds)
        require_space(remote, offset, partial.path)
        append(response.raw, partial, offset, remote, bounds, progress)
    return remote


def receive(url, partial, headers, bounds, progress=None):
    """Fills `partial` with the file at `url` and returns its `Remote`.

    Args:
        url: the `Url` to request.
        partial: a `Partial`; bytes it holds of the same file are kept.
        headers: to send along.
        bounds: (least, most) bytes that the file can have.
        progress: called with (bytes so far, bytes in all or None).

    Raises:
        DownloadError: when the server refuses, sends something else, or breaks off too often.
    """
    if (known := partial.remote()) and not (known.url == url.public and known.resumable):
        partial.discard()  # of another run, and nothing would tell a changed file
    failures, furthest = 0, partial.size()
    with Session(url) as session:
        for _ in range(CONNECTIONS):
            try:
                return receive_once(session, url, partial, headers, bounds, progress)
            except Misled as error:
                raise DownloadError(str(error)) from None
            except (requests.RequestException, HTTPError, ValueError, EndedEarly) as error:
                cause, lasting = describe_cause(error), isinstance(error, requests.exceptions.SSLError | ValueError)
            failures, furthest = (0, partial.size()) if partial.size() > furthest else (failures + 1, furthest)
            if failures == FAILURES or lasting:
                break
            if failures == 1:
                logger.warning("%s: %s. Trying again for some seconds.", url.public, cause)
            time.sleep(BACKOFF / 2 * 2**failures)
    if partial.size() == 0:
        raise DownloadError(
            f"{url.public} could not be fetched: {cause}. Try again when the network is there, set KERAS_VIT_MIRROR to "
            f"another server of the same files, or fetch it elsewhere and put it at {partial.path.with_suffix('')}. "
            "KERAS_VIT_OFFLINE=1 never asks the network."
        )
    raise DownloadError(
        f"{url.public} could not be fetched: {partial.size():,} of {total_of(partial)} bytes came, then "
        f"{cause}. Try again later: what has come is kept, and the next try continues from there."
    )

"""Bytes from a server into a partial file, however often the connection breaks."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import threading
import time
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError as BrokenBody
from urllib3.util import Retry

from keras_vit.errors import DownloadError
from keras_vit.zoo import settings
from keras_vit.zoo.addresses import is_loopback, public, require_safe
from keras_vit.zoo.integrity import promises

CHUNK = 1 << 20
FAILURES = 5  # in a row that get no further into the file
CONNECTIONS = 200  # for one file
BACKOFF = 0.5  # seconds, doubled at each failure
RETRIED = (408, 429, 500, 502, 503, 504)


class Absent(DownloadError):
    """The server has no such file (404)."""


class Interrupted(Exception):
    """A try that ended early, and may be followed by another."""


@dataclasses.dataclass(frozen=True)
class Remote:
    """What a server says of a file: its size, its version (an ETag or a date), its checksums; None or {} if nothing."""

    url: str
    total: int | None
    version: str | None
    checksums: dict

    @property
    def resumable(self):
        """Whether a later piece can be known to be of the same file."""
        return bool(self.version or self.checksums)


class Guarded(HTTPAdapter):
    """Refuses unsafe addresses, those that a server redirects to included."""

    def send(self, request, *args, **kwargs):
        require_safe(request.url)
        return super().send(request, *args, **kwargs)


def open_session(url):
    session = requests.Session()
    session.trust_env = not is_loopback(urlsplit(url).hostname)  # no proxy leads back to this machine
    retry = Retry(
        total=FAILURES - 1,
        redirect=0,
        backoff_factor=BACKOFF,
        status_forcelist=RETRIED,
        allowed_methods=("GET",),
        raise_on_status=False,
        respect_retry_after_header=False,  # it may ask for hours
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, Guarded(max_retries=retry))
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "keras-vit"})
    return session


class Partial:
    """The file that is being received, and beside it what is known of the whole."""

    def __init__(self, path):
        self.path = path
        self.note = path.with_name(path.name + ".json")

    def size(self):
        return self.path.stat().st_size if self.path.exists() else 0

    def remote(self):
        """The whole that the bytes so far belong to, or None."""
        try:
            return Remote(**json.loads(self.note.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def start(self, remote):
        """Empties the file for the bytes of `remote`."""
        self.note.unlink(missing_ok=True)
        self.path.write_bytes(b"")
        write_json(self.note, dataclasses.asdict(remote))

    def discard(self):
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def write_json(path, value):
    """Writes so that a reader sees the old or the new, never a part."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    fresh.write_text(json.dumps(value), "utf-8")
    os.replace(fresh, path)


def receive(url, partial, headers, limits, progress=None):
    """Fills `partial` with the file at `url` and returns its `Remote`.

    Args:
        url: address to ask.
        partial: a `Partial`; bytes it holds of the same file are kept.
        headers: to send along.
        limits: (least, most) bytes that the file can have.
        progress: called with (bytes so far, bytes in all or None).

    Raises:
        DownloadError: when the server refuses, sends something else, or breaks off too often.
    """
    if (known := partial.remote()) and (known.url != public(url) or not known.resumable):
        partial.discard()  # of another run, and nothing would tell a changed file
    failures, furthest = 0, partial.size()
    with open_session(url) as session:
        for _ in range(CONNECTIONS):
            try:
                return attempt(session, url, partial, headers, limits, progress)
            except requests.RequestException as error:
                cause = error  # connecting has been tried again by then
                break
            except (BrokenBody, Interrupted) as error:
                cause = error
            failures, furthest = (0, partial.size()) if partial.size() > furthest else (failures + 1, furthest)
            if failures == FAILURES:
                break
            time.sleep(BACKOFF / 2 * 2**failures)
    raise DownloadError(
        f"{public(url)} could not be fetched: {partial.size():,} of {total_of(partial)} bytes came, then "
        f"{reason(cause)}. Try again later: what has come is kept, and the rest is asked for."
    ) from cause


def total_of(partial):
    known = partial.remote()
    return f"{known.total:,}" if known and known.total is not None else "an unknown number of"


def reason(error):
    """The innermost cause, which urllib3 wraps several times."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return reason(inner)
    return f"{type(error).__name__}: {inner}" if isinstance(inner, str) else type(error).__name__


def attempt(session, url, partial, headers, limits, progress):
    """One connection: the rest of the file, or all of it where the server does not resume."""
    offset, known = partial.size(), partial.remote()
    if known and known.total == offset:
        return known
    asked = {**headers, **(resume(offset, known) if known and offset else {})}
    wait = settings.timeout()
    with session.get(url, headers=asked, stream=True, timeout=(wait, wait)) as response:
        if response.status_code == 206 and "Range" in asked:
            remote = continued(response, url, partial, offset)
        elif response.status_code == 200:
            remote, offset = described(response, url), 0
            require_size(remote, limits)
            partial.start(remote)
        elif response.status_code == 416 and "Range" in asked:
            announced = total_of(partial)
            partial.discard()
            raise Interrupted(f"the server has no byte {offset:,} of {announced} bytes")
        else:
            raise (Absent if response.status_code == 404 else DownloadError)(refusal(response))
        require_space(remote, offset, partial.path)
        append(response.raw, partial.path, offset, remote, limits, progress)
    return remote


def resume(offset, known):
    """Headers that ask for the rest, provided that the file is still the same."""
    strong = known.version and not known.version.startswith("W/")
    return {"Range": f"bytes={offset}-", **({"If-Range": known.version} if strong else {})}


def described(response, url):
    """What the headers say of the whole file."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError(f"{public(url)} came encoded as {response.headers['Content-Encoding']}; expected it plain.")
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise DownloadError(
            f"{public(url)} gave a web page instead of a file. Check the address, and whether a proxy or a "
            "sign-in page stands in between."
        )
    version = response.headers.get("ETag") or response.headers.get("Last-Modified")
    length, checks = response.headers.get("Content-Length", ""), promises(response)
    total = int(length) if length.isdigit() else None
    if total is None and not checks and "Transfer-Encoding" not in response.headers:
        raise DownloadError(
            f"{public(url)} came without a length or a checksum, so that a part could not be told from the whole. "
            "Fetch the file by other means and give its path."
        )
    return Remote(public(url), total, version, checks)


def continued(response, url, partial, offset):
    """The Remote of a reply that goes on where the partial file ends; drops what we have if it does not."""
    known = partial.remote()
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    fresh = described(response, url)
    whole = int(span[2]) if span and span[2] != "*" else known.total
    same = (whole, fresh.version, fresh.checksums) == (known.total, known.version, known.checksums)
    if span and int(span[1]) == offset and same:
        return known
    partial.discard()
    raise Interrupted("the file on the server is another than the one begun")


def refusal(response):
    """The sentence for a status that is no answer."""
    status, url = response.status_code, public(response.url)
    advice = {
        401: "It needs a token: set HF_TOKEN, or fetch the file yourself.",
        403: "It is not public, or a mirror refuses it: check KERAS_VIT_MIRROR.",
        404: "Check the name; zoo.list() shows those known. If KERAS_VIT_MIRROR is set, the mirror may lack the file.",
    }
    hint = advice.get(status, "Try again later, or set KERAS_VIT_MIRROR to another server of the same files.")
    return f"{url} answered {status} {response.reason}; expected the file. {hint}"


def require_size(remote, limits):
    least, most = limits
    if remote.total is not None and not least <= remote.total <= most:
        bound = f"at least {least:,}" if remote.total < least else f"at most {most:,}"
        raise DownloadError(
            f"{remote.url} has {remote.total:,} bytes; expected {bound}. Check the address or the mirror; "
            "KERAS_VIT_MAX_BYTES sets the most for a file of unknown size."
        )


def require_space(remote, offset, path):
    free = shutil.disk_usage(path.parent).free
    if remote.total is not None and remote.total - offset > free:
        raise no_space(path, f"{remote.total - offset:,} bytes are to come, {free:,} are free")


def no_space(path, what):
    return DownloadError(
        f"{path} cannot be written: {what}. Free some space, or set KERAS_VIT_CACHE to a folder elsewhere; what has "
        "come is kept."
    )


def append(raw, path, offset, remote, limits, progress):
    """Writes the reply's body behind the first `offset` bytes, unbuffered: what has come survives a killed process."""
    most = limits[1] if remote.total is None else remote.total
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        while chunk := raw.read1(CHUNK, decode_content=False):
            if offset + len(chunk) > most:
                raise DownloadError(f"{remote.url} sent more than {most:,} bytes; expected no more.")
            write(file, chunk, path)
            offset += len(chunk)
            if progress:
                progress(offset, remote.total)
    if remote.total is not None and offset != remote.total:
        raise Interrupted("the connection was closed")


def write(file, chunk, path):
    view = memoryview(chunk)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise no_space(path, error.strerror or str(error)) from error


@contextlib.contextmanager
def progress_bar(name, wanted):
    """Gives a callable (bytes so far, bytes in all) that draws on a terminal, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

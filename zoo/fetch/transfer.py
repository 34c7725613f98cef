"""Bytes from a server into a partial file, however often the connection breaks."""

import contextlib
import logging
import re
import sys
import time

import requests
from urllib3.exceptions import HTTPError

from keras_vit.errors import DownloadError
from keras_vit.text import printable
from keras_vit.zoo.fetch.integrity import promises
from keras_vit.zoo.fetch.partial import STRONG, Remote, require_space, write
from keras_vit.zoo.fetch.session import Misled, Session

CHUNK = 1 << 20
FAILURES = 5  # in a row that get no further into the file
CONNECTIONS = 200  # for one file
BACKOFF = 0.5  # seconds, doubled at each failure
RETRIED = (408, 429, 500, 502, 503, 504)

logger = logging.getLogger(__name__)


class Absent(DownloadError):
    """The server has no such file (404)."""


class Interrupted(Exception):
    """A try that ended early, and may be followed by another."""


def receive(url, partial, headers, limits, progress=None):
    """Fills `partial` with the file at `url` and returns its `Remote`.

    Args:
        url: the `Url` to ask.
        partial: a `Partial`; bytes it holds of the same file are kept.
        headers: to send along.
        limits: (least, most) bytes that the file can have.
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
                return attempt(session, url, partial, headers, limits, progress)
            except Misled as error:
                raise DownloadError(str(error)) from None
            except (requests.RequestException, HTTPError, ValueError, Interrupted) as error:
                cause, lasting = reason(error), isinstance(error, requests.exceptions.SSLError | ValueError)
            failures, furthest = (0, partial.size()) if partial.size() > furthest else (failures + 1, furthest)
            if failures == FAILURES or lasting:
                break
            if failures == 1:
                logger.warning("%s: %s. Trying again for some seconds.", url.public, cause)
            time.sleep(BACKOFF / 2 * 2**failures)
    raise DownloadError(
        f"{url.public} could not be fetched: {partial.size():,} of {total_of(partial)} bytes came, then "
        f"{cause}. Try again later: what has come is kept, and the rest is asked for."
    )


def total_of(partial):
    known = partial.remote()
    return f"{known.total:,}" if known and known.total is not None else "an unknown number of"


def reason(error):
    """The innermost cause, in the words of the operating system or of this module.

    What libraries say holds addresses and headers, and with them secrets: of their errors the name is all that is told.
    """
    inner = getattr(error, "reason", None) or error.__cause__ or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return reason(inner)
    if isinstance(error, Interrupted):
        return str(error)
    words = error.strerror if isinstance(error, OSError) and not isinstance(error, requests.RequestException) else None
    return printable(words or re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower())


def attempt(session, url, partial, headers, limits, progress):
    """One connection: the rest of the file, or all of it where the server does not resume."""
    offset, known = partial.size(), partial.remote()
    if known and known.total == offset:
        return known
    asked = {**headers, **(resume(offset, known) if known and known.resumable and offset else {})}
    responses = session.follow(asked)
    with responses[-1] as response:
        if response.status_code == 206 and "Range" in asked:
            remote = continued(responses, url, partial, offset)
        elif response.status_code == 200:
            remote, offset = described(responses, url), 0
            require_size(remote, limits)
            partial.start(remote)
        elif response.status_code == 416 and "Range" in asked:
            announced = total_of(partial)
            partial.discard()
            raise Interrupted(f"the server has no byte {offset:,} of {announced} bytes")
        elif response.status_code in RETRIED:
            raise Interrupted(f"the server answered {status(response)}")
        else:
            raise (Absent if response.status_code == 404 else DownloadError)(refusal(response, url))
        require_space(remote, offset, partial.path)
        append(response.raw, partial, offset, remote, limits, progress)
    return remote


def resume(offset, known):
    """Headers that ask for the rest, provided that the file is still the same."""
    return {"Range": f"bytes={offset}-", **({"If-Range": known.version} if known.version else {})}


def codings(header):
    return [word.strip().lower() for word in header.split(",") if word.strip().lower() not in ("", "identity")]


def described(responses, url):
    """What the headers say of the whole file."""
    headers = responses[-1].headers
    content, transfer = (codings(headers.get(name, "")) for name in ("Content-Encoding", "Transfer-Encoding"))
    if content or transfer not in ([], ["chunked"]):
        coded = printable(", ".join(content + transfer))
        raise DownloadError(f"{url.public} came encoded as {coded}; expected it plain.")
    if re.match(r"\s*(text/html|application/xhtml)", headers.get("Content-Type", ""), re.IGNORECASE):
        raise DownloadError(
            f"{url.public} gave a web page instead of a file. Check the address, and whether a proxy or a "
            "sign-in page stands in between."
        )
    version = STRONG.fullmatch(headers.get("ETag", ""))
    length, checks = re.fullmatch("[0-9]{1,18}", headers.get("Content-Length", "")), promises(responses)
    if length is None and not checks and "Transfer-Encoding" not in headers:
        raise DownloadError(
            f"{url.public} came without a length or a checksum, so that a part could not be told from the whole. "
            "Fetch the file by other means and give its path."
        )
    return Remote(url.public, int(length[0]) if length else None, version[0] if version else None, checks)


def continued(responses, url, partial, offset):
    """The Remote of a reply that goes on where the partial file ends; drops what we have if it does not."""
    known, fresh = partial.remote(), described(responses, url)
    span = re.fullmatch(
        r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", responses[-1].headers.get("Content-Range", "")
    )
    whole = int(span[2]) if span and span[2] != "*" else known.total
    same = (whole, fresh.version, fresh.checksums) == (known.total, known.version, known.checksums)
    if span and int(span[1]) == offset and same:
        return known
    partial.discard()
    raise Interrupted("the file on the server is another than the one begun")


def status(response):
    return printable(f"{response.status_code} {response.reason}").strip()


def refusal(response, url):
    """The sentence for a status that is no answer."""
    advice = {
        401: "It needs a token: set HF_TOKEN, or fetch the file yourself.",
        403: "It is not public, or a mirror refuses it: check KERAS_VIT_MIRROR.",
        404: "Check the name; zoo.list() shows those known. If KERAS_VIT_MIRROR is set, the mirror may lack the file.",
    }
    hint = advice.get(
        response.status_code, "Try again later, or set KERAS_VIT_MIRROR to another server of the same files."
    )
    return f"{url.public} answered {status(response)}; expected the file. {hint}"


def require_size(remote, limits):
    least, most = limits
    if remote.total is not None and not least <= remote.total <= most:
        bound = f"at least {least:,}" if remote.total < least else f"at most {most:,}"
        raise DownloadError(
            f"{remote.url} has {remote.total:,} bytes; expected {bound}. Check the address or the mirror; "
            "KERAS_VIT_MAX_BYTES sets the most for a file of unknown size."
        )


def append(raw, partial, offset, remote, limits, progress):
    """Writes the reply's body behind the first `offset` bytes."""
    most = limits[1] if remote.total is None else remote.total
    with partial.opened() as file:
        file.seek(offset)
        while chunk := raw.read1(CHUNK, decode_content=False):
            if offset + len(chunk) > most:
                partial.discard()
                raise DownloadError(f"{remote.url} sent more than {most:,} bytes; expected no more.")
            write(file, chunk, partial.path)
            offset += len(chunk)
            if progress:
                progress(offset, remote.total)
    if remote.total is not None and offset != remote.total:
        raise Interrupted("the connection was closed")


@contextlib.contextmanager
def progress_bar(name, wanted):
    """Gives a callable (bytes so far, bytes in all) that draws on a terminal, or None where nobody watches."""
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

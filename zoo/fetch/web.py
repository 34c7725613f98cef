"""Requests to servers: what is asked, how far a redirect is followed, and what a reply says of a file."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import requests
from requests.utils import get_auth_from_url

from keras_vit.errors import DownloadError
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import is_loopback, public_form, read_url

REDIRECTS = 10
RETRIED = (408, 416, 429, 500, 502, 503, 504)
NUMBER = "[0-9]{1,18}"


class NotFoundError(DownloadError):
    """The server has no such file (404)."""


class EndedEarlyError(Exception):
    """A try that ended early, and may be followed by another."""


def origin(url):
    return url.scheme, url.hostname, url.port


def require_safe(url, first):
    """https anywhere; http only to this machine or the mirror, where that is what was asked for."""
    mirror = settings.mirror()
    known = is_loopback(first) or (mirror and origin(first) == origin(read_url(mirror)))
    if url.scheme == "https" or (known and (url.scheme, url.hostname) == (first.scheme, first.hostname)):
        return
    raise DownloadError(
        f"{public_form(url.geturl())} is not fetched: expected https. A plain http mirror can be set as "
        "KERAS_VIT_MIRROR."
    )


def leave_unchanged(request):
    """Adds no password to a request: `requests` would add what ~/.netrc has for the host, or for all hosts."""
    return request


def send_once(session, request):
    """The response of one server, its body not yet read; `session.send` would look at where it redirects."""
    request, wait = session.prepare_request(request), settings.timeout()
    environment = session.merge_environment_settings(request.url, {}, True, None, None)
    try:
        return session.get_adapter(request.url).send(request, timeout=(wait, wait), **environment)
    except requests.RequestException:
        raise
    except OSError as error:  # a bundle of certificates that is not there
        raise DownloadError(f"{public_form(request.url)} cannot be requested: {error}") from None


@contextlib.contextmanager
def ask(address: str, headers: dict[str, str] | None = None) -> Iterator[requests.Response]:
    """Yields the reply to a request, redirects followed, its body not yet read.

    `requests` would read the whole body of each redirect, however long, and follow it to plain http. A name and
    password in the address are sent to its own server alone.

    Raises:
        DownloadError: for an address or a redirect that is not followed.
        requests.RequestException: when no reply comes.
    """
    first = url = read_url(address)
    with requests.Session() as session:
        session.trust_env = not is_loopback(url)  # no proxy leads back to this machine
        session.headers.update({"Accept-Encoding": "identity", "User-Agent": "keras-vit"})
        for _ in range(REDIRECTS):
            require_safe(url, first)
            auth: Any = get_auth_from_url(address) if origin(url) == origin(first) and first.username else None
            plain = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
            with send_once(session, requests.Request("GET", plain, headers, auth=auth or leave_unchanged)) as reply:
                target = reply.headers.get("Location")
                if reply.status_code not in (301, 302, 303, 307, 308) or target is None:
                    yield reply
                    return
            try:
                url = read_url(urljoin(plain, target))
            except (DownloadError, ValueError):
                raise DownloadError(f"{public_form(address)} redirects to an address that cannot be read.") from None
    raise DownloadError(f"{public_form(address)} redirects without end; {REDIRECTS} steps were followed.")


def describe_cause(error: BaseException) -> str:
    """The innermost cause, in the words of the operating system or of this module.

    Messages of libraries contain addresses and headers, and with them secrets: only the name of their error is told.
    """
    inner = getattr(error, "reason", None) or error.__cause__ or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return describe_cause(inner)
    if isinstance(error, EndedEarlyError):
        return str(error)
    words = error.strerror if isinstance(error, OSError) and not isinstance(error, requests.RequestException) else None
    return printable(words or re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower())


@dataclasses.dataclass(frozen=True)
class Remote:
    """What a server says of a file.

    Args:
        address: as it is shown.
        total: bytes, or None.
        version: a strong ETag, or None.
        checksums: of the whole file by x-goog-hash, {"md5" | "crc32c": base64 text}.
    """

    address: str
    total: int | None
    version: str | None
    checksums: dict[str, str]

    @property
    def resumable(self) -> bool:
        """Whether a later piece can be known to be of the same file."""
        return bool(self.version or self.checksums)


def require_file(headers, address):
    """Refuses an encoded body, a web page, and a body whose end could not be told."""
    codings = [headers.get(name, "") for name in ("Content-Encoding", "Transfer-Encoding")]
    words = [word.strip().lower() for word in ",".join(codings).split(",")]
    encodings = [word for word in words if word not in ("", "identity")]
    if encodings != ["chunked"] * (headers.get("Transfer-Encoding", "").strip().lower() == "chunked"):
        raise DownloadError(f"{address} came encoded as {printable(', '.join(encodings))}; expected no encoding.")
    if re.match(r"\s*(text/html|application/xhtml)", headers.get("Content-Type", ""), re.IGNORECASE):
        raise DownloadError(
            f"{address} returned a web page instead of a file. Check the address, and whether a proxy or a sign-in "
            "page stands in between."
        )


def read_reply(reply: requests.Response, url: str) -> Remote:
    """What the headers of a reply say of the whole file.

    Raises:
        DownloadError: for an encoded body, a web page, and a body whose end could not be told.
    """
    headers, address = reply.headers, public_form(url)
    require_file(headers, address)
    sums = (part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(","))
    checksums = {name: value for name, value in sums if name in ("md5", "crc32c")}
    length = re.fullmatch(NUMBER, headers.get("Content-Length", ""))
    if length is None and not checksums and "Transfer-Encoding" not in headers:
        raise DownloadError(
            f"{address} came without a length or a checksum, so that a part could not be told from the whole. Fetch "
            "the file by other means and pass its path."
        )
    version = re.fullmatch(r'"[\x21\x23-\x7e]*"', headers.get("ETag", ""))
    return Remote(address, int(length[0]) if length else None, version[0] if version else None, checksums)


def continues(reply: requests.Response, known: Remote, offset: int) -> bool:
    """Whether a reply to a request for the rest is of the file `known`, and begins at byte `offset`."""
    fresh = read_reply(reply, known.address)
    span = re.fullmatch(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)", reply.headers.get("Content-Range", ""))
    total = known.total if span is None or span[2] == "*" else int(span[2])
    same = (total, fresh.version, fresh.checksums) == (known.total, known.version, known.checksums)
    return same and span is not None and int(span[1]) == offset


def refusal_error(reply: requests.Response, address: str) -> DownloadError:
    """The error for a status that brings no file."""
    advice = {
        401: "It needs a token: set HF_TOKEN, or fetch the file yourself.",
        403: "It is not public, or a mirror refuses it: check KERAS_VIT_MIRROR.",
        404: "Check the name; zoo.list() shows those known. If KERAS_VIT_MIRROR is set, the mirror may lack the file.",
    }
    hint = advice.get(reply.status_code, "Try again later, or set KERAS_VIT_MIRROR to another server.")
    kind = NotFoundError if reply.status_code == 404 else DownloadError
    status = printable(f"{reply.status_code} {reply.reason}").strip()
    return kind(f"{address} answered {status}; expected the file. {hint}")

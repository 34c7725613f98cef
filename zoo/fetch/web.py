"""Sends requests to servers, follows safe redirects, and reads the facts about a file in the reply."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from urllib.parse import urljoin

import requests
from requests.auth import HTTPBasicAuth
from requests.utils import get_auth_from_url

from keras_vit.errors import DownloadError
from keras_vit.files import is_offline
from keras_vit.zoo.fetch import places
from keras_vit.zoo.fetch.places import is_loopback, read_url

RETRIED = (408, 416, 429, 500, 502, 503, 504)


class EndedEarlyError(Exception):
    """An attempt ended early; another may succeed."""


def require_safe(url, first):
    """Requires https; http is only allowed to this machine or the mirror, if the first address was there."""
    known = is_loopback(first) or first.geturl().startswith(f"{places.mirror()}/")
    if url.scheme == "https" or (known and (url.scheme, url.hostname) == (first.scheme, first.hostname)):
        return
    raise DownloadError(
        f"{url.geturl()} is not fetched: expected https. A plain http mirror can be set as KERAS_VIT_MIRROR."
    )


class SafeSession(requests.Session):
    """Requests one address, and follows its redirects if they are safe.

    A name and password in the address are sent only to its own server; ~/.netrc is not read.
    """

    def __init__(self, first):
        super().__init__()
        self.first, self.max_redirects = first, 10
        self.trust_env = not is_loopback(first)  # a proxy does not lead to this machine
        self.headers.update({"Accept-Encoding": "identity", "User-Agent": "keras-vit"})
        # Without any `auth`, `requests` would read ~/.netrc.
        self.auth = HTTPBasicAuth(*get_auth_from_url(first.geturl())) if first.username else lambda request: request

    def get_redirect_target(self, resp):
        try:
            target = super().get_redirect_target(resp)
            url = target and read_url(urljoin(resp.url, target))
        except (DownloadError, ValueError):
            raise DownloadError(f"{resp.url} redirects to an address that cannot be read.") from None
        if url:
            require_safe(url, self.first)
            resp.close()  # otherwise `requests` would read the whole body
        return target

    def rebuild_auth(self, prepared_request, response):
        if self.should_strip_auth(response.request.url, prepared_request.url):
            prepared_request.headers.pop("Authorization", None)


@contextlib.contextmanager
def ask(address: str, headers: dict[str, str] | None = None) -> Iterator[requests.Response]:
    """Yields the reply to a request after redirects; its body is not read yet.

    Raises:
        DownloadError: for an address or a redirect that is not followed.
        requests.RequestException: when no reply comes.
    """
    first, wait = read_url(address), places.timeout()
    require_safe(first, first)
    if is_offline():
        raise DownloadError(f"{address} is not fetched, since KERAS_VIT_OFFLINE is set. Pass a file.")
    with SafeSession(first) as session:
        try:
            reply = session.get(address, headers=headers, stream=True, timeout=wait)
        except (requests.RequestException, DownloadError):
            raise
        except OSError as error:  # a missing bundle of certificates
            raise DownloadError(f"{address} cannot be requested: {error}") from None
        with reply:
            yield reply


def describe_cause(error: BaseException) -> str:
    """The innermost cause, as described by the operating system or this module.

    Messages of libraries contain addresses and headers, and so secrets: only the class of such an error is shown.
    """
    inner = getattr(error, "reason", None) or error.__cause__ or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return describe_cause(inner)
    if isinstance(error, EndedEarlyError):
        return str(error)
    words = error.strerror if isinstance(error, OSError) and not isinstance(error, requests.RequestException) else None
    return words or re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


@dataclasses.dataclass(frozen=True)
class Remote:
    """The facts about a file in the reply that contains it."""

    total: int | None  # bytes
    version: str | None  # a strong ETag; only this proves that a later piece belongs to the same file
    checksums: dict[str, str]  # of x-goog-hash, {"md5" | "crc32c": base64 text}


def require_file(headers, address):
    """Refuses an encoded body, a web page, and a body without a known end."""
    for name, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        coding = headers.get(name, plain).strip().lower()
        if coding != plain:
            raise DownloadError(f"{address} came encoded as {coding}; expected no encoding.")
    if re.match(r"\s*(text/html|application/xhtml)", headers.get("Content-Type", ""), re.IGNORECASE):
        raise DownloadError(
            f"{address} returned a web page instead of a file. Check the address, and whether a proxy or a sign-in "
            "page answers instead."
        )


def refusal_error(reply: requests.Response, address: str) -> DownloadError:
    """The error for a status without a file."""
    advice = {
        401: "It needs a sign-in: fetch the file yourself and pass its path, or write the name and password into the "
        "address.",
        403: "It is not public, or a mirror refuses it: check KERAS_VIT_MIRROR.",
        404: "Check the name; zoo.list() shows those known. If KERAS_VIT_MIRROR is set, the mirror may lack the file.",
    }
    hint = advice.get(reply.status_code, "Try again later, or set KERAS_VIT_MIRROR to another server.")
    status = f"{reply.status_code} {reply.reason}".strip()
    return DownloadError(f"{address} answered {status}; expected the file. {hint}")


def read_reply(reply: requests.Response, address: str, bounds: tuple[int, int]) -> Remote:
    """Reads the facts about the file from the headers of a reply; `bounds` are the (least, most) bytes it may have.

    Refuses an encoded body, a web page, a wrong size, or a body without a known end.
    """
    if reply.status_code in RETRIED:
        raise EndedEarlyError(f"the server answered {reply.status_code} {reply.reason}".rstrip())
    if reply.status_code != 200:
        raise refusal_error(reply, address)
    headers = reply.headers
    require_file(headers, address)
    sums = (part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(","))
    checksums = {name: value for name, value in sums if name in ("md5", "crc32c")}
    length = re.fullmatch("[0-9]{1,18}", headers.get("Content-Length", ""))
    if length is None and not checksums and "Transfer-Encoding" not in headers:
        raise DownloadError(
            f"{address} came without a length or a checksum, so that a part could not be told from the whole. Fetch "
            "the file by other means and pass its path."
        )
    least, most = bounds
    if length and not least <= int(length[0]) <= most:
        bound = f"at least {least:,}" if int(length[0]) < least else f"at most {most:,}"
        raise DownloadError(
            f"{address} has {int(length[0]):,} bytes; expected {bound}. Check the address or the mirror, and "
            "KERAS_VIT_MAX_BYTES, the size over which no file is fetched."
        )
    version = re.fullmatch(r'"[\x21\x23-\x7e]*"', headers.get("ETag", ""))
    return Remote(length and int(length[0]), version and version[0], checksums)

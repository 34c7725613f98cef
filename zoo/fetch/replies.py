"""What the headers of a server's reply say of a file, its checksums, and the errors for those that cannot be used."""

import base64
import dataclasses
import hashlib
import re

import google_crc32c

from keras_vit.errors import DownloadError
from keras_vit.text import printable

# A strong ETag, which no two versions share. By RFC 9110 (8.8.1) different bytes may share a weak one.
STRONG = re.compile(r'"[\x21\x23-\x7e]*"')
CHECKSUMS = {"md5", "crc32c", "sha256"}
NUMBER = "[0-9]{1,18}"
BLOCK = 1 << 22


class NotFoundError(DownloadError):
    """The server has no such file (404)."""


@dataclasses.dataclass(frozen=True)
class Remote:
    """What a server says of a file.

    Args:
        url: the address, fit to be shown.
        total: bytes, or None.
        version: a strong ETag, or None.
        checksums: of the whole file, as `announced_checksums` returns them.
    """

    url: str
    total: int | None
    version: str | None
    checksums: dict

    @property
    def resumable(self):
        """Whether a later piece can be known to be of the same file."""
        return bool(self.version or self.checksums)


def is_remote(fields):
    """Whether the value of a JSON file has the fields of a `Remote`, each of its type."""
    if not isinstance(fields, dict) or fields.keys() != {field.name for field in dataclasses.fields(Remote)}:
        return False
    url, total, version, checksums = (fields[name] for name in ("url", "total", "version", "checksums"))
    texts = [url, version or '""', *checksums.values()] if isinstance(checksums, dict) else [None]
    if not all(isinstance(text, str) for text in texts) or not checksums.keys() <= CHECKSUMS:
        return False
    return STRONG.fullmatch(texts[1]) is not None and (total is None or type(total) is int)


def start_digest(name):
    return google_crc32c.Checksum() if name == "crc32c" else hashlib.new(name, usedforsecurity=False)


def to_base64(digest):
    return base64.b64encode(digest).decode()


def compute_checksums(path, names):
    """Checksums of a file by name, as base64 text, in one reading."""
    digests = {name: start_digest(name) for name in names}
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
    return {name: to_base64(digest.digest()) for name, digest in digests.items()}


def to_hexadecimal(checksum):
    return base64.b64decode(checksum).hex()


def codings(header):
    return [word.strip().lower() for word in header.split(",") if word.strip().lower() not in ("", "identity")]


def require_unencoded(headers, url):
    content, transfer = (codings(headers.get(name, "")) for name in ("Content-Encoding", "Transfer-Encoding"))
    if content or transfer not in ([], ["chunked"]):
        encoding = printable(", ".join(content + transfer))
        raise DownloadError(f"{url.public} came encoded as {encoding}; expected it without an encoding.")
    if re.match(r"\s*(text/html|application/xhtml)", headers.get("Content-Type", ""), re.IGNORECASE):
        raise DownloadError(
            f"{url.public} returned a web page instead of a file. Check the address, and whether a proxy or a "
            "sign-in page stands in between."
        )


def announced_checksums(responses):
    """Checksums that the server announces for the whole file: {"md5" | "crc32c" | "sha256": base64 text}.

    From x-goog-hash (Google) and X-Linked-Etag (the Hugging Face Hub, on the redirect). `responses` are the redirects
    and the answer.
    """
    headers, found = responses[-1].headers, {}
    for part in headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name in ("md5", "crc32c"):
            found[name] = value
    for step in responses:
        linked = re.fullmatch('"?([0-9a-f]{64})"?', step.headers.get("X-Linked-Etag", ""))
        if linked:
            found["sha256"] = to_base64(bytes.fromhex(linked[1]))
    return found


def read_reply(responses, url):
    """The `Remote` that the last of some responses, after its redirects, describes.

    Raises:
        DownloadError: for an encoded body, a web page, and a body whose end could not be told.
    """
    headers = responses[-1].headers
    require_unencoded(headers, url)
    version = STRONG.fullmatch(headers.get("ETag", ""))
    length, checksums = re.fullmatch(NUMBER, headers.get("Content-Length", "")), announced_checksums(responses)
    if length is None and not checksums and "Transfer-Encoding" not in headers:
        raise DownloadError(
            f"{url.public} came without a length or a checksum, so that a part could not be told from the whole. "
            "Fetch the file by other means and pass its path."
        )
    return Remote(
        url=url.public,
        total=int(length[0]) if length else None,
        version=version[0] if version else None,
        checksums=checksums,
    )


def continues(responses, url, known, offset):
    """Whether a reply to a request for the rest is of the file `known`, and begins at byte `offset`."""
    fresh = read_reply(responses, url)
    span = re.fullmatch(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)", responses[-1].headers.get("Content-Range", ""))
    if span is None or int(span[1]) != offset:
        return False
    total = known.total if span[2] == "*" else int(span[2])
    return (total, fresh.version, fresh.checksums) == (known.total, known.version, known.checksums)


def require_size(remote, bounds):
    """Refuses a file whose announced size is not within `bounds`, (least, most) bytes."""
    least, most = bounds
    if remote.total is not None and not least <= remote.total <= most:
        bound = f"at least {least:,}" if remote.total < least else f"at most {most:,}"
        raise DownloadError(
            f"{remote.url} has {remote.total:,} bytes; expected {bound}. Check the address or the mirror; "
            "KERAS_VIT_MAX_BYTES sets the most for a file of unknown size."
        )


def status_line(response):
    return printable(f"{response.status_code} {response.reason}").strip()


def refusal_error(response, url):
    """The error for a status that brings no file."""
    advice = {
        401: "It needs a token: set HF_TOKEN, or fetch the file yourself.",
        403: "It is not public, or a mirror refuses it: check KERAS_VIT_MIRROR.",
        404: "Check the name; zoo.list() shows those known. If KERAS_VIT_MIRROR is set, the mirror may lack the file.",
    }
    hint = advice.get(
        response.status_code, "Try again later, or set KERAS_VIT_MIRROR to another server of the same files."
    )
    kind = NotFoundError if response.status_code == 404 else DownloadError
    return kind(f"{url.public} answered {status_line(response)}; expected the file. {hint}")

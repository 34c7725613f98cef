"""Addresses: how they are read, shown and requested, and where in the cache their files lie."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from keras_vit.errors import DownloadError, UnknownNameError
from keras_vit.text import printable

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>[^?#]+))?")
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
USER = re.compile(r"[\w.~!$&'()*+,;=:%-]*", re.ASCII)
LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[?::1\]?")


def public_form(text: str) -> str:
    """Any text that may be an address, fit to be shown: without what may be a name, a password or a signature.

    Stricter than `keras_vit.text.without_secrets`, which looks for addresses in a sentence and so ends them at a space.

    >>> public_form("https://me:secret@host/a.npz?signature=secret"), public_form("https://me:sec ret@host")
    ('https://host/a.npz', 'https://...')
    """
    scheme, separator, rest = re.split("[?#]", text)[0].partition("://")
    if HUB.fullmatch(text):
        return text
    user, _, place = rest.rpartition("@")
    if "@" in text and ("@" not in rest or not USER.fullmatch(user) or not HOST.match(place)):
        return f"{scheme}://..." if separator and scheme.isalpha() else "..."
    return printable(f"{scheme}{separator}{place}"[:2000])


def read_url(text: str) -> SplitResult:
    """The parts of an http or https address.

    Refused is what programs read differently: control characters, spaces, backslashes, anything outside of ASCII,
    an odd name or password before the host, and paths with "." and "..".

    Raises:
        DownloadError: for anything but a plain http or https address.

    >>> read_url("https://me:secret@Example.org/a.npz?key=1").hostname
    'example.org'
    """
    try:
        url = urlsplit(text)
        user, _, host = url.netloc.rpartition("@")
        matches = re.fullmatch(r"[!-\[\]-~]{1,8192}", text), USER.fullmatch(user), HOST.fullmatch(host)
        plain = all(matches) and url.port != 0
    except ValueError:  # of a port, or of the brackets around a host
        plain = False
    if not plain or url.scheme not in ("http", "https") or {".", ".."} & {*map(unquote, url.path.split("/"))}:
        raise DownloadError(
            f"{public_form(text)} is not an address that all programs read alike. Expected https://host/folder/file "
            'without spaces, control characters, backslashes and "..", with a host in ASCII.'
        )
    return url


def is_loopback(url: SplitResult) -> bool:
    """Whether the host is this machine by its plain names: nothing goes over a wire."""
    return LOOPBACK.fullmatch(url.hostname or "") is not None


class HubFile(NamedTuple):
    """A file of the Hugging Face Hub."""

    repo: str
    revision: str
    file: str


def read_hub(url: str) -> HubFile:
    """The file of an address hf://owner/repo[@revision][/file]; without a file it is model.safetensors.

    >>> read_hub("hf://timm/vit@v1")
    HubFile(repo='timm/vit', revision='v1', file='model.safetensors')
    """
    found = HUB.fullmatch(url)
    parts = unquote(found["file"] or "").split("/") if found else [".."]
    if found is None or {".", ".."} & {*found["repo"].split("/"), found["revision"], *parts} or "\\" in "".join(parts):
        raise UnknownNameError(f"{public_form(url)} is not of the form hf://owner/repo[@revision][/file].")
    return HubFile(found["repo"], found["revision"] or "main", found["file"] or "model.safetensors")


def whole_address(url: str) -> str:
    """An address in full: the https form of gs://, a "+" of Google's as %2B, revision and file of hf://.

    >>> whole_address("gs://vit_models/imagenet21k/R50+ViT-B_16.npz")
    'https://storage.googleapis.com/vit_models/imagenet21k/R50%2BViT-B_16.npz'
    """
    if url.startswith("hf://"):
        return "hf://{}@{}/{}".format(*read_hub(url))
    url = re.sub("^gs://", f"{GOOGLE}/", url)
    return url.replace("+", "%2B") if url.startswith(f"{GOOGLE}/") else url


def requested_address(url: str, mirror: str | None) -> str:
    """The address that is asked for a file: at the mirror in place of Google's server, where one is set."""
    url = whole_address(url)
    return mirror + url.removeprefix(GOOGLE) if mirror and url.startswith(f"{GOOGLE}/") else url


def is_file_name(name):
    """Whether a folder or file can have that name, on every system."""
    return name.isprintable() and re.fullmatch(r'[^/\\:*?"<>|]*[^/\\:*?"<>|.\s]', name) is not None


def place_in_cache(address: str, root: Path) -> Path:
    """Where below `root` the file of a requested address lies: at its host and path.

    A file of another port or of plain http is kept apart from one of the same name elsewhere; a query goes into the
    name as a hash.

    Raises:
        DownloadError: for an address without a file name, or whose path leads elsewhere.
    """
    url = read_url(address)
    try:
        names = [unquote(name, errors="strict") for name in url.path.split("/")[1:]]
    except UnicodeDecodeError:
        names = []
    if not names or not all(map(is_file_name, names)):
        raise DownloadError(
            f"{public_form(address)} names no file. Expected an address such as https://host/folder/file.npz."
        )
    if url.query:
        names[-1] = f"{hashlib.sha256(url.query.encode()).hexdigest()[:12]}-{names[-1]}"
    # No host has a "+" in its name.
    port = f"+{url.port}" if url.port not in (None, {"https": 443, "http": 80}[url.scheme]) else ""
    server = ("" if url.scheme == "https" else "http+") + (url.hostname or "").replace(":", "-") + port
    return root.joinpath(server, *names)

"""Reads addresses. Errors show them, like any text, without passwords and queries."""

import re
from urllib.parse import SplitResult, unquote, urlsplit

from keras_vit.errors import DownloadError, UnknownNameError

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>[^?#]+))?")
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
USER = re.compile(r"[\w.~!$&'()*+,;=:%-]*", re.ASCII)
LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[?::1\]?")


def read_url(text: str) -> SplitResult:
    """The parts of an http or https address. Refuses anything that two programs may read differently: control
    characters, spaces, backslashes, anything outside of ASCII, an odd name or password before the host, and paths with
    "." and "..".

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
        shown = "What was given" if "@" in text else text  # behind an "@", what is a password cannot be told
        raise DownloadError(
            f"{shown} is not an address that all programs read alike. Expected https://host/folder/file "
            'without spaces, control characters, backslashes and "..", with a host in ASCII.'
        )
    return url


def is_loopback(url: SplitResult) -> bool:
    """Whether the host is a plain name of this machine, so that nothing goes over a wire."""
    return LOOPBACK.fullmatch(url.hostname or "") is not None


def read_hub(url: str) -> tuple[str, str, str]:
    """(repository, revision, file) of hf://owner/repo[@revision][/file]; without a file it is model.safetensors.

    >>> read_hub("hf://timm/vit@v1")
    ('timm/vit', 'v1', 'model.safetensors')
    """
    found = HUB.fullmatch(url)
    parts = unquote(found["file"] or "").split("/") if found else [".."]
    if found is None or {".", ".."} & {*found["repo"].split("/"), found["revision"], *parts} or "\\" in "".join(parts):
        raise UnknownNameError(f"{url} is not of the form hf://owner/repo[@revision][/file].")
    return (found["repo"], found["revision"] or "main", found["file"] or "model.safetensors")


def whole_address(url: str) -> str:
    """The full address: https for gs://, %2B for a "+" of Google's, hf:// with revision and file.

    >>> whole_address("gs://vit_models/imagenet21k/R50+ViT-B_16.npz")
    'https://storage.googleapis.com/vit_models/imagenet21k/R50%2BViT-B_16.npz'
    """
    if url.startswith("hf://"):
        return "hf://{}@{}/{}".format(*read_hub(url))
    url = re.sub("^gs://", f"{GOOGLE}/", url)
    return url.replace("+", "%2B") if url.startswith(f"{GOOGLE}/") else url

"""Addresses of files on the web, and the environment's settings for servers and folders, read at each use.

    KERAS_VIT_CACHE      folder of fetched files (the user's cache folder)
    KERAS_VIT_MIRROR     address that replaces https://storage.googleapis.com
    KERAS_VIT_OFFLINE    1: never use the network
    KERAS_VIT_TIMEOUT    seconds without a byte after which a connection is given up (30)
    KERAS_VIT_MAX_BYTES  size limit of fetched files (16 GiB)
    HF_ENDPOINT          address of the Hugging Face Hub (https://huggingface.co)
    HF_TOKEN, HF_HUB_CACHE, HF_HOME  your token for the Hub, and the folders of its files

Proxies are the usual HTTPS_PROXY and NO_PROXY.

Errors show addresses, like any text, without passwords and queries.
"""

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import platformdirs

from keras_vit.errors import DownloadError, UnknownNameError

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>[^?#]+))?")
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
USER = re.compile(r"[\w.~!$&'()*+,;=:%-]*", re.ASCII)
LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|\[?::1\]?")


def read_url(text: str) -> SplitResult:
    """The parts of an http or https address. Refuses anything that two programs may read differently: control
    characters, spaces, backslashes, characters outside of ASCII, an unusual name or password before the host, and
    paths with "." and "..".

    >>> read_url("https://me:secret@Example.org/a.npz?key=1").hostname
    'example.org'
    """
    try:
        url = urlsplit(text)
        user, _, host = url.netloc.rpartition("@")
        matches = re.fullmatch(r"[!-\[\]-~]{1,8192}", text), USER.fullmatch(user), HOST.fullmatch(host)
        plain = all(matches) and url.port != 0
    except ValueError:  # an invalid port or brackets around a host
        plain = False
    if not plain or url.scheme not in ("http", "https") or {".", ".."} & {*map(unquote, url.path.split("/"))}:
        shown = "What was given" if "@" in text else text  # with an "@", any part may be a password
        raise DownloadError(
            f"{shown} is an ambiguous or unsupported address. Expected https://host/folder/file "
            'in ASCII, without spaces, control characters, backslashes and "..": ä in a path is written %C3%A4.'
        )
    return url


def is_loopback(url: SplitResult) -> bool:
    """Whether the host is a plain name of this machine, so that nothing goes over a network."""
    return LOOPBACK.fullmatch(url.hostname or "") is not None


def cache_dir() -> Path:
    folder = os.environ.get("KERAS_VIT_CACHE")
    try:
        return Path(folder).expanduser() if folder else platformdirs.user_cache_path("keras_vit")
    except RuntimeError as error:
        raise DownloadError(f"KERAS_VIT_CACHE must be a folder. Received: {folder!r}: {error}") from None


def read_server(name, default):
    """The address in an environment variable, without a final slash."""
    text = os.environ.get(name, "").strip().rstrip("/")
    try:
        plain = not text or (read_url(text) and "?" not in text and "#" not in text)
    except DownloadError:
        plain = False
    if not plain:  # with an "@", any part may be a password
        shown = "one with @" if "@" in text else text
        raise DownloadError(f"{name} must be an address such as https://host. Received: {shown}")
    return text or default


def mirror() -> str | None:
    return read_server("KERAS_VIT_MIRROR", None)


def hub() -> str:
    return read_server("HF_ENDPOINT", "https://huggingface.co")


def hub_cache() -> Path:
    """The folder of the Hub's files, shared with huggingface_hub and its users."""
    import huggingface_hub

    return Path(os.environ.get("HF_HUB_CACHE") or huggingface_hub.constants.HF_HUB_CACHE).expanduser()


def read_number(name, default, most):
    text = os.environ.get(name) or default
    try:
        value = float(text)
    except ValueError:
        value = 0
    if 0 < value <= most:
        return value
    raise DownloadError(f"{name} must be a positive number of at most {most:,}. Received: {text!r}.")


def timeout() -> float:
    return read_number("KERAS_VIT_TIMEOUT", 30, most=24 * 60 * 60)


def max_bytes() -> int:
    return int(read_number("KERAS_VIT_MAX_BYTES", 2**34, most=2**60))


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


def hub_form(url: str) -> str:
    """Turns an address of the Hub's pages into hf://owner/repo@revision/file; any other stays.

    >>> hub_form("https://huggingface.co/timm/vit/resolve/main/model.safetensors")
    'hf://timm/vit@main/model.safetensors'
    """
    page = rf"{re.escape(hub())}/([\w.-]+/[\w.-]+)/(?:resolve|blob)/([\w.-]+)/([^?#]+)(?:\?download=true)?"
    found = None if url.startswith("hf://") else re.fullmatch(page, url)
    return f"hf://{found[1]}@{found[2]}/{unquote(found[3])}" if found else url


def whole_address(url: str) -> str:
    """The full address: https for gs://, %2B for a "+" of Google's, hf:// with revision and file for the Hub.

    >>> whole_address("gs://vit_models/imagenet21k/R50+ViT-B_16.npz")
    'https://storage.googleapis.com/vit_models/imagenet21k/R50%2BViT-B_16.npz'
    """
    if (url := hub_form(url)).startswith("hf://"):
        return "hf://{}@{}/{}".format(*read_hub(url))
    url = re.sub("^gs://", f"{GOOGLE}/", url)
    return url.replace("+", "%2B") if url.startswith(f"{GOOGLE}/") else url


def requested_address(url: str) -> str:
    """The address to request: on the mirror, if one is set, instead of Google's."""
    url, server = whole_address(url), mirror()
    return server + url.removeprefix(GOOGLE) if server and url.startswith(f"{GOOGLE}/") else url

"""Where a file is on the web, and where in the cache."""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote

from keras_vit.errors import DownloadError, UnknownNameError
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.urls import Url, public_form, read_url

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>[^?#]+))?")


def hub_address(url):
    found = HUB.fullmatch(url)
    if found is None:
        raise UnknownNameError(f"{public_form(url)} is not of the form hf://owner/repo[@revision][/file].")
    revision, file = found["revision"] or "main", found["file"] or "model.safetensors"
    return f"{settings.hub()}/{found['repo']}/resolve/{revision}/{file}"


def web_address(url: str) -> str:
    """The https address behind an hf:// or gs:// one; any other as it is, a "+" of Google's as %2B.

    >>> web_address("gs://vit_models/imagenet21k/R50+ViT-B_16.npz")
    'https://storage.googleapis.com/vit_models/imagenet21k/R50%2BViT-B_16.npz'
    """
    if url.startswith("hf://"):
        return hub_address(url)
    url = re.sub("^gs://", f"{GOOGLE}/", url)
    return url.replace("+", "%2B") if url.startswith(f"{GOOGLE}/") else url


def requested_url(url: str) -> Url:
    """The `Url` that is requested for a file: at the mirror in place of Google's server, where one is set."""
    url, mirror = web_address(url), settings.mirror()
    return read_url(mirror + url.removeprefix(GOOGLE) if mirror and url.startswith(f"{GOOGLE}/") else url)


def is_file_name(name):
    """Whether a folder or file can have that name, on every system."""
    return name.isprintable() and re.fullmatch(r'[^/\\:*?"<>|]*[^/\\:*?"<>|.\s]', name) is not None


def server_folder(url):
    """A server's folder in the cache; no host has a "+" in its name."""
    host = url.host.replace(":", "-") + (f"+{url.port}" if url.port else "")
    return host if url.scheme == "https" else f"{url.scheme}+{host}"


def cached_path(url: str) -> Path:
    """Where in the cache the file of an address lies: host and path of the server that it is requested from.

    A file of a mirror, of another port or of plain http is kept apart from one of the same name elsewhere; a query
    goes into the name as a hash.

    Raises:
        DownloadError: for an address without a file name, or whose path leads elsewhere.
    """
    requested = requested_url(url)
    try:
        names = [unquote(name, errors="strict") for name in requested.path.split("/")[1:]]
    except UnicodeDecodeError:
        names = [""]
    if not all(map(is_file_name, names)):
        raise DownloadError(
            f"{requested.public} names no file. Expected an address such as https://host/folder/file.npz."
        )
    if requested.query:
        names[-1] = f"{hashlib.sha256(requested.query.encode()).hexdigest()[:12]}-{names[-1]}"
    return settings.cache_dir().joinpath(server_folder(requested), *names)

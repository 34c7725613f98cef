"""Where a file is on the web, and where in the cache."""

import hashlib
import re
from urllib.parse import unquote

from keras_vit.errors import DownloadError, UnknownNameError
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.urls import public, read

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>[^?#]+))?")


def web_address(url):
    """The https address behind an hf:// or gs:// one; any other as it is, a "+" of Google's as %2B.

    >>> web_address("gs://vit_models/imagenet21k/R50+ViT-B_16.npz")
    'https://storage.googleapis.com/vit_models/imagenet21k/R50%2BViT-B_16.npz'
    """
    if url.startswith("hf://"):
        return hub_address(url)
    url = re.sub("^gs://", f"{GOOGLE}/", url)
    return url.replace("+", "%2B") if url.startswith(f"{GOOGLE}/") else url


def hub_address(url):
    found = HUB.fullmatch(url)
    if found is None:
        raise UnknownNameError(f"{public(url)} is not of the form hf://owner/repo[@revision][/file].")
    revision, file = found["revision"] or "main", found["file"] or "model.safetensors"
    return f"{settings.hub()}/{found['repo']}/resolve/{revision}/{file}"


def address(url):
    """The `Url` that is asked for a file: at the mirror in place of Google's server, where one is set."""
    url, mirror = web_address(url), settings.mirror()
    return read(mirror + url.removeprefix(GOOGLE) if mirror and url.startswith(f"{GOOGLE}/") else url)


def cached_path(url):
    """Where in the cache the file of an address lies: host and path of the server that is asked for it.

    A file of a mirror, of another port or of plain http is kept apart from one of the same name elsewhere; a query is
    kept as a hash.

    Raises:
        DownloadError: for an address without a file name, or whose path leads elsewhere.
    """
    asked = address(url)
    try:
        names = [unquote(name, errors="strict") for name in asked.path.split("/")[1:]]
    except UnicodeDecodeError:
        names = [""]
    if not all(map(is_plain, names)):
        raise DownloadError(f"{asked.public} names no file. Expected an address such as https://host/folder/file.npz.")
    if asked.query:
        names[-1] = f"{hashlib.sha256(asked.query.encode()).hexdigest()[:12]}-{names[-1]}"
    return settings.cache_dir().joinpath(folder_of(asked), *names)


def is_plain(name):
    """Whether a folder or file can be called that, on every system."""
    return name.isprintable() and re.fullmatch(r'[^/\\:*?"<>|]*[^/\\:*?"<>|.\s]', name) is not None


def folder_of(url):
    """A server's folder in the cache; no host has a "+" in its name."""
    host = url.host.replace(":", "-") + (f"+{url.port}" if url.port else "")
    return host if url.scheme == "https" else f"{url.scheme}+{host}"

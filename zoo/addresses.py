"""Where a file is on the web and in the cache, and which addresses may be asked at all."""

import hashlib
import ipaddress
import re
from urllib.parse import unquote, urlsplit, urlunsplit

from keras_vit.errors import DownloadError, UnknownNameError
from keras_vit.zoo import settings

GOOGLE = "https://storage.googleapis.com"
HUB = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w.-]+))?(/(?P<file>.+))?")


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
        raise UnknownNameError(f"{url!r} is no name of the form hf://owner/repo[@revision][/file].")
    revision, file = found["revision"] or "main", found["file"] or "model.safetensors"
    return f"{settings.hub()}/{found['repo']}/resolve/{revision}/{file}"


def mirrored(url):
    """The address to ask: the mirror's in place of Google's, where one is set."""
    mirror = settings.mirror()
    return mirror + url.removeprefix(GOOGLE) if mirror and url.startswith(f"{GOOGLE}/") else url


def cached_path(url):
    """Where in the cache the file of that address lies: host and path, and a hash of the query where there is one.

    Raises:
        DownloadError: for an address without a file name, or whose path leads elsewhere.
    """
    parts = urlsplit(url)
    names = [unquote(name) for name in parts.path.split("/") if name]
    if not parts.hostname or not names or any(not is_plain(name) for name in names):
        raise DownloadError(f"{url} names no file. Expected an address such as https://host/folder/file.npz.")
    if parts.query:
        names[-1] = f"{hashlib.sha256(parts.query.encode()).hexdigest()[:12]}-{names[-1]}"
    host = parts.hostname.replace(":", "_") + (f"_{parts.port}" if parts.port else "")
    return settings.cache_dir().joinpath(host, *names)


def is_plain(name):
    return name not in (".", "..") and not re.search(r'[\x00-\x1f/\\:*?"<>|]', name)


def require_safe(url):
    """https anywhere; http only on this machine, or where the mirror was set to it."""
    parts = urlsplit(url)
    asked, mirror = (parts.scheme, parts.netloc), settings.mirror()
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return
    if parts.scheme == "http" and mirror and asked == tuple(urlsplit(mirror))[:2]:
        return
    raise DownloadError(
        f"{public(url)} is not fetched: expected https. A plain http mirror can be set as KERAS_VIT_MIRROR."
    )


def is_loopback(host):
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def public(url):
    """The address without the name and password it may hold."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

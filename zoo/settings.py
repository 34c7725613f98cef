"""What the environment says about fetching; read at each use.

    KERAS_VIT_CACHE      folder of fetched files (the user's cache folder)
    KERAS_VIT_MIRROR     address that takes the place of https://storage.googleapis.com
    KERAS_VIT_OFFLINE    1: never use the network
    KERAS_VIT_TIMEOUT    seconds without a byte after which a connection is given up (30)
    KERAS_VIT_MAX_BYTES  size over which no file is fetched (16 GiB)
    HF_ENDPOINT          address of the Hugging Face Hub (https://huggingface.co)

Proxies are the usual HTTPS_PROXY and NO_PROXY.
"""

import os
from pathlib import Path

import platformdirs

from keras_vit.errors import DownloadError


def cache_dir():
    folder = os.environ.get("KERAS_VIT_CACHE")
    return Path(folder).expanduser() if folder else platformdirs.user_cache_path("keras_vit")


def mirror():
    """The mirror's address without a slash at its end, or None."""
    return os.environ.get("KERAS_VIT_MIRROR", "").rstrip("/") or None


def offline():
    return os.environ.get("KERAS_VIT_OFFLINE", "").casefold() not in ("", "0", "false", "no")


def timeout():
    return number("KERAS_VIT_TIMEOUT", 30)


def max_bytes():
    return int(number("KERAS_VIT_MAX_BYTES", 16 * 2**30))


def hub():
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def number(name, default):
    text = os.environ.get(name, "")
    try:
        value = float(text or default)
    except ValueError:
        value = 0
    if value > 0:
        return value
    raise DownloadError(f"{name} must be a positive number. Received: {text!r}.")

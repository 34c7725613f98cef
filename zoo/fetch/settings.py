"""What the environment says about fetching; read at each use.

    KERAS_VIT_CACHE      folder of fetched files (the user's cache folder)
    KERAS_VIT_MIRROR     address that takes the place of https://storage.googleapis.com
    KERAS_VIT_OFFLINE    1: never use the network
    KERAS_VIT_TIMEOUT    seconds without a byte after which a connection is given up (30)
    KERAS_VIT_MAX_BYTES  size over which no file is fetched (16 GiB)
    HF_ENDPOINT          address of the Hugging Face Hub (https://huggingface.co)
    HF_TOKEN, HF_HUB_CACHE, HF_HOME  your token for the Hub, and where its files lie

Proxies are the usual HTTPS_PROXY and NO_PROXY.
"""

import os
from pathlib import Path

import platformdirs

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch.addresses import read_url


def cache_dir() -> Path:
    folder = os.environ.get("KERAS_VIT_CACHE")
    try:
        return Path(folder).expanduser() if folder else platformdirs.user_cache_path("keras_vit")
    except RuntimeError as error:
        raise DownloadError(f"KERAS_VIT_CACHE must be a folder. Received: {folder!r}: {error}") from None


def read_server(name, default):
    """The address in a variable, without a slash at its end."""
    text = os.environ.get(name, "").strip().rstrip("/")
    try:
        plain = not text or (read_url(text) and "?" not in text and "#" not in text)
    except DownloadError:
        plain = False
    if not plain:  # behind an "@", what is a password cannot be told
        shown = "one with @" if "@" in text else text
        raise DownloadError(f"{name} must be an address such as https://host. Received: {shown}")
    return text or default


def mirror() -> str | None:
    return read_server("KERAS_VIT_MIRROR", None)


def hub() -> str:
    return read_server("HF_ENDPOINT", "https://huggingface.co")


def hub_cache() -> Path:
    """The folder of the Hub's files, shared with huggingface_hub and libraries that use it."""
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

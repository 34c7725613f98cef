"""Fetches the JSON files that timm and transformers put beside their weights, together with the weights."""

import contextlib
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from keras_vit.offline import is_offline
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import cached_path, web_address
from keras_vit.zoo.fetch.download import fetch
from keras_vit.zoo.fetch.replies import NotFoundError
from keras_vit.zoo.formats.torch.stated import COMPANIONS, MOST_BYTES
from keras_vit.zoo.names.rows import PublicCheckpoint


def neighbour(url, name):
    """The address of another file in the same folder."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def fetch_with_companions(checkpoint: PublicCheckpoint) -> Path:
    """The path of a checkpoint's file; before a .safetensors file of the Hub come the JSON files beside it, if any."""
    url = web_address(checkpoint.url)
    of_hub = url.startswith(f"{settings.hub()}/") and urlsplit(url).path.endswith(".safetensors")
    if of_hub and not is_offline() and not cached_path(url).is_file():
        for name in COMPANIONS:
            with contextlib.suppress(NotFoundError):
                fetch(neighbour(url, name), most_bytes=MOST_BYTES, progress=False)
    return fetch(checkpoint)

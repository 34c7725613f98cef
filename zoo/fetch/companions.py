"""The JSON files that timm and transformers put beside their weights, and the names of the classes in them."""

import contextlib
import json
from urllib.parse import urlsplit, urlunsplit

from keras_vit.offline import is_offline
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.addresses import cached_path, web_address
from keras_vit.zoo.fetch.download import fetch
from keras_vit.zoo.fetch.transfer import Absent

FILES = ("config.json", "preprocessor_config.json")
MOST_BYTES = 2**22


def fetch_with_companions(checkpoint):
    """The path of a checkpoint's file; before a .safetensors file of the Hub come the JSON files beside it, if any."""
    url = web_address(checkpoint.url)
    of_hub = url.startswith(f"{settings.hub()}/") and urlsplit(url).path.endswith(".safetensors")
    if of_hub and not is_offline() and not cached_path(url).is_file():
        for name in FILES:
            with contextlib.suppress(Absent):
                fetch(sibling(url, name), most_bytes=MOST_BYTES, progress=False)
    return fetch(checkpoint)


def sibling(url, name):
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{name}"))


def companions(path):
    """What config.json and preprocessor_config.json beside `path` say: two dictionaries, {} for no such file."""
    return tuple(said(path.with_name(name)) for name in FILES)


def said(file):
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file.is_file() and file.stat().st_size <= MOST_BYTES:
            found = json.loads(file.read_text("utf-8"))
            return found if isinstance(found, dict) else {}
    return {}


def stated_labels(stated, num_classes):
    """The names of the classes, or None where the files name others, or just number them."""
    names = stated.get("label_names")
    by_number = stated.get("id2label")
    if isinstance(by_number, dict):
        names = [by_number.get(str(i)) for i in range(len(by_number))]
    if not isinstance(names, list) or len(names) != num_classes or not all(isinstance(name, str) for name in names):
        return None
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else tuple(names)

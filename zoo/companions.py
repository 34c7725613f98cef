"""What timm and transformers say of their weights in the JSON files beside them: heads, numerics, input and classes."""

import contextlib
import json
from urllib.parse import urlsplit, urlunsplit

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.offline import is_offline
from keras_vit.zoo import settings
from keras_vit.zoo.addresses import cached_path, web_address
from keras_vit.zoo.download import fetch
from keras_vit.zoo.transfer import Absent

FILES = ("config.json", "preprocessor_config.json")
MOST_BYTES = 2**22
GELU_BY_TANH = {"gelu": False, "gelu_new": True, "gelu_fast": True, "gelu_pytorch_tanh": True}
# transformers names interpolations by Pillow's numbers.
INTERPOLATIONS = {2: "bilinear", 3: "bicubic", "bilinear": "bilinear", "bicubic": "bicubic"}


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
    """All that the JSON files in the folder of `path` say; {} where there are none, or no such files."""
    stated = {}
    for name in FILES:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            file = path.with_name(name)
            if file.is_file() and file.stat().st_size <= MOST_BYTES:
                said = json.loads(file.read_text("utf-8"))
                stated.update(said if isinstance(said, dict) else {})
    return stated


def stated_heads(stated):
    heads = stated.get("num_attention_heads")
    return heads if isinstance(heads, int) and heads > 0 else None


def stated_numerics(path, stated):
    """Fields of the configuration that transformers' files set.

    Raises:
        CheckpointError: for an activation that no model of this package has.
    """
    numerics = {}
    if isinstance(stated.get("layer_norm_eps"), float):
        numerics["layer_norm_epsilon"] = stated["layer_norm_eps"]
    activation = stated.get("hidden_act", "gelu")
    if "num_attention_heads" in stated:
        if not isinstance(activation, str) or activation not in GELU_BY_TANH:
            raise CheckpointError(
                f"{path} is of a model with the activation {activation!r}, by its config.json; "
                f"expected one of: {', '.join(GELU_BY_TANH)}."
            )
        numerics["gelu_approximate"] = GELU_BY_TANH[activation]
    return numerics


def stated_labels(stated, num_classes):
    """The names of the classes, or None where the files name others, or just number them."""
    names = stated.get("label_names")
    by_number = stated.get("id2label")
    if isinstance(by_number, dict):
        names = [by_number.get(str(i)) for i in range(len(by_number))]
    if not isinstance(names, list) or len(names) != num_classes or not all(isinstance(name, str) for name in names):
        return None
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else tuple(names)


def stated_preprocessing(stated, config):
    """The Preprocessing that the files state, for a model of that configuration; None where they state none."""
    timm = stated.get("pretrained_cfg")
    try:
        if isinstance(timm, dict) and "mean" in timm:
            given = timm["input_size"][1:]
            crop, names = timm.get("crop_pct"), ("interpolation", "mean", "std")
            interpolation, mean, std = (timm[name] for name in names)
        elif "image_mean" in stated:
            given, crop = size_and_crop(stated)
            interpolation, mean, std = stated.get("resample", 2), stated["image_mean"], stated["image_std"]
        else:
            return None
        size = config.image_size or tuple(map(int, given))
        mean, std = ([float(value) for value in values] for values in (mean, std))
        if not len(mean) == len(std) == config.num_channels:
            return None
        return Preprocessing(size, crop, INTERPOLATIONS[interpolation], mean, std)
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, ConfigError):
        return None


def size_and_crop(stated):
    """((height, width), the part kept of the short side or None) of transformers' image processors."""
    size = stated["size"]
    if isinstance(size, int):
        return (size, size), None
    if "shortest_edge" not in size:
        return (size["height"], size["width"]), None
    cropped = stated.get("crop_size", size["shortest_edge"]) if stated.get("do_center_crop") else size["shortest_edge"]
    height, width = (cropped["height"], cropped["width"]) if isinstance(cropped, dict) else (cropped, cropped)
    return (height, width), height / size["shortest_edge"]

"""Reads the JSON files beside a torch checkpoint: facts about its model, its input and its classes."""

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.files import read_json
from keras_vit.models.preprocessing import CROP_MODES, Preprocessing, UnknownPreprocessing
from keras_vit.zoo.formats.checkpoint import Fault

COMPANIONS = ("config.json", "preprocessor_config.json")
SEVERAL_CLASSES = "multi_label_classification"  # the problem_type for which transformers takes sigmoids, not softmax
MOST_BYTES = 2**22  # of a file; the names of 21,843 classes take 0.7 million


def read_object(path):
    """The object in a JSON file; {} for anything else. Links are followed: `huggingface_hub` caches by links."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = read_json(path, MOST_BYTES, follow_links=True)
        return found if isinstance(found, dict) else {}
    return {}


def read_companions(path):
    """The objects in config.json and preprocessor_config.json beside `path`: two dictionaries, {} for no such file."""
    return tuple(read_object(path.with_name(name)) for name in COMPANIONS)


def stated_labels(stated, num_classes):
    """The names of the classes, or None if the files have names for other classes, or only numbers."""
    names = stated.get("label_names")
    by_number = stated.get("id2label")
    if isinstance(by_number, dict):
        names = [by_number.get(str(i)) for i in range(len(by_number))]
    if not isinstance(names, list) or len(names) != num_classes or not all(isinstance(name, str) for name in names):
        return None
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else tuple(names)


@dataclass(frozen=True)
class Stated:
    """Facts about a model that its tensors cannot show; None if the files do not state them."""

    num_heads: int | None = None
    image_size: tuple | None = None  # (height, width) in pixels, for which the position embeddings are
    fields: dict = field(default_factory=dict)  # of the configuration: activation, epsilons, the input of the head
    shapes: dict = field(default_factory=dict)  # {our name: size}; if the tensors have others, it is another model's
    assume_heads: bool = True  # whether Table 1's heads may be assumed if `num_heads` is None
    register_positions: bool = False  # whether registers also have position embeddings
    unknown_architecture: str | None = None  # a name in timm's config.json that this package does not know


def require_stated(condition, what, expected):
    """Refuses a model that this package cannot compute, unless the condition is true."""
    if not condition:
        raise Fault(f"is of a model with {what}, by the config.json beside it; this package computes {expected} only.")


def require_own_config(found, stated):
    """Refuses the config.json of another model: its sizes must be those `found` in the tensors, {name: value}."""
    for name, value in stated.shapes.items():
        if value != found.get(name, value):
            raise Fault(
                f"has the config.json of another model beside it, which states {name} {value}; the tensors have "
                f"{found[name]}. Put the file's own config.json there, or none."
            )


def as_size(value):
    """(height, width) from a size in pixels in JSON, one number or two; None for anything else."""
    value = [value, value] if isinstance(value, int) else value
    fits = isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value)
    return tuple(value) if fits else None


EXACT = {"activation": "gelu", "gelu_approximate": False}
BY_TANH = {"activation": "gelu", "gelu_approximate": True}
ACTIVATIONS = {
    "gelu": EXACT,
    "gelu_python": EXACT,
    "gelu_pytorch_tanh": BY_TANH,
    "gelu_new": BY_TANH,
    "gelu_fast": BY_TANH,
    "gelu_accurate": BY_TANH,
    "gelu_python_tanh": BY_TANH,
    "quick_gelu": {"activation": "quick_gelu"},
    "silu": {"activation": "silu"},
    "swish": {"activation": "silu"},
}
VIT_TYPES = ("vit", "vit_msn", "vit-hybrid", "ijepa", "deit")
# {model_type of an image tower: the default activation of its configuration}
TOWERS = {
    **dict.fromkeys(("clip", "clip_vision_model", "metaclip_2", "metaclip_2_vision_model"), "quick_gelu"),
    **dict.fromkeys(("chinese_clip", "chinese_clip_vision_model"), "quick_gelu"),
    **dict.fromkeys(("siglip", "siglip_vision_model"), "gelu_pytorch_tanh"),
}
DINOV2_TYPES = ("dinov2", "dinov2_with_registers")
BIT_TYPES = ("bit",)
SHAPES = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "mlp_dim",
    "num_register_tokens": "num_registers",
}
# Fields that change a ResNet's function but not its tensors, with our values; the first is the default.
BIT_FIELDS = {
    "layer_type": ("preactivation",),
    "global_padding": (None,),
    "embedding_dynamic_padding": (False,),
    "hidden_act": ("relu",),
    "num_groups": (32,),
    "output_stride": (32,),
}
HYBRID_FIELDS = {
    **BIT_FIELDS,
    "layer_type": ("bottleneck",),
    "global_padding": ("same", "SAME"),
    "embedding_dynamic_padding": (True,),
}


def read_activation(config_json, default):
    """The fields of the configuration for `hidden_act`."""
    activation = config_json.get("hidden_act", default)
    known = isinstance(activation, str) and activation in ACTIVATIONS
    require_stated(known, f"the activation {activation!r}", ", ".join(ACTIVATIONS))
    return ACTIVATIONS[activation]


def name_activation(config, known):
    """The first name in `known`, {name: fields}, of a configuration's activation."""
    return next(name for name, fields in known.items() if fields.items() <= vars(config).items())


def read_transformer(config_json, fields, heads, without=()):
    """The `Stated` of a Transformer's configuration, with `fields`; `heads` is the default number of heads, and names
    in `without` have no meaning in this configuration.
    """
    stated = {name: value for name, value in config_json.items() if name not in without}
    if isinstance(stated.get("layer_norm_eps"), float):
        fields = {**fields, "layer_norm_epsilon": stated["layer_norm_eps"]}
    if isinstance(stated.get("layerscale_value"), float):
        fields = {**fields, "layer_scale": stated["layerscale_value"]}
    heads = stated.get("num_attention_heads", heads)
    shapes = {ours: stated[theirs] for theirs, ours in SHAPES.items() if type(stated.get(theirs)) is int}
    return Stated(
        num_heads=heads if type(heads) is int and heads > 0 else None,
        image_size=as_size(stated.get("image_size")),
        fields=fields,
        shapes=shapes,
    )


def require_type(config_json, types):
    kind = config_json.get("model_type", types[0])
    require_stated(kind in types, f"the model_type {kind!r}", ", ".join(types))


def require_values(config_json, values):
    """Refuses unknown values of the fields in a table {name: known values}; the first known value is the default."""
    for name, known in values.items():
        value = config_json.get(name, known[0])
        require_stated(value in known, f"{name}={value!r}", f"{name}={known[0]!r}")


def without_biases(config_json):
    """The field for queries, keys and values without biases, if the configuration states that."""
    return {"qkv_bias": "none"} if config_json.get("qkv_bias") is False else {}


def transformers_vit(config_json, tensors):
    """The `Stated` of a ViT or hybrid; the other fields of its configuration do not change the function."""
    require_type(config_json, VIT_TYPES)
    is_ijepa = "embeddings.cls_token" not in tensors
    require_stated(
        not is_ijepa or "pooler.dense.weight" not in tensors, "a pooler of one patch", "the mean of the patches"
    )
    if "pooler.dense.weight" in tensors:
        require_values(config_json, {"pooler_act": ("tanh",)})
    if isinstance(config_json.get("backbone_config"), dict):
        require_values(config_json["backbone_config"], HYBRID_FIELDS)
    heads = 12 if config_json.get("model_type") in VIT_TYPES else None
    fields = read_activation(config_json, "gelu") | without_biases(config_json)
    # If only the class token is read, DeiT's distillation token, with its position, is a register.
    distilled = "embeddings.distillation_token" in tensors
    return replace(read_transformer(config_json, fields, heads), register_positions=distilled)


def transformers_tower(config_json, tensors):
    if not config_json:
        return Stated()
    kind = config_json.get("model_type")
    require_stated(isinstance(kind, str) and kind in TOWERS, f"the model_type {kind!r}", ", ".join(TOWERS))
    tower = config_json.get("vision_config", config_json)
    tower = tower if isinstance(tower, dict) else {}
    if "classifier.weight" in tensors:
        what = "a classifier of the mean of CLIP's patches before the last norm"
        require_stated("pre_layrnorm.weight" not in tensors, what, "classifiers of the mean after it")
        tower = {**tower, "vision_use_head": True}
    require_values(tower, {"vision_use_head": (True,)})
    return read_transformer({"image_size": 224, **tower}, read_activation(tower, TOWERS[kind]), 12)


def transformers_dinov2(config_json, tensors):
    """The `Stated` of a DINOv2. Its gated MLP always has SiLU."""
    require_type(config_json, DINOV2_TYPES)
    gated = any(".mlp.weights_gate." in name for name in tensors)
    fields = ACTIVATIONS["silu"] if gated else read_activation(config_json, "gelu")
    fields = fields | without_biases(config_json)
    require_values(config_json, {"use_swiglu_ffn": (gated,)})
    if "classifier.weight" in tensors:
        fields["classifier"] = "token+gap"
    heads = 12 if config_json.get("model_type") in DINOV2_TYPES else None
    return read_transformer(config_json, fields, heads, without=("intermediate_size",))


def transformers_dinov3(config_json, tensors):
    require_type(config_json, ("dinov3_vit",))
    gated = any(".mlp.gate_proj." in name for name in tensors)
    fields = read_activation(config_json, "silu" if gated and not config_json else "gelu")
    known = {"rope_theta": (100.0, 100), "proj_bias": (True,), "mlp_bias": (True,)}
    require_values(config_json, {**known, "use_gated_mlp": (gated,)})
    return read_transformer(config_json, fields, 6 if config_json else None)


def nothing_stated(config_json, tensors):
    """The `Stated` of Meta's own files, which have no config.json of a known kind."""
    return Stated(assume_heads=False)


def transformers_bit(config_json, tensors):
    require_type(config_json, BIT_TYPES)
    require_values(config_json, BIT_FIELDS)
    return Stated()


def pretrained_cfg(config_json):
    """The part of config.json on the weights; in the oldest files it is the whole object."""
    inner = config_json.get("pretrained_cfg")
    return inner if isinstance(inner, dict) else config_json


# transformers uses Pillow's numbers of interpolations.
INTERPOLATIONS = {
    "nearest": "nearest",
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "lanczos": "lanczos3",
    0: "nearest",
    1: "lanczos3",
    2: "bilinear",
    3: "bicubic",
}
# Image processors that take a size of one number for both sides, and those that take it for the short side.
SQUASHING, KEEPING = ("ViT", "DeiT", "ViTHybrid"), ("Bit", "CLIP")
# Steps of transformers' image processors that Preprocessing does not have.
OTHER_STEPS = ("do_pad", "do_thumbnail", "do_align_long_axis", "rescale_offset", "do_resize_to_multiple", "crop_pct")


class Unstated(Exception):
    """Files do not state the input, or state one that Preprocessing cannot make; the message ends a sentence."""


def read_interpolation(name):
    if isinstance(name, bool) or name not in INTERPOLATIONS:
        raise Unstated(f"resizes by {name!r}, which Preprocessing does not have")
    return INTERPOLATIONS[name]


def spread_over_channels(mean, std, config):
    """Mean and deviation for each channel of the model; a single number is for all channels."""
    both = []
    for values in (mean, std):
        values = [float(value) for value in (values if isinstance(values, list | tuple) else [values])]
        both.append(tuple(values * config.num_channels if len(values) == 1 else values))
        if len(both[-1]) != config.num_channels:
            raise Unstated(f"takes {config.num_channels} channels, but mean and deviation are stated for {len(values)}")
    return both


def from_timm(cfg, config):
    """The Preprocessing from pretrained_cfg in timm's config.json."""
    mode: Any = cfg.get("crop_mode") or "center"
    if mode not in CROP_MODES:
        raise Unstated(f"crops by timm's crop_mode {mode!r}, which Preprocessing does not have")
    mean, std = spread_over_channels(cfg["mean"], cfg["std"], config)
    return Preprocessing(
        image_size=config.image_size or as_size(cfg["input_size"][1:]),
        crop=cfg.get("crop_pct") or 0.875,
        interpolation=read_interpolation(cfg.get("interpolation") or "bicubic"),
        mean=mean,
        std=std,
        crop_mode=mode,
    )


def read_mean_and_std(processor):
    """(mean, std) for pixels in [0, 1] that equal the processor's rescaling and normalizing of pixels in [0, 255]."""
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    normalizes = processor.get("do_normalize", True)
    mean, std = (processor["image_mean"], processor["image_std"]) if normalizes else ([0.0], [1.0])
    if abs(factor * 255 - 1) < 1e-6:
        return mean, std
    return [np.divide(values, 255 * factor).tolist() for values in (mean, std)]


def read_resized_size(processor):
    """(height, width, crop_mode) of the resize of an image."""
    size = processor["size"]
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return size["height"], size["width"], "squash"
    if isinstance(size, dict) and size.keys() == {"shortest_edge"}:
        return size["shortest_edge"], size["shortest_edge"], "center"
    kind = str(processor.get("image_processor_type", processor.get("feature_extractor_type", "ViT")))
    kind = kind.removesuffix("Fast").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if type(size) is int and kind in SQUASHING + KEEPING:
        return size, size, "squash" if kind in SQUASHING else "center"
    raise Unstated(f"is prepared by {kind} with the size {size!r}, which this package does not know")


def read_size(processor):
    """((height, width), crop, crop_mode): the final size of an image, and the resize before the crop."""
    if not processor.get("do_resize", True):
        raise Unstated("takes images that are not resized (do_resize false)")
    height, width, mode = read_resized_size(processor)
    if not processor.get("do_center_crop"):
        if mode == "center":
            raise Unstated("takes images of any aspect (shortest_edge without do_center_crop)")
        return (height, width), 1.0, mode
    stated = processor.get("crop_size", [height, width])
    crop = as_size([stated["height"], stated["width"]] if isinstance(stated, dict) else stated)
    if crop is None or crop[0] * width != crop[1] * height or crop[0] > height:
        raise Unstated(f"crops images of size {processor['size']} to {stated}, larger or of another aspect")
    return crop, crop[0] / height, mode


def from_transformers(processor, config):
    """The Preprocessing from transformers' preprocessor_config.json."""
    steps = [name for name in OTHER_STEPS if processor.get(name)]
    if steps:
        raise Unstated(f"needs the step {steps[0]} of transformers, which Preprocessing does not have")
    size, crop, mode = read_size(processor)
    mean, std = spread_over_channels(*read_mean_and_std(processor), config=config)
    return Preprocessing(
        image_size=config.image_size or size,
        crop=crop,
        interpolation=read_interpolation(processor.get("resample", 2)),
        mean=mean,
        std=std,
        crop_mode=mode,
    )


def stated_preprocessing(name, config_json, processor_json, config):
    """The Preprocessing from the files beside the checkpoint `name`, or an `UnknownPreprocessing` that says why not."""
    try:
        cfg = pretrained_cfg(config_json)
        if cfg.get("mean") is not None and cfg.get("std") is not None:
            return from_timm(cfg, config)
        if "image_processor_type" in processor_json or "image_mean" in processor_json or "size" in processor_json:
            return from_transformers(processor_json, config)
        raise Unstated("has no JSON file beside it that states its preprocessing")
    except Unstated as reason:
        return UnknownPreprocessing(f"{name} {reason}.")
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, ConfigError) as error:
        return UnknownPreprocessing(f"The JSON files beside {name} state its preprocessing in no known way ({error}).")

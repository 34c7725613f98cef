"""Converts a model to transformers: its class, the config.json of that class, and tensors under its names."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ViTConfig
from keras_vit.models.tensors import VIT
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.names import HF_DINOV2, HF_DINOV3, HF_TOWER, HF_VIT, torch_names
from keras_vit.zoo.formats.torch.layouts import pack, to_torch
from keras_vit.zoo.formats.torch.stated import ACTIVATIONS, SEVERAL_CLASSES, name_activation
from keras_vit.zoo.formats.variables import official_arrays

# The only values that a class computes, {field: value}, unless it is listed below.
PLAIN = {
    "backbone": None,
    "position_embedding": "1d",
    "position_embedding_at": "stem",
    "class_token_position": True,
    "has_class_token": True,
    "classifier": "token",
    "representation_size": None,
    "norm_after_pool": False,
    "unit_vectors": False,
    "pre_norm": False,
    "patch_bias": True,
    "head_bias": True,
    "qkv_bias": "qkv",
    "gated_mlp": False,
    "layer_scale": None,
    "num_registers": 0,
    "drop_remainder": False,
}
ANY = object()


class Kind(NamedTuple):
    """A class of transformers: model_type, names, prefix of the encoder's, and fields that differ from `PLAIN`."""

    name: str
    model_type: str
    layout: dict
    prefix: str
    fields: dict


DINOV2 = {"layer_scale": ANY, "gated_mlp": ANY}
REGISTERS = DINOV2 | {"num_registers": ANY}
BOTH = {"classifier": "token+gap"}
CLIP = {"pre_norm": True, "patch_bias": False, "head_bias": ANY}
SIGLIP = {"classifier": "map", "has_class_token": False, "drop_remainder": ANY}
MEAN = {"classifier": "gap", "has_class_token": False}
DINOV3 = REGISTERS | {"position_embedding": "rope", "qkv_bias": ANY}
# {whether there is a head: classes}; the first that computes the same is chosen.
KINDS = {
    True: (
        Kind("ViTForImageClassification", "vit", HF_VIT, "vit.", {}),
        Kind(
            "CLIPVisionModelWithProjection", "clip_vision_model", HF_TOWER, "vision_model.", CLIP | {"head_bias": False}
        ),
        Kind("Dinov2ForImageClassification", "dinov2", HF_DINOV2, "dinov2.", DINOV2 | BOTH),
        Kind(
            "Dinov2WithRegistersForImageClassification",
            *("dinov2_with_registers", HF_DINOV2, "dinov2_with_registers.", REGISTERS | BOTH),
        ),
        Kind("DeiTForImageClassification", "deit", HF_VIT, "deit.", {"num_registers": 1}),
        Kind("IJepaForImageClassification", "ijepa", HF_VIT, "ijepa.", MEAN),
        Kind("SiglipForImageClassification", "siglip", HF_TOWER, "vision_model.", MEAN | {"drop_remainder": ANY}),
    ),
    False: (
        Kind("ViTModel", "vit", HF_VIT, "", {"representation_size": ANY}),
        Kind("CLIPVisionModel", "clip_vision_model", HF_TOWER, "vision_model.", CLIP),
        Kind("SiglipVisionModel", "siglip_vision_model", HF_TOWER, "vision_model.", SIGLIP),
        Kind("Dinov2Model", "dinov2", HF_DINOV2, "", DINOV2),
        Kind("Dinov2WithRegistersModel", "dinov2_with_registers", HF_DINOV2, "", REGISTERS),
        Kind("DINOv3ViTModel", "dinov3_vit", HF_DINOV3, "", DINOV3),
    ),
}


def with_class_position(config):
    """The configuration with a position embedding of the class token; one of zeros computes the same as none."""
    wanted = config.has_class_token and config.position_embedding == "1d"
    return dataclasses.replace(config, class_token_position=True) if wanted else config


def unlike(kind, config):
    """The fields in which a model differs from a class, {field: value of the class}."""
    needs = {**PLAIN, **kind.fields}
    found = {name: value for name, value in needs.items() if value is not ANY and getattr(config, name) != value}
    if kind.layout in (HF_DINOV2, HF_DINOV3) and config.layer_scale is None:
        found["layer_scale"] = "a number"
    if kind.layout is HF_DINOV2 and config.gated_mlp and config.activation != "silu":
        found["activation"] = "silu"
    if kind.layout is HF_DINOV2 and find_ratio(config) is None:
        found["mlp_dim"] = "a multiple of hidden_size, or two thirds of it behind a gate"
    return found


def find_ratio(config):
    """DINOv2's mlp_ratio, with which transformers states the width of MLPs; None if no ratio fits."""
    for ratio in range(1, 17):
        width = config.hidden_size * ratio
        width = (int(width * 2 / 3) + 7) // 8 * 8 if config.gated_mlp else width
        if width == config.mlp_dim:
            return ratio
    return None


def find_kind(config):
    """Finds the class of transformers that computes the same as a model of this configuration."""
    if type(config) is not ViTConfig:
        raise CheckpointError("layout='transformers' is for Vision Transformers. Leave it out for timm's names.")
    config = with_class_position(config)
    kinds = KINDS[bool(config.num_classes)]
    kind, far = min(((kind, unlike(kind, config)) for kind in kinds), key=lambda found: len(found[1]))
    sizes = {"image_size": config.own_size, "patch_size": config.patch_size}
    far |= {name: "square" for name, (height, width) in sizes.items() if height != width}
    if far:
        differences = "; ".join(f"{name} is {getattr(config, name)!r}, not {far[name]!r}" for name in far)
        raise CheckpointError(
            f"transformers has no class that computes this model. The nearest is {kind.name}: {differences}. Save it "
            "without layout='transformers'."
        )
    return kind


def make_config(model: Any) -> dict[str, Any]:
    """The contents of config.json."""
    kind, config = find_kind(model.config), model.config
    found = {
        "architectures": [kind.name],
        "model_type": kind.model_type,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "image_size": config.own_size[0],
        "patch_size": config.patch_size[0],
        "num_channels": config.num_channels,
        "layer_norm_eps": config.layer_norm_epsilon,
        "hidden_act": name_activation(config, ACTIVATIONS),
    }
    if kind.model_type == "siglip":
        tower = found | {"model_type": "siglip_vision_model", "vision_use_head": False}
        found = {"architectures": tower.pop("architectures"), "model_type": kind.model_type, "vision_config": tower}
    elif kind.layout is HF_TOWER:
        return found | ({"projection_dim": config.num_classes} if config.num_classes else {})
    if kind.layout is HF_DINOV3:
        biased = config.qkv_bias != "none"
        found |= {"query_bias": biased, "value_bias": biased, "key_bias": config.qkv_bias == "qkv"}
        found["use_gated_mlp"] = config.gated_mlp
    if kind.layout is HF_DINOV2:
        found |= {"mlp_ratio": find_ratio(config), "use_swiglu_ffn": config.gated_mlp}
        found["hidden_act"] = "gelu" if config.gated_mlp else found["hidden_act"]  # gated MLPs have SiLU anyway
    if kind.layout is HF_VIT:  # keras-hub needs the rates and the biases
        found |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "qkv_bias": True}
    if kind.layout is HF_VIT and config.representation_size:
        found["pooler_output_size"] = config.representation_size
    if config.layer_scale is not None:
        found |= {"layerscale_value": config.layer_scale, "num_register_tokens": config.num_registers}
    if config.num_classes:
        names = model.labels or [f"LABEL_{i}" for i in range(config.num_classes)]
        found |= {"id2label": {str(i): name for i, name in enumerate(names)}}
        found |= {"label2id": {name: i for i, name in enumerate(names)}}
    if config.probabilities == "sigmoid":
        found["problem_type"] = SEVERAL_CLASSES
    return found


def make_transformers_state(model: Any) -> tuple[ViTConfig, dict[str, np.ndarray]]:
    """(the model's configuration, its tensors under transformers' names, the older ones where these changed)."""
    kind, config = find_kind(model.config), with_class_position(model.config)
    which = config.gated_mlp if kind.layout is HF_DINOV2 else -1
    layout = {ours: names if isinstance(names, str) else names[which] for ours, names in kind.layout.items()}
    layout = {ours: name if ours == "head" else kind.prefix + name for ours, name in layout.items()}
    if kind.model_type == "siglip":
        layout["head"] = "classifier"
    arrays = official_arrays(model)
    if config != model.config:
        arrays[POSITIONS] = np.insert(arrays[POSITIONS], 0, 0, axis=1)
    state = to_torch(arrays, torch_names(VIT, layout), "transformers")
    if kind.layout is HF_TOWER:  # without the axes of length 1 for image and token
        name = f"{kind.prefix}embeddings.position_embedding.weight"
        state[name] = state[name][0]
    if kind.layout is HF_TOWER and config.has_class_token:
        name = f"{kind.prefix}embeddings.class_embedding"
        state[name] = state[name][0, 0]
    if kind.model_type == "deit":  # the distillation token, here a register, has its position added
        name = "deit.embeddings.position_embeddings"
        state[name] = np.insert(state[name], 1, 0, axis=1)
    if kind.layout in (HF_DINOV2, HF_DINOV3):  # the mask token of pre-training; it starts at zero
        shape = (1, config.hidden_size) if kind.layout is HF_DINOV2 else (1, 1, config.hidden_size)
        state[f"{kind.prefix}embeddings.mask_token"] = np.zeros(shape, "float32")
    if kind.layout is HF_DINOV3 and not config.num_registers:
        state["embeddings.register_tokens"] = np.zeros((1, 0, config.hidden_size), "float32")
    return config, pack(state)

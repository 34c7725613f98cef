"""Converts a model to timm: tensors under its names, and the config.json that its `create_model` reads."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.tensors import BIT, VIT
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.names import TIMM_BARE, TIMM_BIT, TIMM_EVA, TIMM_VIT, torch_names
from keras_vit.zoo.formats.torch.layouts import PACKED, pack, to_torch
from keras_vit.zoo.formats.torch.stated import name_activation
from keras_vit.zoo.formats.torch.timm_config import ACTIVATIONS, POOLS, read_architectures
from keras_vit.zoo.formats.variables import official_arrays

# The only values that timm's class VisionTransformer computes, {field: value}.
PLAIN = {
    "position_embedding": "1d",
    "position_embedding_at": "stem",
    "representation_size": None,
    "unit_vectors": False,
    "gated_mlp": False,
    "head_bias": True,
    "drop_remainder": False,
}
# {(epsilon, whether a norm precedes the blocks): a name of timm with both}
NAMES = {
    (1e-6, False): "vit_base_patch16_224",
    (1e-12, False): "vit_base_patch16_224",  # at 1e-6 instead: variances are about 1
    (1e-5, True): "vit_base_patch16_clip_224",
}
# {(units of the ResNet's stages, width of the tokens): name of a hybrid}
HYBRIDS = {
    ((), 192): "vit_tiny_r_s16_p8_224",
    ((2, 2, 2, 2), 384): "vit_small_r26_s32_224",
    ((3, 4, 9), 768): "vit_base_r50_s16_224",
    ((3, 4, 6, 3), 1024): "vit_large_r50_s32_224",
}
LAYERS: dict[tuple[int, ...], int] = {(3, 4, 6, 3): 50, (3, 4, 23, 3): 101, (3, 8, 36, 3): 152}


def require_timm_model(config):
    """Refuses models without names in timm: it has only 1-D position embeddings at the stem, or none."""
    if not config.in_torch:
        raise CheckpointError(
            "A .safetensors file is timm's, but timm has no axial models. Save it as .npz, .keras or .weights.h5."
        )
    kind, place = (getattr(config, name, None) for name in ("position_embedding", "position_embedding_at"))
    if kind in ("2d", "relative", "sincos2d") or place not in ("stem", None):
        raise CheckpointError(
            f".safetensors files have timm's names, but timm has no ViT with position_embedding={kind!r} and "
            f"position_embedding_at={place!r}. Save it as .npz, .keras or .weights.h5."
        )


def move_class_position(config, arrays):
    """(configuration, arrays) of an equal model in which its position is added to the class token.

    In timm, a class token has no position if there are registers.
    """
    if not (config.num_registers and config.has_class_token and config.class_token_position and POSITIONS in arrays):
        return config, arrays
    positions = arrays[POSITIONS]
    arrays = {**arrays, "cls": arrays["cls"] + positions[:, :1], POSITIONS: positions[:, 1:]}
    return replace(config, class_token_position=False), arrays


def make_vit_state(config, arrays):
    """Makes the state dict of a ViT or hybrid from official arrays {name: array}."""
    is_bare = config.backbone is not None and not config.backbone.depths
    rotary = config.position_embedding == "rope"
    is_eva = rotary or config.qkv_bias == "qv"  # timm's class Eva
    last_norm = {"Transformer/encoder_norm": "fc_norm" if config.norm_after_pool else "norm"}
    layout = TIMM_BARE if is_bare else TIMM_EVA if is_eva else TIMM_VIT
    state = to_torch(arrays, torch_names(VIT, layout | last_norm), "timm")
    if config.gated_mlp:
        state = {re.sub(r"^(blocks.*)\.fc1\.", r"\1.fc1_x.", name): values for name, values in state.items()}
    if not config.head_bias and config.num_classes:
        state["head.bias"] = np.zeros(config.num_classes, "float32")  # timm's heads always have a bias
    state = pack(state, PACKED[:-1] if rotary else PACKED)  # timm's DINOv3 does not pack gates
    return {re.sub(r"\.attn\.([qv])\.bias$", r".attn.\1_bias", name): values for name, values in state.items()}


def make_timm_state(model: Any) -> tuple[ViTConfig | ResNetConfig, dict[str, np.ndarray]]:
    """(timm's configuration of an equal model, its state dict); refuses a model that timm does not have."""
    config, arrays = model.config, official_arrays(model)
    require_timm_model(config)
    if not isinstance(config, ViTConfig):
        return config, pack(to_torch(arrays, torch_names(BIT, TIMM_BIT), "timm"))
    config, arrays = move_class_position(config, arrays)
    return config, make_vit_state(config, arrays)


def find_ratio(mlp_dim, hidden_size):
    """timm's mlp_ratio: it truncates the product, so the quotient alone is too small for some pairs."""
    ratios = (mlp_dim / hidden_size, (mlp_dim + 0.5) / hidden_size)
    return next(ratio for ratio in ratios if int(hidden_size * ratio) == mlp_dim)


def vit_arguments(config: ViTConfig) -> tuple[str, dict[str, Any]]:
    """(a name of timm, the arguments that make it a ViT of this configuration)."""
    far = [f"{name}={getattr(config, name)!r}" for name, value in PLAIN.items() if getattr(config, name) != value]
    pools = {classifier: pool for pool, classifier in POOLS.items()}
    if config.classifier not in pools:
        far.append(f"classifier={config.classifier!r}")
    if config.qkv_bias == "qv":
        far.append("qkv_bias='qv'")
    name = NAMES.get((config.layer_norm_epsilon, config.pre_norm))
    if config.backbone:
        name = HYBRIDS.get((config.backbone.depths, config.hidden_size))
    if config.backbone and name is None:
        far.append(f"a ResNet of {config.backbone.depths} before {config.hidden_size} channels")
    elif name is None or config.patch_bias == config.pre_norm:
        names = ("layer_norm_epsilon", "pre_norm", "patch_bias")
        far.append(", ".join(f"{name}={getattr(config, name)!r}" for name in names) + " together")
    if far or name is None:
        raise CheckpointError(f"timm's VisionTransformer has no arguments for {', '.join(far)}.")
    arguments = {
        "img_size": list(config.own_size),
        "patch_size": list(config.patch_size),
        "in_chans": config.num_channels,
        "num_classes": config.num_classes,
        "global_pool": pools[config.classifier],
        "embed_dim": config.hidden_size,
        "depth": config.num_layers,
        "num_heads": config.num_heads,
        "mlp_ratio": find_ratio(config.mlp_dim, config.hidden_size),
        "qkv_bias": config.qkv_bias == "qkv",
        "init_values": config.layer_scale,
        "class_token": config.has_class_token,
        "no_embed_class": not config.class_token_position or config.num_registers > 0,
        "reg_tokens": config.num_registers,
        "act_layer": name_activation(config, ACTIVATIONS),
    }
    if config.classifier == "gap":
        arguments["fc_norm"] = config.norm_after_pool
    return name, arguments


def name_resnet(config: ResNetConfig) -> str:
    """timm's name of a BiT ResNet."""
    name = f"resnetv2_{LAYERS.get(config.depths)}x{config.width_factor:g}_bit"
    if name not in read_architectures():
        raise CheckpointError(f"timm has no BiT ResNet of depths {config.depths} and width {config.width_factor:g}.")
    return name


def make_timm_config(model: Any) -> dict[str, Any]:
    """The contents of timm's config.json for a model.

    Raises:
        CheckpointError: if no name of timm makes such a model.
        PreprocessingError: if the model's preprocessing is unknown.
    """
    config, preprocessing = model.config, model.preprocessing
    if type(config) is ViTConfig:
        name, arguments = vit_arguments(config)
    elif type(config) is ResNetConfig:
        name, arguments = name_resnet(config), {"in_chans": config.num_channels, "num_classes": config.num_classes}
    else:
        raise CheckpointError("timm has no axial models.")
    height, width = preprocessing.image_size
    found = {
        "architecture": name,
        "num_classes": config.num_classes,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [config.num_channels, height, width],
            "fixed_input_size": type(config) is ViTConfig,
            "interpolation": preprocessing.interpolation,
            "crop_pct": preprocessing.crop or 1.0,
            "crop_mode": "squash" if preprocessing.crop is None else preprocessing.crop_mode,
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "num_classes": config.num_classes,
        },
    }
    return found | ({"label_names": list(model.labels)} if model.labels else {})

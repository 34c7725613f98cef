"""State dicts of timm and transformers: what family a file is of, its tensors under official names, and back."""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ViTConfig
from keras_vit.models.variants import SIZES
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.checkpoint import Fault, gather
from keras_vit.zoo.formats.official import prepend_zero
from keras_vit.zoo.formats.torch.names import (
    HF_BIT,
    HF_VIT,
    KINDS,
    TIMM_BIT,
    TIMM_STEM,
    TIMM_VIT,
    TO_OFFICIAL,
    TO_TORCH,
    convert_tensor,
    translate,
)

# Both libraries' convolutions and group norms.
RESNET_NUMERICS = {"group_norm_epsilon": 1e-5, "kernel_variance_epsilon": 1e-8}
TIMM_NUMERICS = {"gelu_approximate": False, "layer_norm_epsilon": 1e-6}
HF_NUMERICS = {"gelu_approximate": False, "layer_norm_epsilon": 1e-12}


class Layout(NamedTuple):
    """A family of state dicts: a tensor that tells it, its rows, who writes it, the numerics of its Transformer."""

    probe: str
    rows: tuple
    library: str
    numerics: dict


LAYOUTS = (
    Layout("patch_embed.backbone.conv.weight", TIMM_STEM + TIMM_VIT, "timm", TIMM_NUMERICS),
    Layout("patch_embed.proj.weight", TIMM_VIT, "timm", TIMM_NUMERICS),
    Layout("stem.conv.weight", TIMM_BIT, "timm", {}),
    Layout("embeddings.patch_embeddings.projection.weight", HF_VIT, "transformers", HF_NUMERICS),
    Layout("embedder.convolution.weight", HF_BIT, "transformers", {}),
)

# What only other models have, by the names of their tensors, in either library.
OTHER_MODELS = (
    (r"(^|\.)(dist_token|distillation_token)$", "has a distillation token"),
    (r"(^|\.)(reg_token|register_tokens)$", "has register tokens"),
    (r"(^|\.)(ls[12]|layer_scale[12])\.|(^|\.)(gamma_[12]|lambda_[12])$", "scales its branches (LayerScale)"),
    (r"(^|\.)(norm_pre|pre_layrnorm|pre_layernorm)\.", "normalizes before its first block (pre_norm)"),
    (r"(^|\.)(attn_pool|head\.probe)", "pools by attention (global_pool 'map')"),
    (r"(^|\.)fc_norm\.", "normalizes after pooling (fc_norm); models of the paper normalize before it"),
    (r"attn\.(q_norm|k_norm)\.", "normalizes queries and keys (qk_norm)"),
    (r"(attn|mlp)\.norm\.|patch_embed\.norm\.", "has norms inside attention, MLP or embedding"),
    (r"rel_pos|relative_position", "has relative positions"),
    (r"(^|\.|_)(rope|freqs|inv_freq)", "has rotary positions"),
    (r"mlp\.(fc1_g|fc1_x|gate|w1|w2|w3|w12)\b", "has a gated MLP"),
    (
        r"(^|\.)(decoder|mask_token|embeddings\.mask_token)",
        "fills in masked patches (mask token or decoder)",
    ),
    (r"\.running_mean$", "has batch norms"),
    (r"(^|\.)head_dist\.|distillation_classifier", "has a distillation head"),
    (r"attn\.(q_bias|v_bias)$", "has biases of queries and values alone"),
)


def strip_model_prefix(tensors):
    """The tensors without the prefix of transformers' classifiers."""
    return gather((re.sub(r"^(vit|bit)\.", "", name), tensor) for name, tensor in tensors.items())


def find_layout(tensors):
    """The `Layout` of a state dict.

    Raises:
        Fault: for a state dict of another model.
    """
    require_ours(tensors)
    for layout in LAYOUTS:
        if layout.probe in tensors:
            return layout
    raise Fault(
        "is not a state dict of a ViT, hybrid or BiT by timm or transformers. "
        f"It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
    )


def require_ours(tensors):
    """Refuses models that compute something else than the paper's, by the tensors' names."""
    for pattern, what in OTHER_MODELS:
        name = next((name for name in tensors if re.search(pattern, name)), None)
        if name:
            raise Fault(f"holds {name}: its model {what}. This package cannot compute that model.")
    for name in tensors:
        weight = re.fullmatch(r"(.*\.(qkv|query|q_proj|to_q))\.weight", name)
        if weight and f"{weight[1]}.bias" not in tensors:
            raise Fault(
                f"holds {name} but not {weight[1]}.bias: its queries, keys or values have no bias "
                "(qkv_bias=False), while those of the paper's models have."
            )


def sizes_of(tensors):
    """{"hidden_size": that of a ViT's position embeddings}, {} where there are none."""
    names = ("pos_embed", "embeddings.position_embeddings")
    positions = next((tensors[name] for name in names if name in tensors), None)
    return {"hidden_size": positions.shape[-1]} if positions and positions.shape else {}


def heads_by_size(tensors):
    """Table 1's heads for a Ti, S, B, L or H Transformer of that width, depth and MLP; None for any other."""
    blocks = [re.search(r"(?:blocks|layers|layer)\.(\d+)\.", name) for name in tensors]
    depth = len({match[1] for match in blocks if match})
    kernels = [
        t.shape for name, t in tensors.items() if re.search(r"\.0\.(mlp\.fc1|intermediate\.dense)\.weight$", name)
    ]
    for name, (hidden_size, num_layers, num_heads, mlp_dim) in SIZES.items():
        if name != "Test" and num_layers == depth and (mlp_dim, hidden_size) in kernels:
            return num_heads
    return None


def to_official(tensors, layout, num_heads, patch_positions=False):
    """The tensors of a torch state dict under official names.

    `patch_positions`: the class token has no position embedding, as in timm's no_embed_class; it gets zeros.

    Raises:
        Fault: for tensors that do not fit their kind, or a ViT whose number of heads is not given.
    """
    tensors = split_qkv(tensors)
    if layout.numerics and num_heads is None:
        strange = next((name for name in tensors if official_name(name, layout.rows)[0] == name), None)
        if strange:
            raise Fault(f"holds {strange}, which no ViT or hybrid of {layout.library} has.")
        raise Fault("does not say how many attention heads its model has. Pass num_heads=.")
    result = {}
    for name, tensor in tensors.items():
        official, kind = official_name(name, layout.rows)
        if official in result:
            raise Fault(f"holds {official} twice, once as {tensor.source}.")
        result[official] = convert_tensor(tensor, kind, num_heads)
    return with_zero_position(result) if patch_positions and "cls" in result else result


def with_zero_position(tensors):
    positions = tensors.get(POSITIONS)
    if positions is None or len(positions.shape) != 3:
        return tensors
    return {**tensors, POSITIONS: prepend_zero(positions)}


def official_name(name, rows):
    """The official name and the kind of a tensor; a name that no row has stays, to be reported as left over."""
    for torch, official, kind in rows:
        renamed = translate(name, torch, official, TO_OFFICIAL)
        if renamed is not None:
            return renamed, kind
    return name, "same"


def split_qkv(tensors):
    """timm keeps query, key and value in one tensor (3 d, ...): as three."""
    result = {}
    for name, tensor in tensors.items():
        head, fused, tail = name.partition(".attn.qkv.")
        if not fused or not tensor.shape or tensor.shape[0] % 3:
            result[name] = tensor
            continue
        d = tensor.shape[0] // 3
        tensor = tensor.share(3)
        for third, letter in enumerate("qkv"):
            result[f"{head}.attn.{letter}.{tail}"] = tensor.map(
                (d, *tensor.shape[1:]), lambda values, third=third, d=d: values[third * d : (third + 1) * d]
            )
    return result


def fuse_qkv(state):
    """The inverse of `split_qkv`, of arrays."""
    result = {}
    for name, values in state.items():
        head, split, tail = name.partition(".attn.q.")
        if split:
            thirds = [values, *(state[f"{head}.attn.{letter}.{tail}"] for letter in "kv")]
            result[f"{head}.attn.qkv.{tail}"] = np.concatenate(thirds)
        elif not re.search(r"\.attn\.[kv]\.", name):
            result[name] = values
    return {name: np.ascontiguousarray(values) for name, values in result.items()}


def with_numerics(config, numerics):
    """The configuration as that library computes: its GELU, its epsilons."""
    if not isinstance(config, ViTConfig):
        return replace(config, **RESNET_NUMERICS)
    if config.backbone:
        numerics = {**numerics, "backbone": replace(config.backbone, **RESNET_NUMERICS, kernel_std_epsilon=0.0)}
    return replace(config, **numerics)


def timm_state(config, arrays):
    """Official arrays {name: array} as timm's state dict of a model of that configuration.

    Raises:
        CheckpointError: for an axial model.
    """
    if config.checkpoint_names not in ("vit", "bit"):
        raise CheckpointError(
            "A .safetensors file is timm's, and timm has no axial models. Save it as .npz, .keras or .weights.h5."
        )
    bare_stem = isinstance(config, ViTConfig) and config.backbone and not config.backbone.depths
    rows = TIMM_VIT if isinstance(config, ViTConfig) else TIMM_BIT
    rows = TIMM_STEM + rows if bare_stem else rows
    state = {}
    for name, values in arrays.items():
        torch, kind = next(
            (renamed, kind) for torch, official, kind in rows if (renamed := translate(name, official, torch, TO_TORCH))
        )
        state[torch] = KINDS[kind].restore(values)
    return fuse_qkv(state)

"""State dicts of timm and transformers: what family a file is of, its tensors under official names, and back."""

import functools
import re
import string
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ViTConfig
from keras_vit.models.variants import SIZES
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.checkpoint import Fault, Tensor, gather
from keras_vit.zoo.formats.names import AXES, BIT, HF_BIT, HF_VIT, TIMM_BARE, TIMM_BIT, TIMM_VIT, VIT, torch_names
from keras_vit.zoo.formats.official import prepend_zero

# What is added to the numbers in a name. Stages and units of a ResNet count from 0 in torch, from 1 in official names;
# blocks of the encoder count from 0 in both.
TO_OFFICIAL = {"i": 0, "b": 1, "u": 1}
TO_TORCH = {"i": 0, "b": -1, "u": -1}


@functools.cache
def compile_template(template):
    """A regular expression for a template's names, with a group for each placeholder.

    >>> compile_template("block{b}/unit{u:02d}").pattern
    'block(?P<b>[0-9]{1,9})/unit(?P<u>[0-9]{1,9})'
    """
    parts = string.Formatter().parse(template)  # (text, placeholder after it or None, its format, its conversion)
    return re.compile("".join(re.escape(text) + (f"(?P<{key}>[0-9]{{1,9}})" if key else "") for text, key, *_ in parts))


def translate(name, source, target, shift):
    """`name`, if it is one of template `source`'s, by template `target`; None if not.

    >>> translate("stages.0.blocks.9.conv2", "stages.{b}.blocks.{u}.conv2", "block{b}/unit{u:02d}/b", TO_OFFICIAL)
    'block1/unit10/b'
    """
    match = compile_template(source).fullmatch(name)
    if match is None:
        return None
    return target.format(**{key: int(number) + shift[key] for key, number in match.groupdict().items()})


def convert_tensor(tensor: Tensor, kind: str, heads: Any) -> Tensor:
    """A tensor of torch in the official shape and order of axes."""
    axes = AXES[kind]
    if axes.ranks and len(tensor.shape) not in axes.ranks:
        expected = " or ".join(map(str, axes.ranks))
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}; expected {expected} axes.")
    if "heads" in kind and tensor.shape[-1 if kind == "out of heads" else 0] % heads:
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}, which {heads} heads cannot divide.")
    shape = axes.of_torch(tensor.shape, heads)
    return tensor.map(shape, lambda values: axes.permute(values).reshape(shape))


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
    Layout("patch_embed.backbone.conv.weight", torch_names(VIT, TIMM_BARE), "timm", TIMM_NUMERICS),
    Layout("patch_embed.proj.weight", torch_names(VIT, TIMM_VIT), "timm", TIMM_NUMERICS),
    Layout("stem.conv.weight", torch_names(BIT, TIMM_BIT), "timm", {}),
    Layout("embeddings.patch_embeddings.projection.weight", torch_names(VIT, HF_VIT), "transformers", HF_NUMERICS),
    Layout("embedder.convolution.weight", torch_names(BIT, HF_BIT), "transformers", {}),
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


def official_name(name, rows):
    """The official name and the kind of a tensor; a name that no row has stays, to be reported as left over."""
    for torch, official, kind in rows:
        renamed = translate(name, torch, official, TO_OFFICIAL)
        if renamed is not None:
            return renamed, kind
    return name, "same"


def require_ours(tensors, rows):
    """Refuses models that compute something else than the paper's, by the names of tensors that no row has."""
    for pattern, what in OTHER_MODELS:
        found = (name for name in tensors if re.search(pattern, name))
        name = next((name for name in found if official_name(name, rows)[0] == name), None)
        if name:
            raise Fault(f"holds {name}: its model {what}. This package cannot compute that model.")
    for name in tensors:
        weight = re.fullmatch(r"(.*\.(qkv|query|q_proj|to_q))\.weight", name)
        if weight and f"{weight[1]}.bias" not in tensors:
            raise Fault(
                f"holds {name} but not {weight[1]}.bias: its queries, keys or values have no bias "
                "(qkv_bias=False), while those of the paper's models have."
            )


def find_layout(tensors):
    """The `Layout` of a state dict.

    Raises:
        Fault: for a state dict of another model.
    """
    layout = next((layout for layout in LAYOUTS if layout.probe in tensors), None)
    require_ours(tensors, layout.rows if layout else ())
    if layout:
        return layout
    raise Fault(
        "is not a state dict of a ViT, hybrid or BiT by timm or transformers. "
        f"It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
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
    positions = result.get(POSITIONS)
    if patch_positions and "cls" in result and positions is not None and len(positions.shape) == 3:
        result[POSITIONS] = prepend_zero(positions)
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
    if not config.in_torch:
        raise CheckpointError(
            "A .safetensors file is timm's, and timm has no axial models. Save it as .npz, .keras or .weights.h5."
        )
    rows = torch_names(BIT, TIMM_BIT)
    if isinstance(config, ViTConfig):
        is_bare = config.backbone is not None and not config.backbone.depths
        rows = torch_names(VIT, TIMM_BARE if is_bare else TIMM_VIT)
    state = {}
    for name, values in arrays.items():
        torch, kind = next(
            (renamed, kind) for torch, official, kind in rows if (renamed := translate(name, official, torch, TO_TORCH))
        )
        state[torch] = AXES[kind].restore(values)
    return fuse_qkv(state)

"""State dicts of torch: finds a file's family, and renames its tensors to official names and back."""

import functools
import operator
import re
import string
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ViTConfig
from keras_vit.models.tensors import BIT, VIT
from keras_vit.models.variants import SIZES
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.checkpoint import Fault, Tensor, gather
from keras_vit.zoo.formats.names import (
    AXES,
    HF_BIT,
    HF_DINOV2,
    HF_DINOV3,
    HF_TOWER,
    HF_VIT,
    META,
    TIMM_BARE,
    TIMM_BIT,
    TIMM_EVA,
    TIMM_VIT,
    torch_names,
)
from keras_vit.zoo.formats.torch.stated import (
    Stated,
    nothing_stated,
    transformers_bit,
    transformers_dinov2,
    transformers_dinov3,
    transformers_tower,
    transformers_vit,
)
from keras_vit.zoo.formats.torch.timm_config import timm_bit, timm_eva, timm_vit

# Added to the numbers in a name. Stages and units of a ResNet count from 0 in torch, from 1 in official names;
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
    """Renames `name` from template `source` to template `target`; None if it does not fit `source`.

    >>> translate("stages.0.blocks.9.conv2", "stages.{b}.blocks.{u}.conv2", "block{b}/unit{u:02d}/b", TO_OFFICIAL)
    'block1/unit10/b'
    """
    match = compile_template(source).fullmatch(name)
    if match is None:
        return None
    return target.format(**{key: int(number) + shift[key] for key, number in match.groupdict().items()})


def convert_tensor(tensor: Tensor, kind: str, heads: Any) -> Tensor:
    """Brings a tensor of torch to the official shape and order of axes."""
    axes = AXES[kind]
    if axes.ranks and len(tensor.shape) not in axes.ranks:
        expected = " or ".join(map(str, axes.ranks))
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}; expected {expected} axes.")
    if "heads" in kind and tensor.shape[-1 if kind == "out of heads" else 0] % heads:
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}, which {heads} heads do not divide.")
    shape = axes.of_torch(tensor.shape, heads)
    return tensor.map(shape, lambda values: axes.permute(values).reshape(shape))


# Both libraries' convolutions and group norms.
RESNET_NUMERICS: dict[str, Any] = {"group_norm_epsilon": 1e-5, "kernel_variance_epsilon": 1e-8}
TIMM_NUMERICS = {"gelu_approximate": False, "layer_norm_epsilon": 1e-6, "position_interpolation": "bicubic"}
META_NUMERICS = TIMM_NUMERICS | {"position_interpolation": "dinov2"}
# transformers resizes by PyTorch's bicubic without antialiasing, except DINOv2 with registers.
HF_NUMERICS = {"gelu_approximate": False, "layer_norm_epsilon": 1e-12, "position_interpolation": "bicubic-plain"}
CLIP_NUMERICS = HF_NUMERICS | {"layer_norm_epsilon": 1e-5}
SIGLIP_NUMERICS = HF_NUMERICS | {"layer_norm_epsilon": 1e-6, "gelu_approximate": True}
DINOV2_NUMERICS = HF_NUMERICS | {"layer_norm_epsilon": 1e-6}
DINOV3_NUMERICS = {"gelu_approximate": False, "layer_norm_epsilon": 1e-5, "position_embedding": "rope"}
AVERAGED = {"classifier": "gap"}  # the default of timm's class Eva, which has a class token, too
# The text tower of a two-tower model; integers in old files.
TEXT = r"text_model\..*|text_projection\.weight|logit_(scale|bias)|(.*\.)?position_ids"
MASK = r"(embeddings\.)?mask_token"  # of pre-training
# Meta's masks are 0 for the biases of keys.
META_TRAINING = rf"{MASK}|rope_embed\.periods|(local_cls_norm|projectors)\..*"
META_MASKED = rf"{META_TRAINING}|.*\.attn\.qkv\.bias_mask|.*\.attn\.k\.bias"


class Layout(NamedTuple):
    """A family of state dicts."""

    probes: tuple[str, ...]  # tensors that identify it; all must be there
    layout: dict  # {official name: name there}
    library: str  # that writes it
    numerics: dict  # fields of a Transformer's configuration that its tensors cannot show; {} for a ResNet
    states: Callable[[dict, dict], Stated]  # from config.json and the tensors
    ignored: str = "(?!)"  # pattern of the names that are not read

    @property
    def rows(self):
        """(torch's template, official template, kind of axes) of each tensor."""
        return torch_names(VIT if self.numerics else BIT, self.layout)


STEM, HF_STEM = "patch_embed.proj.weight", "embeddings.patch_embeddings.projection.weight"
TOWER_STEM = "embeddings.patch_embedding.weight"
# The first layout whose probes are all there counts.
LAYOUTS = (
    Layout(("patch_embed.backbone.conv.weight",), TIMM_BARE, "timm", TIMM_NUMERICS, timm_vit),
    Layout((STEM, "storage_tokens"), META, "Meta", DINOV3_NUMERICS, nothing_stated, META_MASKED),
    Layout(
        (STEM, "register_tokens"),
        *(META, "Meta", META_NUMERICS | {"position_interpolation": "bicubic"}, nothing_stated, META_TRAINING),
    ),
    Layout((STEM, "mask_token", "blocks.0.ls1.gamma"), META, "Meta", META_NUMERICS, nothing_stated, META_TRAINING),
    Layout((STEM, "reg_token", "blocks.0.gamma_1"), TIMM_VIT, "timm", DINOV3_NUMERICS | AVERAGED, timm_eva),
    Layout(
        (STEM, "blocks.0.attn.q_bias"),
        *(TIMM_EVA, "timm", TIMM_NUMERICS | AVERAGED | {"qkv_bias": "qv"}, timm_eva),
    ),
    Layout((STEM, "reg_token"), TIMM_VIT, "timm", TIMM_NUMERICS | {"class_token_position": False}, timm_vit),
    Layout((STEM, "norm_pre.weight"), TIMM_VIT, "timm", TIMM_NUMERICS | {"layer_norm_epsilon": 1e-5}, timm_vit),
    Layout((STEM,), TIMM_VIT, "timm", TIMM_NUMERICS, timm_vit),
    Layout(("stem.conv.weight",), TIMM_BIT, "timm", {}, timm_bit),
    Layout(
        (HF_STEM, "encoder.layer.0.layer_scale1.lambda1", "embeddings.register_tokens"),
        *(HF_DINOV2, "transformers", DINOV2_NUMERICS | {"position_interpolation": "bicubic"}),
        *(transformers_dinov2, MASK),
    ),
    Layout(
        (HF_STEM, "encoder.layer.0.layer_scale1.lambda1"),
        *(HF_DINOV2, "transformers", DINOV2_NUMERICS, transformers_dinov2, MASK),
    ),
    Layout((HF_STEM,), HF_VIT, "transformers", HF_NUMERICS, transformers_vit),
    Layout(
        ("embeddings.patch_embeddings.weight", "layer.0.layer_scale1.lambda1"),
        *(HF_DINOV3, "transformers", DINOV3_NUMERICS, transformers_dinov3, MASK),
    ),
    Layout(
        (TOWER_STEM, "classifier.weight"),
        *(HF_TOWER | {"head": "classifier"}, "transformers", SIGLIP_NUMERICS | AVERAGED),
        *(transformers_tower, r"head\..*"),
    ),
    Layout((TOWER_STEM, "pre_layrnorm.weight"), HF_TOWER, "transformers", CLIP_NUMERICS, transformers_tower, TEXT),
    Layout((TOWER_STEM, "head.probe"), HF_TOWER, "transformers", SIGLIP_NUMERICS, transformers_tower, TEXT),
    Layout(("embedder.convolution.weight",), HF_BIT, "transformers", {}, transformers_bit),
)

# Features that only other models have, by the names of their tensors, in either library.
OTHER_MODELS = (
    (r"(^|\.)(dist_token|distillation_token)$", "has a distillation token"),
    (r"(^|\.)(lambda_[12])$", "scales its branches (LayerScale), as BEiT does, whose positions are relative"),
    (r"attn\.(q_norm|k_norm)\.", "normalizes queries and keys (qk_norm)"),
    (r"(attn|mlp)\.norm\.|patch_embed\.norm\.", "has norms inside attention, MLP or embedding"),
    (r"rel_pos|relative_position", "has relative positions"),
    (r"(^|\.|_)(rope|freqs|inv_freq)", "has rotary positions"),
    (r"(^|\.)(decoder|mask_token|embeddings\.mask_token)", "fills in masked patches (mask token or decoder)"),
    (r"\.running_mean$", "has batch norms"),
    (r"(^|\.)head_dist\.|distillation_classifier", "has a distillation head"),
)


def strip_model_prefix(tensors):
    """The tensors without the prefix of transformers' classifiers."""
    prefix = r"^(vit|deit|ijepa|bit|vision_model|dinov2|dinov2_with_registers)\."
    none = {name for name, tensor in tensors.items() if name.endswith("register_tokens") and 0 in tensor.shape}
    return gather((re.sub(prefix, "", name), tensor) for name, tensor in tensors.items() if name not in none)


def official_name(name, rows):
    """The official name and the kind of a tensor; an unknown name stays, to be reported as left over."""
    for torch, official, kind in rows:
        renamed = translate(name, torch, official, TO_OFFICIAL)
        if renamed is not None:
            return renamed, kind
    return name, "same"


def require_ours(tensors, rows, may_lack_biases=False):
    """Refuses other models with such tensors, by the names of tensors that no row has."""
    for pattern, what in OTHER_MODELS:
        found = (name for name in tensors if re.search(pattern, name))
        name = next((name for name in found if official_name(name, rows)[0] == name), None)
        if name:
            raise Fault(f"holds {name}: its model {what}. This package cannot compute such a model.")
    for name in () if may_lack_biases else tensors:
        weight = re.fullmatch(r"(.*\.(attn\.[qk]|query|key|[qk]_proj|to_q))\.weight", name)
        if weight and f"{weight[1]}.bias" not in tensors:
            source = tensors[name].source
            raise Fault(
                f"holds {source} but not {source.removesuffix('weight')}bias: its queries, keys or values have no bias "
                "(qkv_bias=False), while those of the paper's models have."
            )


GATES = re.compile(r"\.mlp\.(fc1_g|w1|weights_gate|gate_proj)\.")


def complete_activation(tensors, fields):
    """Adds the activation to the fields, unless it is stated: SiLU for a gated MLP, otherwise GELU."""
    if "activation" in fields:
        return fields
    if "norm_pre.weight" in tensors or "pre_layrnorm.weight" in tensors:
        raise Fault(
            "does not say its activation: CLIP's image towers have QuickGELU (OpenAI's, DFN's, MetaCLIP's) or exact "
            "GELU (OpenCLIP's). Put its config.json beside it, or pass activation='quick_gelu' or activation='gelu'."
        )
    return {**fields, "activation": "silu" if any(map(GATES.search, tensors)) else "gelu"}


# Tensors that hold several of equal size: the beginning of their names, its ending, and the names of the parts.
PACKED = (
    (r".*attn", "qkv.", "qkv"),
    (r"attn_pool", "kv.", "kv"),
    (r".*head\.attention", "in_proj_", "qkv"),
    (r".*mlp", "w12.", ("w1", "w2")),
    (r".*mlp", "weights_in.", ("weights_gate", "weights_up")),
    (r"blocks\.\d+\.mlp", "fc1.", ("fc1_g", "fc1_x")),
)


def is_packed(name, tensors):
    """Whether timm's fc1 holds gate and value: it is then twice as wide as the input of fc2, unlike in a plain MLP."""
    first, _, _ = name.partition(".fc1.")
    both = [tensors.get(f"{first}.{layer}.weight") for layer in ("fc1", "fc2")]
    return all(t is not None and len(t.shape) == 2 for t in both) and both[0].shape[0] == 2 * both[1].shape[1]


def split_packed(tensors):
    """Splits tensors that hold several, such as timm's query, key and value (3 d, ...)."""
    result = {}
    for name, tensor in tensors.items():
        name = re.sub(r"\.attn\.([qv])_bias$", r".attn.\1.bias", name)
        rows = ((re.fullmatch(rf"({start})\.{whole}(weight|bias)", name), parts) for start, whole, parts in PACKED)
        match, parts = next((row for row in rows if row[0]), (None, ""))
        plain = ".fc1." in name and not is_packed(name, tensors)
        if not match or not tensor.shape or tensor.shape[0] % len(parts) or plain:
            result[name] = tensor
            continue
        d = tensor.shape[0] // len(parts)
        tensor = tensor.share(len(parts))
        for i, part in enumerate(parts):
            its_rows = operator.itemgetter(slice(i * d, (i + 1) * d))
            result[f"{match[1]}.{part}.{match[2]}"] = tensor.with_length(0, d, its_rows)
    return result


def pack(state, rows=PACKED):
    """The inverse, for arrays {name: array}: joins the parts of a tensor if all are there."""
    for start, whole, parts in rows:
        for match in filter(None, [re.fullmatch(rf"({start})\.{parts[0]}\.(weight|bias)", name) for name in state]):
            names = [f"{match[1]}.{part}.{match[2]}" for part in parts]
            if all(name in state for name in names):
                state[f"{match[1]}.{whole}{match[2]}"] = np.concatenate([state.pop(name) for name in names])
    return {name: np.ascontiguousarray(values) for name, values in state.items()}


def find_layout(tensors):
    """(the `Layout` of a state dict, its tensors, with packed ones split and without those that are not read)."""
    layout = next((layout for layout in LAYOUTS if tensors.keys() >= set(layout.probes)), None)
    if layout:
        apart = split_packed(tensors)
        return layout, {name: tensor for name, tensor in apart.items() if not re.fullmatch(layout.ignored, name)}
    require_ours(tensors, ())
    if TOWER_STEM in tensors:
        raise Fault(
            "is of a SigLIP without the head that makes one vector of its tokens (vision_use_head=False). Take a file "
            "with the head."
        )
    raise Fault(
        "is not a state dict of a ViT, hybrid or BiT by timm or transformers. "
        f"It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
    )


def sizes_of(tensors):
    """{"hidden_size": width of a ViT's position embeddings}, {} if there are none."""
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


def fold_register_positions(tensors):
    """Adds timm's position embeddings of registers to the registers themselves, in official tensors."""
    registers, positions, first = tensors["registers"], tensors[POSITIONS].share(2), int("cls" in tensors)
    count, (_, length, d) = registers.shape[1], positions.shape
    if length <= first + count or registers.shape[2] != d:
        raise Fault(f"holds {count} registers and {length} position embeddings that do not fit each other.")
    end = first + count
    rest = positions.with_length(1, length - count, lambda values: np.delete(values, slice(first, end), axis=1))
    own = replace(registers, read=lambda: registers.read() + positions.read()[:, first:end])
    return {**tensors, "registers": own, POSITIONS: rest}


def to_official(tensors, layout, num_heads):
    """Renames the tensors of a torch state dict, from `find_layout`, to official names."""
    rows = layout.rows
    if layout.numerics and num_heads is None:
        strange = next((name for name in tensors if official_name(name, rows)[0] == name), None)
        if strange:
            raise Fault(f"holds {strange}, which no ViT or hybrid of {layout.library} has.")
        raise Fault("does not say how many attention heads its model has. Pass num_heads=.")
    result = {}
    for name, tensor in tensors.items():
        official, kind = official_name(name, rows)
        if official in result:
            raise Fault(f"holds {official} twice, once as {tensor.source}.")
        result[official] = convert_tensor(tensor, kind, num_heads)
    return result


def with_numerics(config):
    """Adds the library's numerics to the configuration of a ResNet."""
    if not isinstance(config, ViTConfig):
        return replace(config, **RESNET_NUMERICS)
    if not config.backbone:
        return config
    return replace(config, backbone=replace(config.backbone, **RESNET_NUMERICS, kernel_std_epsilon=0.0))


def to_torch(arrays, rows, library):
    """Renames and reshapes official arrays {name: array} to torch's, by `rows` from `torch_names`."""
    state = {}
    for name, values in arrays.items():
        names = ((translate(name, official, torch, TO_TORCH), kind) for torch, official, kind in rows)
        torch, kind = next((row for row in names if row[0]), (None, ""))
        if torch is None:
            raise CheckpointError(
                f"A .safetensors file has names of {library}, but no model of {library} has {name}. Save it as .npz, "
                ".keras or .weights.h5."
            )
        state[torch] = AXES[kind].restore(values)
    return state

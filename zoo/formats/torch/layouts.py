"""timm's and transformers' state dicts: their names and shapes as rows, to the official ones and back."""

import functools
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ViTConfig
from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.official.layouts import prepend_zero
from keras_vit.zoo.formats.tensors import gathered

BLOCK = "Transformer/encoderblock_{i}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"


def dense(torch, official, kind="dense", bias="same"):
    return (f"{torch}.weight", f"{official}/kernel", kind), (f"{torch}.bias", f"{official}/bias", bias)


def norm(torch, official, scale="scale", shift="bias"):
    return (f"{torch}.weight", f"{official}/{scale}", "same"), (f"{torch}.bias", f"{official}/{shift}", "same")


def conv(torch, official):
    return ((f"{torch}.weight", f"{official}/kernel", "conv"),)


def bit_norm(torch, official):
    return norm(torch, official, "gamma", "beta")


def attention(query, key, value, out):
    rows = [
        dense(name, f"{ATTENTION}/{ours}", "into heads", "heads")
        for name, ours in zip((query, key, value), ("query", "key", "value"), strict=True)
    ]
    return *rows[0], *rows[1], *rows[2], *dense(out, f"{ATTENTION}/out", "out of heads")


def backbone(stem, unit):
    """Rows of a hybrid's ResNet: `stem` is (convolution, norm), `unit` the prefix of a unit."""
    ours = "block{b}/unit{u}"
    rows = [*conv(stem[0], "conv_root"), *norm(stem[1], "gn_root")]
    for i in "123":
        rows += [*conv(f"{unit}.conv{i}", f"{ours}/conv{i}"), *norm(f"{unit}.norm{i}", f"{ours}/gn{i}")]
    return (
        *rows,
        *conv(f"{unit}.downsample.conv", f"{ours}/conv_proj"),
        *norm(f"{unit}.downsample.norm", f"{ours}/gn_proj"),
    )


def resnet(stem, unit, last, head):
    """Rows of BiT: `head` is the prefix of the last layer and the kind of its kernel."""
    ours = "resnet/block{b}/unit{u:02d}"
    rows = [*conv(stem, "resnet/root_block/standardized_conv2d")]
    for i, letter in enumerate("abc", start=1):
        rows += conv(f"{unit}.conv{i}", f"{ours}/{letter}/standardized_conv2d")
        rows += bit_norm(f"{unit}.norm{i}", f"{ours}/{letter}/group_norm")
    rows += conv(f"{unit}.downsample.conv", f"{ours}/a/proj/standardized_conv2d")
    return *rows, *bit_norm(last, "resnet/group_norm"), *dense(head[0], "resnet/head/conv2d", head[1])


TIMM_VIT = (
    ("cls_token", "cls", "same"),
    ("pos_embed", POSITIONS, "same"),
    *dense("patch_embed.proj", "embedding", "conv"),
    *norm("blocks.{i}.norm1", f"{BLOCK}/LayerNorm_0"),
    *attention(*(f"blocks.{{i}}.attn.{name}" for name in ("q", "k", "v", "proj"))),
    *norm("blocks.{i}.norm2", f"{BLOCK}/LayerNorm_2"),
    *dense("blocks.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense("blocks.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm("norm", "Transformer/encoder_norm"),
    *dense("pre_logits.fc", "pre_logits"),
    *dense("head", "head"),
    *backbone(
        ("patch_embed.backbone.stem.conv", "patch_embed.backbone.stem.norm"),
        "patch_embed.backbone.stages.{b}.blocks.{u}",
    ),
)
# The bare stem of R+ViT-Ti/16 goes by shorter names.
TIMM_STEM = (*conv("patch_embed.backbone.conv", "conv_root"), *norm("patch_embed.backbone.norm", "gn_root"))
TIMM_BIT = resnet("stem.conv", "stages.{b}.blocks.{u}", "norm", ("head.fc", "conv"))

BIT_IN_VIT = "embeddings.patch_embeddings.backbone.bit"
# transformers renamed the blocks in its version 5.
HF_VIT = (
    ("embeddings.cls_token", "cls", "same"),
    ("embeddings.position_embeddings", POSITIONS, "same"),
    *dense("embeddings.patch_embeddings.projection", "embedding", "conv"),
    *norm("layers.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention(*(f"layers.{{i}}.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj"))),
    *norm("layers.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense("layers.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense("layers.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm("encoder.layer.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention(
        *(f"encoder.layer.{{i}}.attention.attention.{name}" for name in ("query", "key", "value")),
        "encoder.layer.{i}.attention.output.dense",
    ),
    *norm("encoder.layer.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense("encoder.layer.{i}.intermediate.dense", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense("encoder.layer.{i}.output.dense", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm("layernorm", "Transformer/encoder_norm"),
    *dense("pooler.dense", "pre_logits"),
    *dense("classifier", "head"),
    *backbone(
        (f"{BIT_IN_VIT}.embedder.convolution", f"{BIT_IN_VIT}.embedder.norm"),
        BIT_IN_VIT + ".encoder.stages.{b}.layers.{u}",
    ),
)
HF_BIT = resnet("embedder.convolution", "encoder.stages.{b}.layers.{u}", "norm", ("classifier.1", "flat conv"))

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

# Parts of other models, by the names of their tensors, in either library.
FOREIGN = (
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


def shape_from_torch(kind, shape, heads):
    """The official shape of a tensor of that kind and torch shape."""
    if kind == "heads":
        return heads, shape[0] // heads
    if kind == "into heads":
        return shape[1], heads, shape[0] // heads
    if kind == "out of heads":
        return heads, shape[1] // heads, shape[0]
    return {
        "same": lambda: shape,
        "dense": lambda: shape[::-1],
        "conv": lambda: (shape[2], shape[3], shape[1], shape[0]),
        "flat conv": lambda: (1, 1, shape[1], shape[0]),
    }[kind]()


def from_torch(kind, values, shape):
    if kind == "conv":
        return values.transpose(2, 3, 1, 0)
    return (values if kind in ("same", "heads") else values.T).reshape(shape)


def to_torch(kind, values):
    """The inverse of `from_torch`: official values in torch's shape."""
    if kind == "conv":
        return values.transpose(3, 2, 0, 1)
    if kind == "into heads":
        return values.reshape(len(values), -1).T
    if kind == "out of heads":
        return values.reshape(-1, values.shape[-1]).T
    if kind == "dense":
        return values.T
    return values.reshape(-1) if kind == "heads" else values


RANKS = {"conv": 4, "flat conv": 2, "dense": 2, "into heads": 2, "out of heads": 2, "heads": 1}
# Stages and units count from 0 there, from 1 in the official names; blocks of the encoder from 0 in both.
FIRST = {"i": 0, "b": 1, "u": 1}


@functools.cache
def pattern(template):
    """A regular expression for a template's names, with a group per placeholder."""
    literal = re.escape(re.sub(r"\{(\w)[^}]*\}", r"<\1>", template))
    return re.compile(re.sub(r"<(\w)>", r"(?P<\1>[0-9]{1,9})", literal))


def renamed(name, source, target, step):
    """`name`, if it is one of template `source`'s, by template `target`; counts move by `step` times `FIRST`."""
    match = pattern(source).fullmatch(name)
    if match is None:
        return None
    return target.format(**{key: int(number) + step * FIRST[key] for key, number in match.groupdict().items()})


def stripped(path, tensors):
    """The tensors without the prefix of transformers' classifiers."""
    return gathered(path, ((re.sub(r"^(vit|bit)\.", "", name), tensor) for name, tensor in tensors.items()))


def layout_of(path, tensors):
    """The `Layout` of a state dict.

    Raises:
        CheckpointError: for a state dict of another model.
    """
    require_ours(path, tensors)
    for layout in LAYOUTS:
        if layout.probe in tensors:
            return layout
    raise CheckpointError(
        f"{path} is not a state dict of a ViT, hybrid or BiT by timm or transformers. "
        f"It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
    )


def require_ours(path, tensors):
    """Refuses models with parts that those of the paper do not have, by the tensors' names."""
    for names, part in FOREIGN:
        found = next((name for name in tensors if re.search(names, name)), None)
        if found:
            raise CheckpointError(f"{path} holds {found}: its model {part}. This package cannot compute that model.")
    for name in tensors:
        weight = re.fullmatch(r"(.*\.(qkv|query|q_proj|to_q))\.weight", name)
        if weight and f"{weight[1]}.bias" not in tensors:
            raise CheckpointError(
                f"{path} holds {name} and no {weight[1]}.bias: its queries, keys or values have no bias "
                "(qkv_bias=False), and those of the paper's models do."
            )


def width(tensors):
    """{"hidden_size": that of a ViT's position embeddings}, {} where there are none."""
    names = ("pos_embed", "embeddings.position_embeddings")
    positions = next((tensors[name] for name in names if name in tensors), None)
    return {"hidden_size": positions.shape[-1]} if positions and positions.shape else {}


def canonical(path, tensors, layout, num_heads, patch_positions=False):
    """The tensors of a torch state dict under official names.

    `patch_positions`: the class token has no position embedding, as in timm's no_embed_class; it gets zeros.

    Raises:
        CheckpointError: for tensors that do not fit their kind, or a ViT whose number of heads is not given.
    """
    tensors = split_qkv(tensors)
    if layout.numerics and num_heads is None:
        strange = next((name for name in tensors if translated(name, layout.rows)[0] == name), None)
        if strange:
            raise CheckpointError(f"{path} holds {strange}, which no ViT or hybrid of {layout.library} has.")
        raise CheckpointError(f"{path} does not say how many attention heads its model has. Pass num_heads=.")
    result = {}
    for name, tensor in tensors.items():
        official, kind = translated(name, layout.rows)
        if official in result:
            raise CheckpointError(f"{path} holds {official} twice, once as {tensor.source}.")
        result[official] = converted(path, tensor, kind, num_heads)
    return with_zero_position(result) if patch_positions and "cls" in result else result


def with_zero_position(tensors):
    positions = tensors.get(POSITIONS)
    if positions is None or len(positions.shape) != 3:
        return tensors
    n, l, d = positions.shape
    return {**tensors, POSITIONS: positions.map((n, 1 + l, d), prepend_zero)}


def translated(name, rows):
    """The official name and the kind of a tensor; a name that no row has stays, to be reported as left over."""
    for torch, official, kind in rows:
        found = renamed(name, torch, official, step=1)
        if found is not None:
            return found, kind
    return name, "same"


def converted(path, tensor, kind, heads):
    if len(tensor.shape) != RANKS.get(kind, len(tensor.shape)):
        raise CheckpointError(f"{path}: {tensor.source} must have {RANKS[kind]} axes. Received: shape {tensor.shape}.")
    if "heads" in kind and tensor.shape[-1 if kind == "out of heads" else 0] % heads:
        raise CheckpointError(f"{path}: {tensor.source} of shape {tensor.shape} has no {heads} heads.")
    shape = shape_from_torch(kind, tensor.shape, heads)
    return tensor.map(shape, lambda values: from_torch(kind, values, shape))


def split_qkv(tensors):
    """timm keeps query, key and value in one tensor (3 d, ...): as three."""
    result = {}
    for name, tensor in tensors.items():
        head, fused, tail = name.partition(".attn.qkv.")
        if not fused or not tensor.shape or tensor.shape[0] % 3:
            result[name] = tensor
            continue
        d = tensor.shape[0] // 3
        for part, letter in enumerate("qkv"):
            result[f"{head}.attn.{letter}.{tail}"] = tensor.map(
                (d, *tensor.shape[1:]), lambda values, part=part, d=d: values[part * d : (part + 1) * d]
            )
    return result


def with_numerics(config, numerics):
    """The configuration as that library computes: its GELU, its epsilons."""
    if not isinstance(config, ViTConfig):
        return replace(config, **RESNET_NUMERICS)
    if config.backbone:
        numerics = {**numerics, "backbone": replace(config.backbone, **RESNET_NUMERICS, kernel_std_epsilon=0.0)}
    return replace(config, **numerics)


def timm_state(config, tensors):
    """Official tensors {name: array} as timm's state dict of a model of that configuration."""
    bare_stem = isinstance(config, ViTConfig) and config.backbone and not config.backbone.depths
    rows = TIMM_VIT if isinstance(config, ViTConfig) else TIMM_BIT
    rows = TIMM_STEM + rows if bare_stem else rows
    state = {}
    for name, values in tensors.items():
        torch, kind = next(
            (found, kind) for torch, official, kind in rows if (found := renamed(name, official, torch, step=-1))
        )
        state[torch] = to_torch(kind, values)
    return fuse_qkv(state)


def fuse_qkv(state):
    result = {}
    for name, values in state.items():
        head, split, tail = name.partition(".attn.q.")
        if split:
            parts = [values, *(state[f"{head}.attn.{letter}.{tail}"] for letter in "kv")]
            result[f"{head}.attn.qkv.{tail}"] = np.concatenate(parts)
        elif not re.search(r"\.attn\.[kv]\.", name):
            result[name] = values
    return {name: np.ascontiguousarray(values) for name, values in result.items()}

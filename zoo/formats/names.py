"""The names of tensors in torch's state dicts, {official name: name there}, and the orders of their axes.

Official names are those of `models/tensors.py`. A row there has its name here in each of the layouts that have it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_vit.models.tensors import ATTENTION, BIT_UNIT, BLOCK, HEADS, MLP, POOL, POOL_ATTENTION, POOL_MLP, UNIT

ROWS_AT_ONCE = 256


class Axes(NamedTuple):
    """The axes of a tensor in torch, in the official files and in a model."""

    ranks: tuple[int, ...]  # possible numbers of axes in torch; () for any
    of_torch: Callable[[tuple, Any], tuple]  # torch's shape and the number of heads to the official shape
    of_variable: Callable[[tuple, Any], tuple]  # the variable's shape and the number of heads to the official shape
    permute: Callable[[np.ndarray], np.ndarray]  # brings torch's values to the official order of axes, to be reshaped
    restore: Callable[[np.ndarray], np.ndarray]  # brings official values to torch's


def as_is(values):
    return values


def same_shape(shape, heads):
    return shape


def transpose(matrix):
    """Transposes by copying blocks of rows that fit the cache: in half the time of numpy's own copy."""
    result = np.empty(matrix.shape[::-1], matrix.dtype)
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        result[:, rows] = matrix[rows].T
    return result


def order_kernel(values):
    """(outputs, inputs[, h, w]) -> (h, w, inputs, outputs), with h = w = 1 if they are left out."""
    if values.shape[2:] in ((), (1, 1)):
        return transpose(values.reshape(values.shape[:2]))[None, None]
    return values.transpose(2, 3, 1, 0)


def restore_kernel(values):
    return values.transpose(3, 2, 0, 1)


def kernel_shape(shape, heads):
    return (*(shape[2:] or (1, 1)), shape[1], shape[0])


def split_heads(shape, heads):
    return heads, shape[0] // heads


AXES = {
    "same": Axes((), same_shape, same_shape, as_is, as_is),
    # one vector or several, without the axes that transformers leaves out -> (1, tokens, width)
    "tokens": Axes((1, 2, 3), lambda shape, heads: (1,) * (3 - len(shape)) + shape, same_shape, as_is, as_is),
    # (outputs, inputs) -> (inputs, outputs)
    "dense": Axes((2,), lambda shape, heads: shape[::-1], same_shape, transpose, np.transpose),
    # (outputs, inputs, h, w) -> (h, w, inputs, outputs)
    "conv": Axes((4,), kernel_shape, same_shape, order_kernel, restore_kernel),
    # (outputs, inputs) or (outputs, inputs, 1, 1) -> (1, 1, inputs, outputs)
    "head conv": Axes((2, 4), kernel_shape, lambda shape, heads: (1, 1, *shape), order_kernel, restore_kernel),
    # bias of query, key or value: (heads * width,) -> (heads, width)
    "heads": Axes((1,), split_heads, split_heads, as_is, np.ravel),
    # kernel of query, key or value: (heads * width, inputs) -> (inputs, heads, width)
    "into heads": Axes(
        (2,),
        lambda shape, heads: (shape[1], heads, shape[0] // heads),
        lambda shape, heads: (shape[0], heads, shape[1] // heads),
        transpose,
        lambda values: values.reshape(len(values), -1).T,
    ),
    # kernel after attention: (outputs, heads * width) -> (heads, width, outputs)
    "out of heads": Axes(
        (2,),
        lambda shape, heads: (heads, shape[1] // heads, shape[0]),
        lambda shape, heads: (heads, shape[0] // heads, shape[1]),
        transpose,
        lambda values: values.reshape(-1, values.shape[-1]).T,
    ),
}


# A tuple has the names of different versions.


def named_heads(name, beginning, *parts):
    """The names of an attention's four layers in a layout: their beginning, and the part of each."""
    return {f"{name}/{our}": beginning + part for our, part in zip(HEADS, parts, strict=True)}


TIMM_VIT = {
    "conv_root": "patch_embed.backbone.stem.conv",
    "gn_root": "patch_embed.backbone.stem.norm",
    **{f"{UNIT}/conv{i}": f"patch_embed.backbone.stages.{{b}}.blocks.{{u}}.conv{i}" for i in (1, 2, 3)},
    **{f"{UNIT}/gn{i}": f"patch_embed.backbone.stages.{{b}}.blocks.{{u}}.norm{i}" for i in (1, 2, 3)},
    f"{UNIT}/conv_proj": "patch_embed.backbone.stages.{b}.blocks.{u}.downsample.conv",
    f"{UNIT}/gn_proj": "patch_embed.backbone.stages.{b}.blocks.{u}.downsample.norm",
    "embedding": "patch_embed.proj",
    "cls": "cls_token",
    "registers": "reg_token",
    "Transformer/posembed_input": "pos_embed",
    "Transformer/pre_norm": "norm_pre",
    f"{BLOCK}/LayerNorm_0": "blocks.{i}.norm1",
    **named_heads(ATTENTION, "blocks.{i}.attn.", "q", "k", "v", "proj"),
    f"{BLOCK}/LayerScale_0": ("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1"),
    f"{BLOCK}/LayerNorm_2": "blocks.{i}.norm2",
    f"{MLP}/Dense_0": ("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc1_x"),
    f"{MLP}/Dense_gate": "blocks.{i}.mlp.fc1_g",
    f"{MLP}/Dense_1": "blocks.{i}.mlp.fc2",
    f"{BLOCK}/LayerScale_1": ("blocks.{i}.ls2.gamma", "blocks.{i}.gamma_2"),
    "Transformer/encoder_norm": ("norm", "fc_norm"),
    POOL: "attn_pool.latent",
    **named_heads(POOL_ATTENTION, "attn_pool.", "q", "k", "v", "proj"),
    f"{POOL}/LayerNorm_0": "attn_pool.norm",
    f"{POOL_MLP}/Dense_0": "attn_pool.mlp.fc1",
    f"{POOL_MLP}/Dense_1": "attn_pool.mlp.fc2",
    "pre_logits": "pre_logits.fc",
    "head": "head",
}
# The bare stem of R+ViT-Ti/16 has shorter names.
TIMM_BARE = {**TIMM_VIT, "conv_root": "patch_embed.backbone.conv", "gn_root": "patch_embed.backbone.norm"}

# timm's class Eva, of EVA and DINOv3.
TIMM_EVA = TIMM_VIT | {f"{BLOCK}/LayerScale_0": "blocks.{i}.gamma_1", f"{BLOCK}/LayerScale_1": "blocks.{i}.gamma_2"}
# Meta's own files of DINOv2 and DINOv3.
META = TIMM_VIT | {
    "registers": ("register_tokens", "storage_tokens"),
    f"{MLP}/Dense_0": ("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.w2"),
    f"{MLP}/Dense_gate": "blocks.{i}.mlp.w1",
    f"{MLP}/Dense_1": ("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3"),
}

HF_BACKBONE = "embeddings.patch_embeddings.backbone.bit"
HF_UNIT = f"{HF_BACKBONE}.encoder.stages.{{b}}.layers.{{u}}"
# transformers renamed the blocks in its version 5.
HF_VIT = {
    "conv_root": f"{HF_BACKBONE}.embedder.convolution",
    "gn_root": f"{HF_BACKBONE}.embedder.norm",
    **{f"{UNIT}/conv{i}": f"{HF_UNIT}.conv{i}" for i in (1, 2, 3)},
    **{f"{UNIT}/gn{i}": f"{HF_UNIT}.norm{i}" for i in (1, 2, 3)},
    f"{UNIT}/conv_proj": f"{HF_UNIT}.downsample.conv",
    f"{UNIT}/gn_proj": f"{HF_UNIT}.downsample.norm",
    "embedding": "embeddings.patch_embeddings.projection",
    "cls": "embeddings.cls_token",
    "registers": "embeddings.distillation_token",
    "Transformer/posembed_input": "embeddings.position_embeddings",
    f"{BLOCK}/LayerNorm_0": ("layers.{i}.layernorm_before", "encoder.layer.{i}.layernorm_before"),
    f"{ATTENTION}/query": ("layers.{i}.attention.q_proj", "encoder.layer.{i}.attention.attention.query"),
    f"{ATTENTION}/key": ("layers.{i}.attention.k_proj", "encoder.layer.{i}.attention.attention.key"),
    f"{ATTENTION}/value": ("layers.{i}.attention.v_proj", "encoder.layer.{i}.attention.attention.value"),
    f"{ATTENTION}/out": ("layers.{i}.attention.o_proj", "encoder.layer.{i}.attention.output.dense"),
    f"{BLOCK}/LayerNorm_2": ("layers.{i}.layernorm_after", "encoder.layer.{i}.layernorm_after"),
    f"{MLP}/Dense_0": ("layers.{i}.mlp.fc1", "encoder.layer.{i}.intermediate.dense"),
    f"{MLP}/Dense_1": ("layers.{i}.mlp.fc2", "encoder.layer.{i}.output.dense"),
    "Transformer/encoder_norm": "layernorm",
    "pre_logits": "pooler.dense",
    "head": "classifier",
}

HF_BLOCK = "encoder.layer.{i}"
HF_DINOV2 = {
    "embedding": "embeddings.patch_embeddings.projection",
    "cls": "embeddings.cls_token",
    "registers": "embeddings.register_tokens",
    "Transformer/posembed_input": "embeddings.position_embeddings",
    f"{BLOCK}/LayerNorm_0": f"{HF_BLOCK}.norm1",
    **named_heads(
        ATTENTION, f"{HF_BLOCK}.attention.", "attention.query", "attention.key", "attention.value", "output.dense"
    ),
    f"{BLOCK}/LayerScale_0": f"{HF_BLOCK}.layer_scale1.lambda1",
    f"{BLOCK}/LayerNorm_2": f"{HF_BLOCK}.norm2",
    f"{MLP}/Dense_0": (f"{HF_BLOCK}.mlp.fc1", f"{HF_BLOCK}.mlp.weights_up"),
    f"{MLP}/Dense_gate": f"{HF_BLOCK}.mlp.weights_gate",
    f"{MLP}/Dense_1": (f"{HF_BLOCK}.mlp.fc2", f"{HF_BLOCK}.mlp.weights_out"),
    f"{BLOCK}/LayerScale_1": f"{HF_BLOCK}.layer_scale2.lambda1",
    "Transformer/encoder_norm": "layernorm",
    "head": "classifier",
}
HF_DINOV3 = {
    "embedding": "embeddings.patch_embeddings",
    "cls": "embeddings.cls_token",
    "registers": "embeddings.register_tokens",
    f"{BLOCK}/LayerNorm_0": "layer.{i}.norm1",
    **named_heads(ATTENTION, "layer.{i}.attention.", "q_proj", "k_proj", "v_proj", "o_proj"),
    f"{BLOCK}/LayerScale_0": "layer.{i}.layer_scale1.lambda1",
    f"{BLOCK}/LayerNorm_2": "layer.{i}.norm2",
    f"{MLP}/Dense_0": "layer.{i}.mlp.up_proj",
    f"{MLP}/Dense_gate": "layer.{i}.mlp.gate_proj",
    f"{MLP}/Dense_1": "layer.{i}.mlp.down_proj",
    f"{BLOCK}/LayerScale_1": "layer.{i}.layer_scale2.lambda1",
    "Transformer/encoder_norm": "norm",
}
# The image towers of CLIP and SigLIP, without the prefix vision_model.
HF_TOWER = {
    "embedding": "embeddings.patch_embedding",
    "cls": "embeddings.class_embedding",
    "Transformer/posembed_input": "embeddings.position_embedding.weight",
    "Transformer/pre_norm": "pre_layrnorm",
    f"{BLOCK}/LayerNorm_0": "encoder.layers.{i}.layer_norm1",
    **named_heads(ATTENTION, "encoder.layers.{i}.self_attn.", "q_proj", "k_proj", "v_proj", "out_proj"),
    f"{BLOCK}/LayerNorm_2": "encoder.layers.{i}.layer_norm2",
    f"{MLP}/Dense_0": "encoder.layers.{i}.mlp.fc1",
    f"{MLP}/Dense_1": "encoder.layers.{i}.mlp.fc2",
    "Transformer/encoder_norm": "post_layernorm",
    POOL: "head.probe",
    **named_heads(POOL_ATTENTION, "head.attention.", "q", "k", "v", "out_proj"),
    f"{POOL}/LayerNorm_0": "head.layernorm",
    f"{POOL_MLP}/Dense_0": "head.mlp.fc1",
    f"{POOL_MLP}/Dense_1": "head.mlp.fc2",
    "head": "visual_projection",
}


def bit_layout(root, unit, head):
    """A layout of BiT with these names for the root's convolution, units and head."""
    layout = {"resnet/root_block/standardized_conv2d": root, "resnet/group_norm": "norm", "resnet/head/conv2d": head}
    for i, letter in enumerate("abc", start=1):
        layout[f"{BIT_UNIT}/{letter}/standardized_conv2d"] = f"{unit}.conv{i}"
        layout[f"{BIT_UNIT}/{letter}/group_norm"] = f"{unit}.norm{i}"
    return {**layout, f"{BIT_UNIT}/a/proj/standardized_conv2d": f"{unit}.downsample.conv"}


TIMM_BIT = bit_layout("stem.conv", "stages.{b}.blocks.{u}", "head.fc")
HF_BIT = bit_layout("embedder.convolution", "encoder.stages.{b}.layers.{u}", "classifier.1")


def torch_names(rows, layout):
    """(torch's template, official template, kind of axes) of each tensor of a layout."""
    names = []
    for row in rows:
        theirs = layout.get(row.name, ())
        for name in (theirs,) if isinstance(theirs, str) else theirs:
            for leaf in row.leaves:
                if leaf.torch is not None:
                    names.append((f"{name}.{leaf.torch}".rstrip("."), f"{row.name}/{leaf.name}".rstrip("/"), leaf.axes))
    return tuple(names)

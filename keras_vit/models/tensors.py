"""The tensors of a model: their official names, and the layers that hold them. Imports no Keras.

In names {i} counts the blocks of the encoder, {b} and {u} the stages and units of a ResNet. A layer with weights is a
row; the configurations of a family of models have its rows, as `tensor_rows`.
"""

import itertools
import string
from typing import NamedTuple


class Leaf(NamedTuple):
    """A tensor of a layer: the end of its official name, the layer's attribute, the end of torch's name.

    `axes` is their kind in torch: a key of `AXES` in `zoo/formats/names.py`.
    """

    name: str
    attribute: str
    torch: str | None
    axes: str = "same"


BIAS = Leaf("bias", "bias", "bias")
TOKEN = (Leaf("", "token", "", "tokens"),)
PROBE = (Leaf("probe", "probe", "", "tokens"),)
LAYER_SCALE = (Leaf("scale", "gamma", ""),)
DENSE = (Leaf("kernel", "kernel", "weight", "dense"), BIAS)
CONV = (Leaf("kernel", "kernel", "weight", "conv"),)
PATCHES = (*CONV, BIAS)
NORM = (Leaf("scale", "gamma", "weight"), Leaf("bias", "beta", "bias"))
BIT_NORM = (Leaf("gamma", "gamma", "weight"), Leaf("beta", "beta", "bias"))
BIT_HEAD = (Leaf("kernel", "kernel", "weight", "head conv"), BIAS)
INTO_HEADS = (Leaf("kernel", "kernel", "weight", "into heads"), Leaf("bias", "bias", "bias", "heads"))
OUT_OF_HEADS = (Leaf("kernel", "kernel", "weight", "out of heads"), BIAS)
# The authors' files have only 1-D embeddings; the names of the others are our own (Appendix D.4).
POSITIONS = (
    Leaf("pos_embedding", "embedding", "", "tokens"),
    Leaf("row_embedding", "row_embedding", None),
    Leaf("column_embedding", "column_embedding", None),
)
RELATIVE = (Leaf("relative_embedding", "embedding", None),)


class Row(NamedTuple):
    """A layer: the beginning of its tensors' official names, its path in the model, and its tensors.

    A model without that layer has none of its tensors.
    """

    name: str
    layer: str
    leaves: tuple[Leaf, ...]


UNIT, UNIT_LAYER = "block{b}/unit{u}", "block{b}_unit{u}"
ROOT = (Row("conv_root", "conv_root", CONV), Row("gn_root", "norm_root", NORM))
SHORTCUT = (
    Row(f"{UNIT}/conv_proj", f"{UNIT_LAYER}.shortcut", CONV),
    Row(f"{UNIT}/gn_proj", f"{UNIT_LAYER}.shortcut_norm", NORM),
)


def conv_and_norm(i):
    return (
        Row(f"{UNIT}/conv{i}", f"{UNIT_LAYER}.conv{i}", CONV),
        Row(f"{UNIT}/gn{i}", f"{UNIT_LAYER}.norm{i}", NORM),
    )


HEADS = {"query": INTO_HEADS, "key": INTO_HEADS, "value": INTO_HEADS, "out": OUT_OF_HEADS}


def heads(name, layer):
    """The rows of an attention's four layers."""
    return tuple(Row(f"{name}/{part}", f"{layer}.{part}", leaves) for part, leaves in HEADS.items())


BLOCK, BLOCK_LAYER = "Transformer/encoderblock_{i}", "encoderblock_{i}"
ATTENTION, MLP = f"{BLOCK}/MultiHeadDotProductAttention_1", f"{BLOCK}/MlpBlock_3"
# big_vision's names; those of registers, pre-norm, layer scales and gates are ours, since the authors have none.
POOL = "MAPHead_0"
POOL_ATTENTION, POOL_MLP = f"{POOL}/MultiHeadDotProductAttention_0", f"{POOL}/MlpBlock_0"

VIT = (
    *ROOT,
    *conv_and_norm(1),
    *conv_and_norm(2),
    *conv_and_norm(3),
    *SHORTCUT,
    Row("embedding", "embedding", PATCHES),
    Row("cls", "cls", TOKEN),
    Row("registers", "registers", TOKEN),
    Row("Transformer/posembed_input", "posembed_input", POSITIONS),
    Row("Transformer/posembed_{i}", "posembed_{i}", POSITIONS),
    Row("Transformer/posembed_shared", "posembed_shared", POSITIONS),
    Row("Transformer/pre_norm", "pre_norm", NORM),
    Row(f"{BLOCK}/LayerNorm_0", f"{BLOCK_LAYER}.attention_norm", NORM),
    *heads(ATTENTION, f"{BLOCK_LAYER}.attention"),
    Row(ATTENTION, f"{BLOCK_LAYER}.attention.relative", RELATIVE),
    Row(f"{BLOCK}/LayerScale_0", f"{BLOCK_LAYER}.attention_scale", LAYER_SCALE),
    Row(f"{BLOCK}/LayerNorm_2", f"{BLOCK_LAYER}.mlp_norm", NORM),
    Row(f"{MLP}/Dense_0", f"{BLOCK_LAYER}.mlp.hidden", DENSE),
    Row(f"{MLP}/Dense_gate", f"{BLOCK_LAYER}.mlp.gate", DENSE),
    Row(f"{MLP}/Dense_1", f"{BLOCK_LAYER}.mlp.out", DENSE),
    Row(f"{BLOCK}/LayerScale_1", f"{BLOCK_LAYER}.mlp_scale", LAYER_SCALE),
    Row("Transformer/encoder_norm", "encoder_norm", NORM),
    Row(POOL, "pool", PROBE),
    *heads(POOL_ATTENTION, "pool.attention"),
    Row(f"{POOL}/LayerNorm_0", "pool.norm", NORM),
    Row(f"{POOL_MLP}/Dense_0", "pool.mlp.hidden", DENSE),
    Row(f"{POOL_MLP}/Dense_gate", "pool.mlp.gate", DENSE),
    Row(f"{POOL_MLP}/Dense_1", "pool.mlp.out", DENSE),
    Row("pre_logits", "pre_logits", DENSE),
    Row("head", "head", DENSE),
)

BIT_UNIT, BIT_LAYER = "resnet/block{b}/unit{u:02d}", "block{b}_unit{u:02d}"
BIT = (
    Row("resnet/root_block/standardized_conv2d", "root_conv", CONV),
    Row(f"{BIT_UNIT}/a/group_norm", f"{BIT_LAYER}.norm1", BIT_NORM),
    Row(f"{BIT_UNIT}/a/standardized_conv2d", f"{BIT_LAYER}.conv1", CONV),
    Row(f"{BIT_UNIT}/b/group_norm", f"{BIT_LAYER}.norm2", BIT_NORM),
    Row(f"{BIT_UNIT}/b/standardized_conv2d", f"{BIT_LAYER}.conv2", CONV),
    Row(f"{BIT_UNIT}/c/group_norm", f"{BIT_LAYER}.norm3", BIT_NORM),
    Row(f"{BIT_UNIT}/c/standardized_conv2d", f"{BIT_LAYER}.conv3", CONV),
    Row(f"{BIT_UNIT}/a/proj/standardized_conv2d", f"{BIT_LAYER}.shortcut", CONV),
    Row("resnet/group_norm", "group_norm", BIT_NORM),
    Row("resnet/head/conv2d", "head", BIT_HEAD),
)


def count_parts(placeholders, config):
    """The numbers of a model for the placeholders of a name: one dictionary for each tensor."""
    if placeholders == ("i",):
        return [{"i": i} for i in range(config.num_layers)]
    if placeholders == ("b", "u"):
        stages = config if hasattr(config, "depths") else config.backbone
        depths = stages.depths if stages else ()
        return [{"b": b, "u": u} for b, depth in enumerate(depths, start=1) for u in range(1, depth + 1)]
    return [{}]


def placeholders_of(row):
    return tuple(key for _, key, *_ in string.Formatter().parse(row.name) if key)


def rows_of(config):
    """The rows of a model with their numbers, in the order of the authors' files: block by block."""
    for placeholders, group in itertools.groupby(config.tensor_rows, placeholders_of):
        rows = tuple(group)
        for numbers in count_parts(placeholders, config):
            for row in rows:
                yield Row(row.name.format(**numbers), row.layer.format(**numbers), row.leaves)

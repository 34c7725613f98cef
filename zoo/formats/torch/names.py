"""The names of torch's tensors and the official ones, as rows, and how the tensors differ in their axes.

A row is (template of torch's names, template of the official names, kind of tensor). In templates {i} counts blocks of
the encoder, {b} and {u} the stages and units of a ResNet.
"""

import functools
import re
import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.checkpoint import Fault, Tensor

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


ROWS_AT_ONCE = 256


class TensorKind(NamedTuple):
    """A kind of tensor.

    Args:
        rank: number of axes in torch; None for any.
        shape: of torch's shape and the number of heads, the official shape.
        permute: torch's values with the official order of axes, to be reshaped.
        restore: official values to torch's.
    """

    rank: int | None
    shape: Callable[[tuple, int], tuple]
    permute: Callable[[np.ndarray], np.ndarray]
    restore: Callable[[np.ndarray], np.ndarray]


def as_is(values):
    return values


def transpose(matrix):
    """The transpose, copied by blocks of rows, which stay in the cache: in half the time of numpy's own copy."""
    result = np.empty(matrix.shape[::-1], matrix.dtype)
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        result[:, rows] = matrix[rows].T
    return result


def order_kernel(values):
    """(outputs, inputs, h, w) -> (h, w, inputs, outputs)."""
    pointwise = values.shape[2:] == (1, 1)
    return transpose(values[:, :, 0, 0])[None, None] if pointwise else values.transpose(2, 3, 1, 0)


KINDS = {
    "same": TensorKind(None, lambda shape, heads: shape, as_is, as_is),
    # (outputs, inputs) -> (inputs, outputs)
    "dense": TensorKind(2, lambda shape, heads: shape[::-1], transpose, np.transpose),
    # (outputs, inputs, h, w) -> (h, w, inputs, outputs)
    "conv": TensorKind(
        4,
        lambda shape, heads: (shape[2], shape[3], shape[1], shape[0]),
        order_kernel,
        lambda values: values.transpose(3, 2, 0, 1),
    ),
    # (outputs, inputs) -> (1, 1, inputs, outputs)
    "flat conv": TensorKind(2, lambda shape, heads: (1, 1, *shape[::-1]), transpose, lambda values: values[0, 0].T),
    # bias of query, key or value: (heads * width,) -> (heads, width)
    "heads": TensorKind(1, lambda shape, heads: (heads, shape[0] // heads), as_is, np.ravel),
    # kernel of query, key or value: (heads * width, inputs) -> (inputs, heads, width)
    "into heads": TensorKind(
        2,
        lambda shape, heads: (shape[1], heads, shape[0] // heads),
        transpose,
        lambda values: values.reshape(len(values), -1).T,
    ),
    # kernel after attention: (outputs, heads * width) -> (heads, width, outputs)
    "out of heads": TensorKind(
        2,
        lambda shape, heads: (heads, shape[1] // heads, shape[0]),
        transpose,
        lambda values: values.reshape(-1, values.shape[-1]).T,
    ),
}


def convert_tensor(tensor: Tensor, kind: str, heads: int | None) -> Tensor:
    """A tensor of torch in the official shape and order of axes."""
    row = KINDS[kind]
    if len(tensor.shape) != (len(tensor.shape) if row.rank is None else row.rank):
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}; expected {row.rank} axes.")
    if "heads" in kind and tensor.shape[-1 if kind == "out of heads" else 0] % heads:
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}, which {heads} heads cannot divide.")
    shape = row.shape(tensor.shape, heads)
    return tensor.map(shape, lambda values: row.permute(values).reshape(shape))


BLOCK = "Transformer/encoderblock_{i}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"


def dense_rows(torch, official, kind="dense", bias="same"):
    return (f"{torch}.weight", f"{official}/kernel", kind), (f"{torch}.bias", f"{official}/bias", bias)


def norm_rows(torch, official, scale="scale", shift="bias"):
    return (f"{torch}.weight", f"{official}/{scale}", "same"), (f"{torch}.bias", f"{official}/{shift}", "same")


def conv_rows(torch, official):
    return ((f"{torch}.weight", f"{official}/kernel", "conv"),)


def bit_norm_rows(torch, official):
    return norm_rows(torch, official, "gamma", "beta")


def attention_rows(query, key, value, out):
    rows = [
        dense_rows(name, f"{ATTENTION}/{ours}", "into heads", "heads")
        for name, ours in zip((query, key, value), ("query", "key", "value"), strict=True)
    ]
    return *rows[0], *rows[1], *rows[2], *dense_rows(out, f"{ATTENTION}/out", "out of heads")


def backbone_rows(stem, unit):
    """Rows of a hybrid's ResNet: `stem` is (convolution, norm), `unit` the prefix of a unit."""
    ours = "block{b}/unit{u}"
    rows = [*conv_rows(stem[0], "conv_root"), *norm_rows(stem[1], "gn_root")]
    for i in "123":
        rows += [*conv_rows(f"{unit}.conv{i}", f"{ours}/conv{i}"), *norm_rows(f"{unit}.norm{i}", f"{ours}/gn{i}")]
    return (
        *rows,
        *conv_rows(f"{unit}.downsample.conv", f"{ours}/conv_proj"),
        *norm_rows(f"{unit}.downsample.norm", f"{ours}/gn_proj"),
    )


def resnet_rows(stem, unit, last, head):
    """Rows of BiT: `head` is the prefix of the last layer and the kind of its kernel."""
    ours = "resnet/block{b}/unit{u:02d}"
    rows = [*conv_rows(stem, "resnet/root_block/standardized_conv2d")]
    for i, letter in enumerate("abc", start=1):
        rows += conv_rows(f"{unit}.conv{i}", f"{ours}/{letter}/standardized_conv2d")
        rows += bit_norm_rows(f"{unit}.norm{i}", f"{ours}/{letter}/group_norm")
    rows += conv_rows(f"{unit}.downsample.conv", f"{ours}/a/proj/standardized_conv2d")
    return *rows, *bit_norm_rows(last, "resnet/group_norm"), *dense_rows(head[0], "resnet/head/conv2d", head[1])


TIMM_VIT = (
    ("cls_token", "cls", "same"),
    ("pos_embed", POSITIONS, "same"),
    *dense_rows("patch_embed.proj", "embedding", "conv"),
    *norm_rows("blocks.{i}.norm1", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(*(f"blocks.{{i}}.attn.{name}" for name in ("q", "k", "v", "proj"))),
    *norm_rows("blocks.{i}.norm2", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("blocks.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("blocks.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("norm", "Transformer/encoder_norm"),
    *dense_rows("pre_logits.fc", "pre_logits"),
    *dense_rows("head", "head"),
    *backbone_rows(
        ("patch_embed.backbone.stem.conv", "patch_embed.backbone.stem.norm"),
        "patch_embed.backbone.stages.{b}.blocks.{u}",
    ),
)
# The bare stem of R+ViT-Ti/16 goes by shorter names.
TIMM_STEM = (*conv_rows("patch_embed.backbone.conv", "conv_root"), *norm_rows("patch_embed.backbone.norm", "gn_root"))
TIMM_BIT = resnet_rows("stem.conv", "stages.{b}.blocks.{u}", "norm", ("head.fc", "conv"))


BIT_IN_VIT = "embeddings.patch_embeddings.backbone.bit"
# transformers renamed the blocks in its version 5.
HF_VIT = (
    ("embeddings.cls_token", "cls", "same"),
    ("embeddings.position_embeddings", POSITIONS, "same"),
    *dense_rows("embeddings.patch_embeddings.projection", "embedding", "conv"),
    *norm_rows("layers.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(*(f"layers.{{i}}.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj"))),
    *norm_rows("layers.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("layers.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("layers.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("encoder.layer.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(
        *(f"encoder.layer.{{i}}.attention.attention.{name}" for name in ("query", "key", "value")),
        "encoder.layer.{i}.attention.output.dense",
    ),
    *norm_rows("encoder.layer.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("encoder.layer.{i}.intermediate.dense", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("encoder.layer.{i}.output.dense", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("layernorm", "Transformer/encoder_norm"),
    *dense_rows("pooler.dense", "pre_logits"),
    *dense_rows("classifier", "head"),
    *backbone_rows(
        (f"{BIT_IN_VIT}.embedder.convolution", f"{BIT_IN_VIT}.embedder.norm"),
        BIT_IN_VIT + ".encoder.stages.{b}.layers.{u}",
    ),
)
HF_BIT = resnet_rows("embedder.convolution", "encoder.stages.{b}.layers.{u}", "norm", ("classifier.1", "flat conv"))

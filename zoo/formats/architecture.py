"""Reads a model's configuration off the names and shapes of its tensors."""

import collections
import math
import re

from keras_vit.errors import CheckpointError
from keras_vit.models.config import BackboneConfig, ResNetConfig, ViTConfig, pair

POSITIONS = "Transformer/posembed_input/pos_embedding"
QUERY = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"
HIDDEN = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"
ROOT = "resnet/root_block/standardized_conv2d/kernel"
BIT_HEAD = "resnet/head/conv2d/kernel"


def read_config(path, tensors, stated=None, asked=None, patch_size=None):
    """The `ViTConfig` or `ResNetConfig` that canonical tensors were made with.

    Args:
        path, tensors: a checkpoint.
        stated: (height, width) of its images, where its files say so.
        asked: (height, width) of the images that a caller wants, in patches of `patch_size` (None: the file's); tells
            the aspect of position embeddings that make no square.

    Raises:
        CheckpointError: when a tensor that tells the architecture is missing or has no sensible shape.
        ConfigError: when no model has tensors of these shapes.
    """
    return read_resnet(path, tensors) if ROOT in tensors else read_vit(path, tensors, stated, asked, patch_size)


def shape_of(path, tensors, name, rank):
    if name not in tensors:
        raise CheckpointError(f"{path} lacks the tensor {name}.")
    shape = tensors[name].shape
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"{path}: {name} must have {rank} axes, none empty. Received: shape {shape}.")
    return shape


def count(tensors, pattern):
    """The highest number that `pattern`'s group takes among the names, counted from the lowest; 0 for none."""
    return len({match[1] for match in map(re.compile(pattern).match, tensors) if match})


def unit_counts(tensors, pattern):
    """How many numbers `pattern`'s second group takes, for each of its first: the depths of the stages 1, 2, ..."""
    units = {match.groups() for match in map(re.compile(pattern).match, tensors) if match}
    depths = collections.Counter(stage for stage, _ in units)
    return tuple(depths[str(stage)] for stage in range(1, len(depths) + 1))


def read_vit(path, tensors, stated, asked, patch_size):
    ph, pw, channels, hidden_size = shape_of(path, tensors, "embedding/kernel", 4)
    _, length, _ = shape_of(path, tensors, POSITIONS, 3)
    _, num_heads, _ = shape_of(path, tensors, QUERY, 3)
    _, mlp_dim = shape_of(path, tensors, HIDDEN, 2)
    backbone = read_backbone(path, tensors) if "conv_root/kernel" in tensors else None
    token = "cls" in tensors
    stride = backbone.stride if backbone else 1
    wanted = asked and (asked, pair("patch_size", patch_size or (ph, pw)))
    rows, columns = grid(path, length - token, stated and (stated, (ph * stride, pw * stride)), wanted)
    return ViTConfig(
        image_size=(rows * ph * stride, columns * pw * stride),
        patch_size=(ph, pw),
        hidden_size=hidden_size,
        num_layers=count(tensors, r"Transformer/encoderblock_(\d+)/"),
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        num_classes=shape_of(path, tensors, "head/kernel", 2)[1] if "head/kernel" in tensors else 0,
        representation_size=shape_of(path, tensors, "pre_logits/kernel", 2)[1]
        if "pre_logits/kernel" in tensors
        else None,
        classifier="token" if token else "gap",
        num_channels=shape_of(path, tensors, "conv_root/kernel", 4)[2] if backbone else channels,
        backbone=backbone,
    )


def grid(path, length, stated, asked):
    """(rows, columns) of `length` position embeddings, or the error that they have no such shape.

    `stated` and `asked` are None or (image size, patch size). What is stated holds where it fits; then a square; then
    the rectangle of the asked aspect, of which there is one at most.
    """
    if stated and patches(*stated) == length:
        return tuple(side // step for side, step in zip(*stated, strict=True))
    side = math.isqrt(max(length, 0))
    if side and side * side == length:
        return side, side
    if asked:
        (height, width), (ph, pw) = asked
        rows = math.isqrt(max(length, 0) * height * pw // (width * ph))
        if rows and length % rows == 0 and rows * rows * width * ph == length * height * pw:
            return rows, length // rows
    aspect = f", nor one of the aspect of image_size={asked[0]}" if asked else ""
    advice = "Pass the image_size= (height, width) that it was made for."
    if math.isqrt(length + 1) ** 2 == length + 1:
        advice = (
            f"All {length + 1} may be the patches' and none the class token's (timm's no_embed_class), as config.json "
            f"beside the file would state; if not: {advice}"
        )
    raise CheckpointError(
        f"{path} has {length} position embeddings for patches, which make no square grid{aspect}. {advice}"
    )


def patches(image_size, patch_size):
    """How many whole patches an image has."""
    return math.prod(side // step for side, step in zip(image_size, patch_size, strict=True))


def read_backbone(path, tensors):
    *_, filters = shape_of(path, tensors, "conv_root/kernel", 4)
    return BackboneConfig(depths=unit_counts(tensors, r"block(\d+)/unit(\d+)/"), width_factor=whole(filters / 64))


def read_resnet(path, tensors):
    _, _, channels, filters = shape_of(path, tensors, ROOT, 4)
    return ResNetConfig(
        image_size=None,
        depths=unit_counts(tensors, r"resnet/block(\d+)/unit(\d+)/"),
        width_factor=whole(filters / 64),
        num_classes=shape_of(path, tensors, BIT_HEAD, 4)[3] if BIT_HEAD in tensors else 0,
        num_channels=channels,
    )


def whole(number):
    return int(number) if number == int(number) else number

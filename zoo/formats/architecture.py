"""Derives a model's configuration from the names and shapes of its tensors."""

import collections
import math
import re

from keras_vit.models.axial.config import AxialResNetConfig, AxialViTConfig
from keras_vit.models.config import BackboneConfig, ResNetConfig, ViTConfig, pair
from keras_vit.zoo.formats.checkpoint import Fault

POSITIONS = "Transformer/posembed_input/pos_embedding"
# Layers that add position embeddings, and where they do; the names of their tensors tell 1-D from 2-D.
PLACES = (
    ("Transformer/posembed_input", "stem"),
    ("Transformer/posembed_0", "every-layer"),
    ("Transformer/posembed_shared", "every-layer-shared"),
)
RELATIVE = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/relative_embedding"
ATTENTION = "Transformer/{block}_0/MultiHeadDotProductAttention_1"
HIDDEN = "Transformer/{block}_0/MlpBlock_3/Dense_0/kernel"
GATE = "Transformer/{block}_0/MlpBlock_3/Dense_gate/kernel"
SCALE = "Transformer/{block}_0/LayerScale_0/scale"
INITIAL_SCALE = 1e-5  # timm's, if no file states LayerScale's initial value
ROOT = "resnet/root_block/standardized_conv2d/kernel"
BIT_HEAD = "resnet/head/conv2d/kernel"
# Pixels of the images on which big_vision trained files without positions (configs/vit_s16_i1k.py).
PIXELS = 224
ROW_POSITIONS = "block1/unit1/row_attention/relative_pos_emb"
COLUMN_POSITIONS = "block1/unit1/column_attention/relative_pos_emb"


def shape_of(tensors, name, rank):
    if name not in tensors:
        raise Fault(f"lacks the tensor {name}.")
    shape = tensors[name].shape
    if len(shape) != rank or 0 in shape:
        raise Fault(f"holds {name} of shape {shape}; expected {rank} axes, none of them empty.")
    return shape


def count_indices(tensors, pattern):
    """The number of different values of `pattern`'s group in the names: the number of blocks."""
    return len({match[1] for match in map(re.compile(pattern).match, tensors) if match})


def may_lack_biases(stated):
    """Whether queries, keys or values may have no bias, as stated in files, or because positions are rotary."""
    return "qkv_bias" in stated or stated.get("position_embedding") == "rope"


def read_options(tensors, block, stated):
    """{field of `ViTConfig`: value} for the encoder's options that the tensors show.

    CLIP has no biases for patches and projection. Queries, keys and values may lack biases if files state so, or if
    positions are rotary. Any other absent bias is a missing tensor.
    """
    pre_norm, attention = "Transformer/pre_norm/scale" in tensors, ATTENTION.format(block=block)
    biased = "".join(part[0] for part in ("query", "key", "value") if f"{attention}/{part}/bias" in tensors)
    return {
        "pre_norm": pre_norm,
        "patch_bias": not pre_norm or "embedding/bias" in tensors,
        "head_bias": not pre_norm or "head/kernel" not in tensors or "head/bias" in tensors,
        "qkv_bias": {"qv": "qv", "": "none"}.get(biased, "qkv") if may_lack_biases(stated) else "qkv",
        "gated_mlp": GATE.format(block=block) in tensors,
        "layer_scale": stated.get("layer_scale", INITIAL_SCALE) if SCALE.format(block=block) in tensors else None,
        "num_registers": shape_of(tensors, "registers", 3)[1] if "registers" in tensors else 0,
    }


def read_classifier(tensors, stated):
    """(classifier, class_token) of `ViTConfig`. Tensors show pooling and class token; only files state averaging."""
    token = "cls" in tensors
    pool = "map" if "MAPHead_0/probe" in tensors else "token" if token else "gap"
    classifier = stated.get("classifier", pool)
    return classifier, None if token == (classifier in ("token", "token+gap")) else token


def grid_of(image_size, step):
    """(rows, columns) of the whole patches of an image, each of `step` pixels."""
    return tuple(side // length for side, length in zip(image_size, step, strict=True))


def default_size(step):
    """The image size for a file that states none: whole patches, about 224 pixels."""
    return tuple(max(PIXELS // side, 1) * side for side in step)


def choose_size(grid, step, sizes):
    """The image size for a grid: the first of `sizes` that fits, otherwise whole patches."""
    fits = (size for size in sizes if size and grid_of(size, step) == grid)
    return next(fits, tuple(count * side for count, side in zip(grid, step, strict=True)))


def computes_positions(tensors):
    """Whether tensors come from big_vision's posemb="sincos2d": Linen's names, no positions, no class token.

    In any other file without positions, these are missing.
    """
    stored = any(name.endswith("pos_embedding") or name.startswith("conv_root") for name in tensors)
    hidden = tensors.get(HIDDEN.format(block=ViTConfig.block_name))
    return "cls" not in tensors and not stored and hidden is not None and "/MlpBlock_0/" in hidden.source


def describe_grid(length, wanted):
    """The message for a number of position embeddings that fit no grid, with the likely reason."""
    aspect = f", nor one of the aspect of image_size={wanted[0]}" if wanted else ""
    advice = "Pass the image_size= (height, width) that it was made for."
    if math.isqrt(length + 1) ** 2 == length + 1:
        advice = (
            f"All {length + 1} may be for patches and none for the class token (timm's no_embed_class), as config.json "
            f"beside the file would state; if not: {advice}"
        )
    return f"has {length} position embeddings for patches, but they make no square grid{aspect}. {advice}"


def read_grid(length, own, wanted):
    """(rows, columns) of `length` position embeddings; raises a Fault if they have no such shape.

    `own` is the stated grid of the file's images, `wanted` the caller's (image size, patch size), or None. The own grid
    is tried first, then a square, then the only rectangle of the wanted aspect.
    """
    if own and math.prod(own) == length:
        return own
    side = math.isqrt(max(length, 0))
    if side and side * side == length:
        return side, side
    if wanted:
        (height, width), (ph, pw) = wanted
        rows = math.isqrt(max(length, 0) * height * pw // (width * ph))
        if rows and length % rows == 0 and rows * rows * width * ph == length * height * pw:
            return rows, length // rows
    raise Fault(describe_grid(length, wanted))


def read_positions(tensors, prefix, own, wanted):
    """({field of `ViTConfig`: its value}, grid) of the position embeddings; the default is 1-D.

    The first `prefix` 1-D embeddings belong to tokens before the patches. A file without any, or with relative ones,
    shows only the number of patches in its grid.
    """
    if RELATIVE in tensors:
        offsets, _ = shape_of(tensors, RELATIVE, 2)
        return {"position_embedding": "relative"}, read_grid((offsets + 1) // 2, own, wanted)
    for layer, place in PLACES:
        if f"{layer}/row_embedding" in tensors:
            rows, _ = shape_of(tensors, f"{layer}/row_embedding", 2)
            columns, _ = shape_of(tensors, f"{layer}/column_embedding", 2)
            return {"position_embedding": "2d", "position_embedding_at": place}, (rows, columns)
    if computes_positions(tensors):
        ph, pw, _, _ = tensors["embedding/kernel"].shape
        return {"position_embedding": "sincos2d"}, (max(PIXELS // ph, 1), max(PIXELS // pw, 1))
    layer, place = next((row for row in PLACES if f"{row[0]}/pos_embedding" in tensors), PLACES[0])
    _, length, _ = shape_of(tensors, f"{layer}/pos_embedding", 3)
    return {"position_embedding_at": place}, read_grid(length - prefix, own, wanted)


def read_width(tensors, name):
    """The number of outputs of a dense layer's kernel, None if the model has no such layer."""
    return shape_of(tensors, name, 2)[1] if name in tensors else None


def count_units(tensors, pattern):
    """The number of values of `pattern`'s second group for each of its first: the depths of the stages 1, 2, ..."""
    units = {match.groups() for match in map(re.compile(pattern).match, tensors) if match}
    depths = collections.Counter(stage for stage, _ in units)
    return tuple(depths[str(stage)] for stage in range(1, len(depths) + 1))


def width_factor(filters):
    """A ResNet's width factor from its root convolution, with 64 filters at width 1; an int if it is whole."""
    return filters // 64 if filters % 64 == 0 else filters / 64


def read_backbone(tensors):
    *_, filters = shape_of(tensors, "conv_root/kernel", 4)
    return BackboneConfig(depths=count_units(tensors, r"block(\d+)/unit(\d+)/"), width_factor=width_factor(filters))


def read_vit(tensors, hints):
    stated, own_size = hints.fields, hints.own_size
    ph, pw, channels, hidden_size = shape_of(tensors, "embedding/kernel", 4)
    axial = any(name.startswith(f"Transformer/{AxialViTConfig.block_name}_") for name in tensors)
    config_class = AxialViTConfig if axial else ViTConfig
    block = config_class.block_name
    _, num_heads, _ = shape_of(tensors, f"{ATTENTION.format(block=block)}/query/kernel", 3)
    _, mlp_dim = shape_of(tensors, HIDDEN.format(block=block), 2)
    backbone = read_backbone(tensors) if "conv_root/kernel" in tensors else None
    classifier, class_token = read_classifier(tensors, stated)
    stride = backbone.stride if backbone else 1
    step = ph * stride, pw * stride
    prefix = int("cls" in tensors and stated.get("class_token_position", True))
    wanted = hints.image_size and pair("image_size", hints.image_size)
    if stated.get("position_embedding") == "rope":
        positions, grid = {}, grid_of(own_size or wanted or default_size(step), step)
    else:
        aspect = wanted and (wanted, pair("patch_size", hints.patch_size or (ph, pw)))
        positions, grid = read_positions(tensors, prefix, own_size and grid_of(own_size, step), aspect)
    image_size = choose_size(grid, step, (own_size, wanted))
    return config_class(
        image_size=image_size,
        drop_remainder=any(size % s for size, s in zip(image_size, step, strict=True)),
        patch_size=(ph, pw),
        hidden_size=hidden_size,
        num_layers=count_indices(tensors, rf"Transformer/{block}_(\d+)/"),
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        num_classes=read_width(tensors, "head/kernel") or 0,
        representation_size=read_width(tensors, "pre_logits/kernel"),
        num_channels=shape_of(tensors, "conv_root/kernel", 4)[2] if backbone else channels,
        backbone=backbone,
        **positions,
        **{**stated, **read_options(tensors, block, stated), "classifier": classifier, "class_token": class_token},
    )


def read_resnet(tensors):
    _, _, channels, filters = shape_of(tensors, ROOT, 4)
    return ResNetConfig(
        image_size=None,
        depths=count_units(tensors, r"resnet/block(\d+)/unit(\d+)/"),
        width_factor=width_factor(filters),
        num_classes=shape_of(tensors, BIT_HEAD, 4)[3] if BIT_HEAD in tensors else 0,
        num_channels=channels,
    )


def read_axial_resnet(tensors):
    _, _, channels, filters = shape_of(tensors, "conv_root/kernel", 4)
    column_offsets, width = shape_of(tensors, ROW_POSITIONS, 2)  # 2 * columns - 1, twice the width of a head's values
    row_offsets, _ = shape_of(tensors, COLUMN_POSITIONS, 2)
    return AxialResNetConfig(
        image_size=(2 * (row_offsets + 1), 2 * (column_offsets + 1)),  # a place is 4x4 pixels
        depths=count_units(tensors, r"block(\d+)/unit(\d+)/"),
        width_factor=width_factor(filters),
        num_classes=read_width(tensors, "head/kernel") or 0,
        num_channels=channels,
        num_heads=2 * filters // width,
    )


def read_config(tensors, hints):
    """Derives the configuration of official tensors, {name: Tensor}; the `Hints` have what no tensor shows."""
    if ROW_POSITIONS in tensors:
        return read_axial_resnet(tensors)
    return read_resnet(tensors) if ROOT in tensors else read_vit(tensors, hints)

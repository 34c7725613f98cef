"""Fits a checkpoint's tensors to a model that differs from it in image size, patches, channels, classifier or head."""

import re

import numpy as np

from keras_vit.models.config import ViTConfig
from keras_vit.zoo.formats.architecture import ROOT
from keras_vit.zoo.formats.official import prepend_zero
from keras_vit.zoo.resizing import (
    POSITION_MATRICES,
    resize_axis,
    resize_line_offsets,
    resize_offsets,
    resize_patches,
    resize_positions,
)

HEADS = ("head/", "resnet/head/")
LINE_OFFSETS = re.compile(r"block\d+/unit\d+/(row|column)_attention/relative_pos_emb")
PATCHES = "embedding/kernel"


def adapt(tensors, source, target, interpolation="linear"):
    """(tensors of the model `target`, prefixes of names that start afresh), of a checkpoint's.

    Args:
        tensors: {official name: Tensor} of a model of the configuration `source`.
        target: the `Target`: configuration, and whether the head is new.
        interpolation: of position embeddings, a key of POSITION_MATRICES.
    """
    tensors, config = dict(tensors), target.config
    fresh = set_head(tensors, source, config, target.new_head)
    set_channels(tensors, source, config)
    set_line_offsets(tensors, source, config, interpolation)
    if isinstance(config, ViTConfig):
        fresh += set_classifier(tensors, source, config)
        set_patches(tensors, source, config)
        set_grid(tensors, source, config, interpolation)
    return tensors, fresh


def set_head(tensors, source, target, new_head):
    """A new head takes the place of both layers of the old one (section 3.2); features keep the tanh layer."""
    prefixes = HEADS if new_head or source.num_classes != target.num_classes else ()
    if new_head or representation_width(source) != representation_width(target):
        prefixes += ("pre_logits/",)
    drop(tensors, prefixes)
    return prefixes


def representation_width(config):
    """The width of the layer under the head; None where there is none, as in every ResNet."""
    return getattr(config, "representation_size", None)


def drop(tensors, prefixes):
    """Removes the tensors whose names start so."""
    for name in [name for name in tensors if name.startswith(prefixes)]:
        del tensors[name]


def set_channels(tensors, source, target):
    """One channel takes the sum over the old; more repeat them, scaled so that a grey image's response stays."""
    old, new = source.num_channels, target.num_channels
    name = next(name for name in ("conv_root/kernel", ROOT, PATCHES) if name in tensors)
    if old == new:
        return
    tensor = tensors[name]
    h, w, _, filters = tensor.shape
    index = np.arange(new) % old
    tensors[name] = tensor.map(
        (h, w, new, filters),
        lambda k: k.sum(axis=2, keepdims=True) if new == 1 else k[:, :, index] * np.float32(old / new),
    )


def set_classifier(tensors, source, target):
    """The class token leaves with its 1-D position embeddings, or comes with zero ones."""
    if source.classifier == target.classifier:
        return ()
    for name in [name for name in tensors if name.endswith("/pos_embedding")]:
        tensors[name] = (drop_first if target.classifier == "gap" else prepend_zero)(tensors[name])
    if target.classifier == "token":
        return ("cls",)
    del tensors["cls"]
    return ()


def drop_first(positions):
    """Position embeddings (1, l, d) without the first, the class token's."""
    n, l, d = positions.shape
    return positions.map((n, l - 1, d), lambda values: values[:, 1:])


def set_patches(tensors, source, target):
    """The patch kernel at the model's patch size."""
    if source.patch_size != target.patch_size:
        _, _, channels, d = tensors[PATCHES].shape
        size = target.patch_size
        tensors[PATCHES] = tensors[PATCHES].map((*size, channels, d), lambda kernel: resize_patches(kernel, size))


def set_grid(tensors, source, target, interpolation):
    """The position embeddings on the model's grid of patches; the class token's stays."""
    if source.grid == target.grid:
        return
    prefix, (rows, columns) = int(target.classifier == "token"), target.grid

    def resize_side(axis):
        matrix = POSITION_MATRICES[interpolation](source.grid[axis], target.grid[axis])
        return lambda values: resize_axis(values, 0, matrix).astype(values.dtype)

    # By the end of a tensor's name: its length, the axis that is so long, and how it is resized.
    kinds = {
        "pos_embedding": (
            *(prefix + rows * columns, 1),
            lambda values: resize_positions(values, prefix, source.grid, target.grid, interpolation),
        ),
        "row_embedding": (rows, 0, resize_side(0)),
        "column_embedding": (columns, 0, resize_side(1)),
        "relative_embedding": (
            *(2 * rows * columns - 1, 0),
            lambda values: resize_offsets(values, source.grid, target.grid, interpolation),
        ),
    }
    for name, tensor in tensors.items():
        kind = kinds.get(name.rpartition("/")[2])
        if kind:
            length, axis, resize = kind
            shape = (*tensor.shape[:axis], length, *tensor.shape[axis + 1 :])
            tensors[name] = tensor.map(shape, resize)


def set_line_offsets(tensors, source, target, interpolation):
    """The vectors of relative positions along the rows and columns of an AxialResNet's images."""
    for name, match in [(name, LINE_OFFSETS.fullmatch(name)) for name in tensors]:
        axis = match and ("column", "row").index(match[1])  # a row is as long as the image is wide
        if match and source.image_size[axis] != target.image_size[axis]:
            offsets, width = tensors[name].shape
            length = (offsets + 1) // 2 * target.image_size[axis] // source.image_size[axis]
            tensors[name] = tensors[name].map(
                (2 * length - 1, width),
                lambda values, length=length: resize_line_offsets(values, length, interpolation),
            )

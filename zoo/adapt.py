"""Fits a checkpoint's tensors to a model that differs from it in image size, patches, channels, classifier or head."""

import re

import numpy as np

from keras_vit.zoo.formats.architecture import POSITIONS, ROOT
from keras_vit.zoo.formats.official.big_vision import SineCosine
from keras_vit.zoo.formats.official.layouts import prepend_zero
from keras_vit.zoo.resizing import resize_offsets, resize_patches, resize_positions

HEADS = ("head/", "resnet/head/")
RELATIVE = re.compile(r"block\d+/unit\d+/(row|column)_attention/relative_pos_emb")
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
    set_offsets(tensors, source, config, interpolation)
    if POSITIONS in tensors:
        computed = isinstance(tensors[POSITIONS], SineCosine)
        if computed:
            tensors[POSITIONS] = SineCosine.of_grid(config.grid, tensors[POSITIONS].shape[2])
        fresh += set_classifier(tensors, source, config)
        set_patches(tensors, source, config)
        if not computed:
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
    """The class token leaves with its position embedding, or comes with a zero one."""
    if source.classifier == target.classifier:
        return ()
    if target.classifier == "gap":
        n, l, d = tensors[POSITIONS].shape
        del tensors["cls"]
        tensors[POSITIONS] = tensors[POSITIONS].map((n, l - 1, d), lambda values: values[:, 1:])
        return ()
    tensors[POSITIONS] = prepend_zero(tensors[POSITIONS])
    return ("cls",)


def set_patches(tensors, source, target):
    """The patch kernel at the model's patch size."""
    if source.patch_size != target.patch_size:
        _, _, channels, d = tensors[PATCHES].shape
        size = target.patch_size
        tensors[PATCHES] = tensors[PATCHES].map((*size, channels, d), lambda kernel: resize_patches(kernel, size))


def set_grid(tensors, source, target, interpolation):
    """The position embeddings on the model's grid of patches; the class token's stays."""
    if source.grid != target.grid:
        prefix = int(target.classifier == "token")
        n, _, d = tensors[POSITIONS].shape
        rows, columns = target.grid
        tensors[POSITIONS] = tensors[POSITIONS].map(
            (n, prefix + rows * columns, d),
            lambda values: resize_positions(values, prefix, source.grid, target.grid, interpolation),
        )


def set_offsets(tensors, source, target, interpolation):
    """The vectors of relative positions along the rows and columns of an AxialResNet's images."""
    for name, match in [(name, RELATIVE.fullmatch(name)) for name in tensors]:
        axis = match and ("column", "row").index(match[1])  # a row is as long as the image is wide
        if match and source.image_size[axis] != target.image_size[axis]:
            offsets, width = tensors[name].shape
            length = (offsets + 1) // 2 * target.image_size[axis] // source.image_size[axis]
            tensors[name] = tensors[name].map(
                (2 * length - 1, width), lambda values, length=length: resize_offsets(values, length, interpolation)
            )

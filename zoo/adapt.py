"""Fits a checkpoint's tensors to a model that differs from it in image size, patches, channels, classifier or head."""

import numpy as np

from keras_vit.zoo.formats.architecture import POSITIONS, ROOT
from keras_vit.zoo.formats.official.big_vision import SineCosine
from keras_vit.zoo.resizing import resize_patches, resize_positions

HEADS = ("head/", "resnet/head/")
PATCHES = "embedding/kernel"


def adapt(tensors, source, target, new_head, interpolation="linear"):
    """Tensors of a model of configuration `source` for one of `target`, and prefixes of names that start afresh."""
    tensors = dict(tensors)
    fresh = set_head(tensors, source, target, new_head)
    set_channels(tensors, source, target)
    if POSITIONS in tensors:
        computed = isinstance(tensors[POSITIONS], SineCosine)
        if computed:
            tensors[POSITIONS] = tensors[POSITIONS].on(target.grid)
        fresh += set_classifier(tensors, source, target)
        set_patches(tensors, source, target)
        if not computed:
            set_grid(tensors, source, target, interpolation)
    return tensors, fresh


def set_head(tensors, source, target, new_head):
    """A new head takes the place of both layers of the old one (section 3.2); features keep the tanh layer."""
    prefixes = HEADS if new_head or source.num_classes != target.num_classes else ()
    if new_head or representation(source) != representation(target):
        prefixes += ("pre_logits/",)
    drop(tensors, prefixes)
    return prefixes


def representation(config):
    return getattr(config, "representation_size", None)


def drop(tensors, prefixes):
    for name in [name for name in tensors if name.startswith(prefixes)]:
        del tensors[name]


def set_channels(tensors, source, target):
    """One channel takes the sum over the old ones; more repeat them, scaled so that a grey picture's response stays."""
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
    n, l, d = tensors[POSITIONS].shape
    if target.classifier == "gap":
        del tensors["cls"]
        tensors[POSITIONS] = tensors[POSITIONS].map((n, l - 1, d), lambda values: values[:, 1:])
        return ()
    tensors[POSITIONS] = tensors[POSITIONS].map(
        (n, l + 1, d), lambda values: np.concatenate([np.zeros_like(values[:, :1]), values], axis=1)
    )
    return ("cls",)


def set_patches(tensors, source, target):
    if source.patch_size != target.patch_size:
        _, _, channels, d = tensors[PATCHES].shape
        size = target.patch_size
        tensors[PATCHES] = tensors[PATCHES].map((*size, channels, d), lambda kernel: resize_patches(kernel, size))


def set_grid(tensors, source, target, interpolation):
    if source.grid != target.grid:
        prefix = int(target.classifier == "token")
        n, _, d = tensors[POSITIONS].shape
        rows, columns = target.grid
        tensors[POSITIONS] = tensors[POSITIONS].map(
            (n, prefix + rows * columns, d),
            lambda values: resize_positions(values, prefix, source.grid, target.grid, interpolation),
        )

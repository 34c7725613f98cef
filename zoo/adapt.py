"""Fits a checkpoint's tensors to a model that differs from it: another image size, another head."""

import numpy as np

from keras_vit.zoo.architecture import POSITIONS

HEADS = ("head/", "resnet/head/")


def adapt(tensors, source, target):
    """Tensors of a model of configuration `source` for one of `target`, and the names that start afresh."""
    tensors = dict(tensors)
    if POSITIONS in tensors and source.grid != target.grid:
        tensors[POSITIONS] = resize_positions(tensors[POSITIONS], source, target)
    dropped = [name for name in tensors if name.startswith(dropped_prefixes(source, target))]
    fresh = () if not target.num_classes or source.num_classes == target.num_classes else HEADS
    return {name: tensor for name, tensor in tensors.items() if name not in dropped}, fresh


def dropped_prefixes(source, target):
    """The head goes where the classes change (section 3.2), the tanh layer with it unless the target keeps it."""
    prefixes = HEADS if source.num_classes != target.num_classes else ()
    if getattr(source, "representation_size", None) and not target.representation_size:
        prefixes += ("pre_logits/",)
    return prefixes


def resize_positions(tensor, source, target):
    prefix = int(source.classifier == "token")
    n, _, d = tensor.shape
    rows, columns = target.grid
    return tensor.map((n, prefix + rows * columns, d), lambda values: resize(values, prefix, source.grid, target.grid))


def resize(values, prefix, old_grid, new_grid):
    """Position embeddings (1, prefix + rows * columns, d) on another grid, the authors' way (section 3.2).

    Linear in each direction with the corners kept in place, as scipy.ndimage.zoom of order 1.
    """
    head, grid = values[:, :prefix], values[0, prefix:].reshape(*old_grid, -1)
    for axis, length in enumerate(new_grid):
        grid = resize_axis(grid, axis, length)
    return np.concatenate([head, grid.reshape(1, -1, values.shape[-1]).astype(values.dtype)], axis=1)


def resize_axis(grid, axis, length):
    old = grid.shape[axis]
    place = np.arange(length) * (old - 1) / max(length - 1, 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, old - 1)
    weight = (place - low).reshape([-1 if i == axis else 1 for i in range(grid.ndim)])
    return np.take(grid, low, axis) * (1 - weight) + np.take(grid, high, axis) * weight

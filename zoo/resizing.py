"""Resizes position embeddings and patch kernels, by a matrix for each axis."""

import numpy as np

from keras_vit.layers.interpolation import POSITION_MATRICES, centred_matrix


def resize_axis(values, axis, matrix):
    """The values with one axis multiplied by a matrix (new, old)."""
    return np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)


def axis_matrix(interpolation, old, new):
    """The matrix (new, old) that resizes an axis of position embeddings; for the kinds see `POSITION_MATRICES`."""
    return POSITION_MATRICES[interpolation](old, np.arange(new, dtype="float64"))


def resize_positions(values, prefix, old_grid, new_grid, interpolation="linear"):
    """Position embeddings (1, prefix + rows * columns, d) on another grid (section 3.2)."""
    head, grid = values[:, :prefix], values[0, prefix:].reshape(*old_grid, -1)
    for axis, (old, new) in enumerate(zip(old_grid, new_grid, strict=True)):
        grid = resize_axis(grid, axis, axis_matrix(interpolation, old, new))
    return np.concatenate([head, grid.reshape(1, -1, values.shape[-1]).astype(values.dtype)], axis=1)


def raster_offsets(grid):
    """The row of the offset of each step: (2 rows - 1, 2 columns - 1), of steps from -(rows - 1, columns - 1) on."""
    rows, columns = grid
    down, right = np.arange(1 - rows, rows), np.arange(1 - columns, columns)
    return rows * columns - 1 + down[:, None] * columns + right


def resize_offsets(values, old_grid, new_grid, interpolation="linear"):
    """Embeddings (2 * rows * columns - 1, d) of the offsets between patches in raster order, on another grid.

    An offset is of one or two steps (down, right): three to the right in rows of four are also one down and one to the
    left. The embeddings are laid out by steps, resized as position embeddings are, and every new offset takes the mean
    over the pairs of patches that are so far apart.
    """
    steps = values[raster_offsets(old_grid)]  # (2 rows - 1, 2 columns - 1, d)
    for axis, (old, new) in enumerate(zip(old_grid, new_grid, strict=True)):
        steps = resize_axis(steps, axis, axis_matrix(interpolation, 2 * old - 1, 2 * new - 1))
    rows, columns = new_grid
    pairs = np.outer(*(side - np.abs(np.arange(1 - side, side)) for side in new_grid))
    total = np.zeros((2 * rows * columns - 1, values.shape[1]))
    np.add.at(total, raster_offsets(new_grid), pairs[..., None] * steps)
    count = np.bincount(raster_offsets(new_grid).ravel(), pairs.ravel())
    return (total / count[:, None]).astype(values.dtype)


def resize_line_offsets(values, length, interpolation="linear"):
    """Vectors of the offsets -(old - 1) to old - 1 along a line, (2 * old - 1, d), for a line of another length.

    Offsets scale with the line: the first, the middle and the last stay what they are.
    """
    return resize_axis(values, 0, axis_matrix(interpolation, len(values), 2 * length - 1)).astype(values.dtype)


def resize_patches(kernel, new_size):
    """A patch kernel (h, w, c, d) for patches of another size, by pseudo-inverse (FlexiViT, arXiv 2212.08013).

    A resized patch then keeps its embedding, exactly so if patches grow. As in the authors' code (resample_patchemb in
    big_vision's models/proj/flexi/vit.py), the resize that is inverted does not antialias.
    """
    result = kernel
    for axis, new in enumerate(new_size):
        resize = centred_matrix(kernel.shape[axis], np.arange(new, dtype="float64"), antialias=False)  # (new, old)
        result = resize_axis(result, axis, np.linalg.pinv(resize.T))
    return result.astype(kernel.dtype)

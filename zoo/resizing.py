"""Matrices that resize one axis, and what is resized with them: position embeddings and patch kernels."""

import numpy as np


def corner_aligned_matrix(old, new):
    """Linear interpolation with the corners kept in place, (new, old): scipy.ndimage.zoom of order 1."""
    place = np.arange(new) * (old - 1) / max(new - 1, 1)
    low = np.minimum(place.astype(int), max(old - 2, 0))
    matrix = np.zeros((new, old))
    matrix[np.arange(new), low] += 1 - (place - low)
    matrix[np.arange(new), np.minimum(low + 1, old - 1)] += place - low
    return matrix


def triangle(x):
    """The kernel of linear interpolation."""
    return np.maximum(1 - np.abs(x), 0)


def cubic(x, a=-0.5):
    """Keys' cubic convolution kernel."""
    x = np.abs(x)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def clamped_matrix(old, new, offset=0.0):
    """PyTorch's bicubic between pixel centres without antialiasing, (new, old): places outside are those of the edge.

    A step of the output is old / (new + offset) of the input; DINOv2's authors have an `offset` of 0.1.
    """
    centres = (np.arange(new) + 0.5) * old / (new + offset) - 0.5
    first = np.floor(centres).astype(int)
    matrix = np.zeros((new, old))
    for tap in range(-1, 3):
        place = np.clip(first + tap, 0, old - 1)
        np.add.at(matrix, (np.arange(new), place), cubic(centres - (first + tap), a=-0.75))
    return matrix


def centred_matrix(old, new, kernel, antialias=True):
    """Interpolation between pixel centres, (new, old); `antialias` widens the kernel of an axis that shrinks."""
    widen = max(old / new, 1) if antialias else 1
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    matrix = kernel((np.arange(old) - centres[:, None]) / widen)
    return matrix / matrix.sum(axis=1, keepdims=True)


def resize_axis(values, axis, matrix):
    """The values with one axis multiplied by a matrix (new, old)."""
    return np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)


POSITION_MATRICES = {
    "linear": corner_aligned_matrix,
    "bilinear": lambda old, new: centred_matrix(old, new, triangle),
    "bicubic": lambda old, new: centred_matrix(old, new, cubic),
    "bicubic-plain": clamped_matrix,
    "dinov2": lambda old, new: clamped_matrix(old, new, offset=0.1),
}


def resize_positions(values, prefix, old_grid, new_grid, interpolation="linear"):
    """Position embeddings (1, prefix + rows * columns, d) on another grid (section 3.2).

    "linear" is the way of ViT's authors, "bilinear" of FlexiViT's, "bicubic" timm's, "bicubic-plain" transformers',
    "dinov2" that of DINOv2's authors.
    """
    head, grid = values[:, :prefix], values[0, prefix:].reshape(*old_grid, -1)
    for axis, (old, new) in enumerate(zip(old_grid, new_grid, strict=True)):
        grid = resize_axis(grid, axis, POSITION_MATRICES[interpolation](old, new))
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
        steps = resize_axis(steps, axis, POSITION_MATRICES[interpolation](2 * old - 1, 2 * new - 1))
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
    return resize_axis(values, 0, POSITION_MATRICES[interpolation](len(values), 2 * length - 1)).astype(values.dtype)


def resize_patches(kernel, new_size):
    """A patch kernel (h, w, c, d) for patches of another size, by pseudo-inverse (FlexiViT, arXiv 2212.08013).

    The embedding of a resized patch is then that of the patch before, exactly so where patches grow. As in the authors'
    code, resample_patchemb of big_vision's models/proj/flexi/vit.py, what is inverted does not antialias.
    """
    result = kernel
    for axis, new in enumerate(new_size):
        resize = centred_matrix(kernel.shape[axis], new, triangle, antialias=False)  # (new, old)
        result = resize_axis(result, axis, np.linalg.pinv(resize.T))
    return result.astype(kernel.dtype)

"""Position embeddings on another grid (section 3.2) and patches of another size, by a matrix (new, old) for each axis.

`places` are 0, 1, ..., new - 1. `xp` is NumPy when weights are loaded, and `keras.ops` when a model of any image size
is called; `places` is an array of the same library. Distances are computed from integers, which float32 holds exactly.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def triangle(x, xp):
    """The kernel of linear interpolation."""
    return xp.maximum(1 - xp.abs(x), 0)


def cubic(x, xp, a=-0.5):
    """Keys' cubic convolution kernel: one polynomial up to 1, another to 2, each 0 at its ends."""
    x = xp.abs(x)
    near, far = xp.minimum(x, 1), xp.minimum(xp.maximum(x, 1), 2)
    return ((a + 2) * near - (a + 3)) * near * near + 1 + a * (((far - 5) * far + 8) * far - 4)


def count(places):
    """The number of places, as an array of one element."""
    return places[-1:, ...] + 1


def distances(old, places, tenths=0, beyond=0):
    """Distances from the centre of each new cell to those of the old cells, in old cells: (new, old + 2 * beyond).

    One step in the output is old / (new + tenths / 10) in the input. `beyond` adds so many old cells at either end.
    """
    step = 10 * count(places) + tenths
    cells = np.arange(-beyond, old + beyond, dtype="float32")
    return (step * (2 * cells + 1) - 10 * old * (2 * places[:, None] + 1)) / (2 * step)


def corner_aligned_matrix(old, places, moved, xp):
    """Linear interpolation with the corners kept in place: scipy.ndimage.zoom of order 1."""
    steps = xp.maximum(places[-1:, ...], 1)
    return triangle((steps * np.arange(old, dtype="float32") - (old - 1) * places[:, None]) / steps, xp)


def centred_matrix(old, places, moved, xp, kernel=triangle, antialias=True):
    """Interpolation between pixel centres; `antialias` widens the kernel of an axis that shrinks."""
    widen = xp.maximum(old / count(places), 1) if antialias else 1
    matrix = kernel(distances(old, places) / widen, xp)
    return matrix / xp.sum(matrix, axis=1, keepdims=True)


def clamped_matrix(old, places, moved, xp, tenths=0):
    """PyTorch's bicubic interpolation between pixel centres, not antialiased; cells outside repeat the edge."""
    weights = cubic(distances(old, places, tenths, beyond=2), xp, a=-0.75)
    edges = np.pad(np.eye(old, dtype="float32"), ((2, 2), (0, 0)), mode="edge")
    return xp.matmul(weights, edges)


def dinov2_matrix(old, places, moved, xp):
    """`clamped_matrix` with the offset of 0.1 of DINOv2's authors, who do not resize a grid of the same size."""
    return clamped_matrix(old, places, moved, xp, tenths=moved)


# "linear" is what ViT's authors do, "bilinear" FlexiViT's, "bicubic" timm, "bicubic-plain" transformers and "dinov2"
# DINOv2's authors. `moved` is 1, or 0 if both axes of the grid keep their length.
POSITION_MATRICES: dict[str, Callable[..., Any]] = {
    "linear": corner_aligned_matrix,
    "bilinear": centred_matrix,
    "bicubic": functools.partial(centred_matrix, kernel=cubic),
    "bicubic-plain": clamped_matrix,
    "dinov2": dinov2_matrix,
}


def grid_matrices(grid: tuple[int, int], places: Any, interpolation: str, xp: Any) -> list[Any]:
    """The two matrices that resize a grid of (rows, columns) to that of `places`, a pair."""
    moved = xp.minimum(sum(xp.abs(count(new) - old) for old, new in zip(grid, places, strict=True)), 1)
    matrix = POSITION_MATRICES[interpolation]
    return [matrix(old, new, moved, xp) for old, new in zip(grid, places, strict=True)]


def multiply_axis(values, axis, matrix):
    """Multiplies one axis of the values by a matrix (new, old)."""
    return np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)


def resize_axis(values, axis, new, interpolation):
    """Resizes one axis of position embeddings; for the kinds of interpolation see `POSITION_MATRICES`."""
    matrix = POSITION_MATRICES[interpolation](values.shape[axis], np.arange(new, dtype="float64"), 1, np)
    return multiply_axis(values, axis, matrix)


def resize_positions(values, prefix, old_grid, new_grid, interpolation="linear"):
    """Position embeddings (1, prefix + rows * columns, d) on another grid (section 3.2)."""
    head, grid = values[:, :prefix], values[0, prefix:].reshape(*old_grid, -1)
    for axis, new in enumerate(new_grid):
        grid = resize_axis(grid, axis, new, interpolation)
    return np.concatenate([head, grid.reshape(1, -1, values.shape[-1]).astype(values.dtype)], axis=1)


def raster_offsets(grid):
    """The row of each step's offset, (2 rows - 1, 2 columns - 1); the first step is (-(rows - 1), -(columns - 1))."""
    rows, columns = grid
    down, right = np.arange(1 - rows, rows), np.arange(1 - columns, columns)
    return rows * columns - 1 + down[:, None] * columns + right


def resize_steps(values, axis, new, interpolation):
    """Resizes one axis of embeddings of steps: the first, the middle and the last stay the same.

    A single one is that of no step, in the middle.
    """
    if new == 1:
        return np.take(values, [values.shape[axis] // 2], axis)
    return resize_axis(values, axis, new, interpolation).astype(values.dtype)


def resize_offsets(values, old_grid, new_grid, interpolation="linear"):
    """Resizes embeddings (2 * rows * columns - 1, d) of the offsets between patches in raster order to another grid.

    One offset stands for one or two steps (down, right): in rows of four, three to the right is also one down and one
    to the left. The embeddings are laid out by steps and resized as position embeddings are. Then each new offset
    takes the mean over all pairs of patches at that offset.
    """
    steps = values[raster_offsets(old_grid)]  # (2 rows - 1, 2 columns - 1, d)
    for axis, new in enumerate(new_grid):
        steps = resize_steps(steps, axis, 2 * new - 1, interpolation)
    rows, columns = new_grid
    pairs = np.outer(*(side - np.abs(np.arange(1 - side, side)) for side in new_grid))
    total = np.zeros((2 * rows * columns - 1, values.shape[1]))
    np.add.at(total, raster_offsets(new_grid), pairs[..., None] * steps)
    pairs_of_offset = np.bincount(raster_offsets(new_grid).ravel(), pairs.ravel())
    return (total / pairs_of_offset[:, None]).astype(values.dtype)


def resize_line(values, length, interpolation):
    """Resizes embeddings (old, d) of the places along a line to another length."""
    return resize_axis(values, 0, length, interpolation).astype(values.dtype)


def resize_patches(kernel, new_size):
    """Resizes a patch kernel (h, w, c, d) to patches of another size, by pseudo-inverse (FlexiViT, arXiv 2212.08013).

    A patch that is resized alike keeps its embedding, exactly so if it grows. As in the authors' code
    (resample_patchemb in big_vision's models/proj/flexi/vit.py), the inverted resize does not antialias.
    """
    result = kernel
    for axis, new in enumerate(new_size):
        places = np.arange(new, dtype="float64")
        resize = centred_matrix(kernel.shape[axis], places, 1, np, antialias=False)  # (new, old)
        result = multiply_axis(result, axis, np.linalg.pinv(resize.T))
    return result.astype(kernel.dtype)

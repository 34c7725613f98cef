"""Matrices (new, old) that interpolate along one axis, and position embeddings on another grid (section 3.2).

`places` are 0, 1, ..., new - 1. They and `xp` are NumPy's, when weights are loaded, or those of `keras.ops`, when a
model of any image size is called. Distances come of whole numbers, which float32 holds.
"""

from typing import Any

import numpy as np


def triangle(x, xp=np):
    """The kernel of linear interpolation."""
    return xp.maximum(1 - xp.abs(x), 0)


def cubic(x, xp=np, a=-0.5):
    """Keys' cubic convolution kernel: one polynomial up to 1, another to 2, each 0 at its ends."""
    x = xp.abs(x)
    near, far = xp.minimum(x, 1), xp.minimum(xp.maximum(x, 1), 2)
    return ((a + 2) * near - (a + 3)) * near * near + 1 + a * (((far - 5) * far + 8) * far - 4)


def count(places):
    """How many there are, as an array of one number."""
    return places[-1:, ...] + 1


def distances(old, places, tenths=0, beyond=0):
    """From the centre of each new cell to those of the old ones, in old cells: (new, old + 2 * beyond).

    A step of the output is old / (new + tenths / 10) of the input; `beyond` counts cells at either end.
    """
    step = 10 * count(places) + tenths
    cells = np.arange(-beyond, old + beyond, dtype="float32")
    return (step * (2 * cells + 1) - 10 * old * (2 * places[:, None] + 1)) / (2 * step)


def corner_aligned_matrix(old, places, moved=1, xp=np):
    """Linear interpolation with the corners kept in place: scipy.ndimage.zoom of order 1."""
    steps = xp.maximum(places[-1:, ...], 1)
    return triangle((steps * np.arange(old, dtype="float32") - (old - 1) * places[:, None]) / steps, xp)


def centred_matrix(old, places, moved=1, xp=np, kernel=triangle, antialias=True):
    """Interpolation between pixel centres; `antialias` widens the kernel of an axis that shrinks."""
    widen = xp.maximum(old / count(places), 1) if antialias else 1
    matrix = kernel(distances(old, places) / widen, xp)
    return matrix / xp.sum(matrix, axis=1, keepdims=True)


def bicubic_matrix(old, places, moved=1, xp=np):
    return centred_matrix(old, places, moved, xp, kernel=cubic)


def clamped_matrix(old, places, moved=1, xp=np, tenths=0):
    """PyTorch's bicubic between pixel centres without antialiasing: places outside are those of the edge."""
    weights = cubic(distances(old, places, tenths, beyond=2), xp, a=-0.75)
    edges = np.pad(np.eye(old, dtype="float32"), ((2, 2), (0, 0)), mode="edge")
    return xp.matmul(weights, edges)


def dinov2_matrix(old, places, moved=1, xp=np):
    """`clamped_matrix` with the offset of 0.1 of DINOv2's authors, who leave a grid that is the old one as it is."""
    return clamped_matrix(old, places, xp=xp, tenths=moved)


# "linear" is the way of ViT's authors, "bilinear" of FlexiViT's, "bicubic" timm's, "bicubic-plain" transformers',
# "dinov2" that of DINOv2's authors.
POSITION_MATRICES = {
    "linear": corner_aligned_matrix,
    "bilinear": centred_matrix,
    "bicubic": bicubic_matrix,
    "bicubic-plain": clamped_matrix,
    "dinov2": dinov2_matrix,
}


def grid_matrices(grid: tuple[int, int], places: Any, interpolation: str, xp: Any = np) -> list[Any]:
    """The two matrices that bring a grid of (rows, columns) to that of `places`, a pair."""
    moved = xp.minimum(sum(xp.abs(count(new) - old) for old, new in zip(grid, places, strict=True)), 1)
    matrix = POSITION_MATRICES[interpolation]
    return [matrix(old, new, moved, xp) for old, new in zip(grid, places, strict=True)]

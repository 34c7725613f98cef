"""How far attention reaches (section 4.5, Appendix D.7)."""

import numpy as np

from keras_vit.inspection.attention import require_grid


def attention_distance(weights: np.ndarray, grid: tuple[int, int], patch_size: int | tuple[int, int] = 1) -> np.ndarray:
    """The mean distance between a query patch and the patches it attends to (Figures 7 right and 11), in pixels.

    The class token is left out, as query and as key, and the weights that stay are scaled to sum to 1.

    Args:
        weights: attention weights of images, (num_layers, n, num_heads, l, l), from `attention_weights`; the paper
            averages over 128 images.
        grid: (rows, columns) of patches, `model.config.grid`.
        patch_size: pixels per token, an int or (height, width): `model.config.pixels_per_token`, for a hybrid too.

    Returns:
        (num_layers, num_heads), averaged over queries and images.

    Raises:
        ConfigError: when the weights are not of that grid.

    >>> weights = np.broadcast_to(np.eye(4), (2, 1, 3, 4, 4))  # every patch attends to itself
    >>> attention_distance(weights, (2, 2), 16)
    array([[0., 0., 0.],
           [0., 0., 0.]])
    """
    patches = patch_weights(weights, grid).mean(axis=1)  # (num_layers, num_heads, patches, patches)
    return np.einsum("ahqk,qk->ah", patches, distances(grid, patch_size)) / len(patches[0, 0])


def patch_weights(weights, grid):
    """The weights between patches, of each query summing to 1: (num_layers, n, num_heads, patches, patches)."""
    weights, patches = np.asarray(weights, "float64"), require_grid(weights, grid)
    kept = weights[..., -patches:, -patches:]
    return kept / np.maximum(kept.sum(-1, keepdims=True), np.finfo("float64").tiny)


def distances(grid, patch_size):
    """Euclidean distances between the centres of all pairs of patches, in pixels: (patches, patches)."""
    size = np.broadcast_to(patch_size, 2)
    centres = np.indices(grid).reshape(2, -1).T * size  # (patches, 2)
    return np.linalg.norm(centres[:, None] - centres[None], axis=-1)

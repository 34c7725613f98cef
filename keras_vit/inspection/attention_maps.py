"""Where a model looks, and how far: attention weights, Attention Rollout and distance (section 4.5, D.7, D.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_vit.errors import ConfigError

if TYPE_CHECKING:
    from keras import Model

    from keras_vit.models import VisionTransformer


def require_transformer(model: Model, function: str) -> None:
    """Raises ConfigError for a model without attention."""
    if not hasattr(model, "attention"):
        hint = " For a ResNet there is class_activation." if hasattr(model, "config") else ""
        raise ConfigError(f"{function} takes a VisionTransformer. Received: a {type(model).__name__}.{hint}")


def as_inputs(model: Model, images: Any) -> Any:
    """A batch of images as a tensor; ConfigError if the model does not take its shape."""
    expected, shape = model.inputs[0].shape, tuple(np.shape(images))
    if len(shape) != len(expected) or any(b is not None and a != b for a, b in zip(shape, expected, strict=True)):
        asked = ", ".join("any" if length is None else str(length) for length in expected[1:])
        raise ConfigError(f"The model takes images of the shape (n, {asked}). Received: {shape}.")
    return model._standardize_inputs(ops.convert_to_tensor(images))[0]


def require_grid(weights: np.ndarray, grid: tuple[int, int], registers: int) -> int:
    """The number of patches; raises ConfigError if the weights do not fit the grid, with or without a class token."""
    patches, shape = grid[0] * grid[1], np.shape(weights)
    least = patches + registers
    if len(shape) != 5 or shape[-2:] not in ((least, least), (least + 1, least + 1)):
        raise ConfigError(
            f"The weights of {grid[0]}x{grid[1]} patches must be (num_layers, n, num_heads, l, l) with l {least}, or "
            f"{least + 1} with the class token. Received: shape {shape}. For a model with registers pass "
            "registers=model.config.num_registers."
        )
    return patches


def attention_weights(model: VisionTransformer, images: Any) -> np.ndarray:
    """The attention weights A (Eq. 6) of every block: (num_layers, n, num_heads, l, l), rows summing to 1.

    Args:
        model: a VisionTransformer; if it is axial, the weights are zero outside a patch's row or column.
        images: (n, h, w, channels), as the model takes them.

    Raises:
        ConfigError: for a ResNet (an axial ResNet's attention is in feature maps of several sizes), or images of
            another shape.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> attention_weights(model, np.zeros((2, 32, 32, 3))).shape
    (4, 2, 4, 65, 65)
    """
    require_transformer(model, "attention_weights")
    weights = ops.cast(model.attention(as_inputs(model, images)), "float32")
    return np.moveaxis(ops.convert_to_numpy(weights), 1, 0)


def rollout(weights: np.ndarray, grid: tuple[int, int], token: bool | None = None, registers: int = 0) -> np.ndarray:
    """Attention from the output to an image's patches: (n, rows, columns), with sum 1 for each image.

    Attention Rollout (arXiv 2005.00928) averages the heads, adds the residual connection as an identity, and multiplies
    the blocks' matrices.

    Args:
        weights: (num_layers, n, num_heads, l, l), from `attention_weights`.
        grid: (rows, columns) of patches, `model.config.grid`.
        token: True for the attention of the class token, the first one; False for the mean over the patches, as read by
            a model with classifier="gap"; None for True if there is one token more than patches and registers.
        registers: number of tokens between the class token and the patches, `model.config.num_registers`.

    Raises:
        ConfigError: when the weights do not fit the grid, or have no class token although `token` is True.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> rollout(attention_weights(model, np.zeros((2, 32, 32, 3))), model.config.grid).shape
    (2, 8, 8)
    """
    patches = require_grid(weights, grid, registers)
    has_token = weights.shape[-1] > patches + registers
    if token and not has_token:
        raise ConfigError(
            f"These weights of {weights.shape[-1]} tokens have no class token: rollout needs token=False or None."
        )
    token = has_token if token is None else token
    a = 0.5 * weights.mean(axis=2) + 0.5 * np.eye(weights.shape[-1])  # (num_layers, n, l, l)
    joint = a[0]
    for block in a[1:]:
        joint = block @ joint
    attention = (joint[:, 0] if token else joint[:, -patches:].mean(axis=1))[:, -patches:]
    return (attention / attention.sum(axis=-1, keepdims=True)).reshape(-1, *grid)


def patch_weights(weights, grid, registers):
    """The weights between patches, with sum 1 for each query: (num_layers, n, num_heads, patches, patches)."""
    weights, patches = np.asarray(weights, "float64"), require_grid(weights, grid, registers)
    kept = weights[..., -patches:, -patches:]
    return kept / np.maximum(kept.sum(-1, keepdims=True), np.finfo("float64").tiny)


def distances(grid, patch_size):
    """Euclidean distances between the centres of all pairs of patches, in pixels: (patches, patches)."""
    size = np.broadcast_to(patch_size, 2)
    centres = np.indices(grid).reshape(2, -1).T * size  # (patches, 2)
    return np.linalg.norm(centres[:, None] - centres[None], axis=-1)


def attention_distance(
    weights: np.ndarray, grid: tuple[int, int], patch_size: int | tuple[int, int] = 1, registers: int = 0
) -> np.ndarray:
    """The mean distance in pixels between a query patch and the patches it attends to (Figures 7 right and 11).

    Class token and registers are left out, as queries and as keys, and the remaining weights are scaled to sum to 1.

    Args:
        weights: attention weights of images, (num_layers, n, num_heads, l, l), from `attention_weights`; the paper
            averages over 128 images.
        grid: (rows, columns) of patches, `model.config.grid`.
        patch_size: pixels per token, an int or (height, width): `model.config.pixels_per_token`, also for a hybrid.
        registers: `model.config.num_registers`.

    Returns:
        (num_layers, num_heads), averaged over queries and images.

    Raises:
        ConfigError: when the weights do not fit the grid.

    >>> weights = np.broadcast_to(np.eye(4), (2, 1, 3, 4, 4))  # every patch attends to itself
    >>> attention_distance(weights, (2, 2), 16)
    array([[0., 0., 0.],
           [0., 0., 0.]])
    """
    require_grid(weights, grid, registers)
    far = distances(grid, patch_size)
    # Block by block: in float64 the weights of all blocks take gigabytes for a large image.
    blocks = (patch_weights(weights[i : i + 1], grid, registers)[0].mean(axis=0) for i in range(len(weights)))
    return np.stack([np.einsum("hqk,qk->h", block, far) for block in blocks]) / len(far)

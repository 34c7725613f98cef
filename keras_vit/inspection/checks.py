"""What the functions of this room require of a model and of images."""

from typing import Any

import numpy as np
from keras import Model, ops

from keras_vit.errors import ConfigError


def require_transformer(model: Model, function: str) -> None:
    """Raises ConfigError for a model without attention."""
    if not hasattr(model, "attention"):
        hint = " For a ResNet there is class_activation." if hasattr(model, "config") else ""
        raise ConfigError(f"{function} takes a VisionTransformer. Received: a {type(model).__name__}.{hint}")


def as_inputs(model: Model, images: Any) -> Any:
    """A batch of images as a tensor; ConfigError where the model does not take its shape."""
    expected, shape = model.inputs[0].shape, tuple(np.shape(images))
    if len(shape) != len(expected) or any(b is not None and a != b for a, b in zip(shape, expected, strict=True)):
        asked = ", ".join("any" if length is None else str(length) for length in expected[1:])
        raise ConfigError(f"The model takes images of the shape (n, {asked}). Received: {shape}.")
    return model._standardize_inputs(ops.convert_to_tensor(images))[0]


def require_grid(weights: np.ndarray, grid: tuple[int, int]) -> int:
    """The number of patches; ConfigError where weights are not of that grid, with or without a class token."""
    patches, shape = grid[0] * grid[1], np.shape(weights)
    if len(shape) != 5 or shape[-2:] not in ((patches, patches), (patches + 1, patches + 1)):
        raise ConfigError(
            f"The weights of {grid[0]}x{grid[1]} patches must be (num_layers, n, num_heads, l, l) with l {patches}, "
            f"or {patches + 1} with the class token. Received: shape {shape}."
        )
    return patches

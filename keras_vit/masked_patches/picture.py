"""Draws a model's predictions of masked patches (Appendix B.1.2)."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.data.augment.masked_patches import LEVELS, MaskedPatches
from keras_vit.models.preprocessing import to_pixels
from keras_vit.pages import write_figure

GREY = 0.5  # of masked patches
TITLES = ("images", "corrupted", "predicted", "right")


def colours_to_pixels(numbers, objective):
    """Turns numbers of colours (..., [16]) into patches (..., height, width, 3) in [0, 1] of these colours' centres."""
    levels = np.stack([numbers // LEVELS**2, numbers // LEVELS % LEVELS, numbers % LEVELS], -1)
    side, (height, width) = objective.side, objective.patch_size
    # (..., side, side, 3); each pixel has the colour of its part.
    parts = ((levels + 0.5) / LEVELS).reshape(*numbers.shape[:2], side, side, 3)
    return parts[..., np.arange(height)[:, None] * side // height, np.arange(width) * side // width, :]


def cut(images, objective):
    """Cuts (n, h, w, 3) into (n, patches, height, width, 3)."""
    n, h, w, c = images.shape
    height, width = objective.patch_size
    parts = images.reshape(n, h // height, height, w // width, width, c)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, height, width, c)


def join(patches, grid):
    """The reverse of `cut`."""
    n, _, height, width, c = patches.shape
    parts = patches.reshape(n, *grid, height, width, c).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, grid[0] * height, grid[1] * width, c)


def picture_patches(values: np.ndarray, model: Any) -> np.ndarray:
    """Turns targets or predictions of patches into pixels in [0, 1]: (n, count, patch height, patch width, 3).

    Args:
        values: class numbers (n, count) or (n, count, 16), or pixels (n, count, pixels * 3) as the model receives them.
        model: a `MaskedPatchModel`.
    """
    objective: MaskedPatches = model.objective
    if objective.side is not None:
        return colours_to_pixels(values, objective)
    return to_pixels(values.reshape(*values.shape[:2], *objective.patch_size, 3), model)


def draw_masked_patches(
    model: Any, inputs: Mapping[str, Any], targets: Any, predictions: Any, path: str | os.PathLike
) -> None:
    """Writes a PNG with a column for each image: the image, the model's input, its prediction, the target.

    Masked patches are grey. In the lower two rows only the corrupted patches are painted over the image.

    Args:
        model: a `MaskedPatchModel`.
        inputs, targets: a batch, of a few images, of `examples.with_objective(model.objective)`.
        predictions: model(inputs).
        path: of the file.
    """
    images, sources, places = (np.asarray(inputs[name]) for name in ("images", "sources", "places"))
    predictions = keras.ops.convert_to_numpy(predictions)
    predictions = predictions if model.objective.side is None else predictions.argmax(-1)
    patches = cut(to_pixels(images, model), model.objective)
    which = np.arange(len(images))[:, None]
    seen = np.where((sources < 0)[..., None, None, None], GREY, patches[which, np.maximum(sources, 0)])
    rows = [patches, seen]
    for values in (predictions, np.asarray(targets)):
        painted = patches.copy()
        painted[which, places] = picture_patches(values, model)
        rows.append(painted)
    with write_figure(path, 1.5 * len(images) + 1, 1.5 * len(rows)) as figure:
        for axes, title, row in zip(figure.subplots(len(rows), len(images), squeeze=False), TITLES, rows, strict=True):
            for axis, picture in zip(axes, join(row, model.config.grid), strict=True):
                axis.imshow(picture, vmin=0, vmax=1)
                axis.set(xticks=[], yticks=[])
            axes[0].set_ylabel(title)

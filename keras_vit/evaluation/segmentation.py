"""Evaluates segmentation: intersection over union, and pictures of a model's worst masks."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.errors import ConfigError, shorten
from keras_vit.evaluation.evaluating import matched_batches
from keras_vit.evaluation.scores import count_confusion, share
from keras_vit.images.pixels import class_colours, paint_classes
from keras_vit.models.preprocessing import require_described, require_finite, to_pixels
from keras_vit.pages import write_figure

if TYPE_CHECKING:
    from keras_vit.data import Examples

MOST_NAMED = 24  # classes of a picture's legend


@dataclass(frozen=True)
class ClassIoU:
    """A class: its number of pixels, and intersection over union, in [0, 1], or None if no mask has the class."""

    name: str
    pixels: int
    iou: float | None


@dataclass(frozen=True)
class Segmentation:
    """The scores of masks, pixel by pixel, at the size of the model's input.

    Args:
        images: number of images.
        mean_iou: mean over the classes that occur in a true or predicted mask, in [0, 1].
        pixel_accuracy: share of correct pixels, in [0, 1].
        classes: one `ClassIoU` per class.
        confusion: counts of pixels (true classes, predicted classes).
        worst: (image (h, w, c) in [0, 1], labels (h, w), predicted (h, w), share of correct pixels), worst first.
    """

    images: int
    mean_iou: float
    pixel_accuracy: float
    classes: tuple[ClassIoU, ...]
    confusion: np.ndarray
    worst: tuple = ()

    def as_dict(self) -> dict:
        """The fields as types of JSON."""
        facts = {name: getattr(self, name) for name in ("images", "mean_iou", "pixel_accuracy")}
        return {**facts, "classes": list(map(asdict, self.classes)), "confusion": self.confusion.tolist()}


def score_confusion(confusion, names, images, worst):
    """Makes the `Segmentation` from counts of pixels (true classes, predicted classes)."""
    right = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - right
    classes = tuple(
        ClassIoU(str(name), int(n), share(hits, of))
        for name, n, hits, of in zip(names, confusion.sum(1), right, union, strict=True)
    )
    mean = float(np.mean([score.iou for score in classes if score.iou is not None]))
    return Segmentation(images, mean, float(right.sum() / confusion.sum()), classes, confusion, tuple(worst))


def mean_iou(
    model: keras.Model,
    examples: "Examples",
    batch_size: int = 16,
    keep: int = 0,
    tell: Callable[[int], None] | None = None,
) -> Segmentation:
    """Intersection over union of every class, over all pixels of all masks except those of 255.

    Masks are compared at the size of the model's input; the true ones are resized to it by the nearest pixel.

    Args:
        model: a model with classifier="patches" and the examples' classes; or an exported one.
        examples: from a "masks:FOLDER".
        keep: number of the worst masks to keep.
        batch_size, tell: as for `evaluate`.

    Raises:
        ConfigError: for examples without masks, a model with one class per image, or one with other classes.

    >>> model = keras_vit.zoo.load("runs/1/best.weights.npz")  # doctest: +SKIP
    >>> mean_iou(model, keras_vit.data.load("masks:photos", "validation")).mean_iou  # doctest: +SKIP
    0.81
    """
    require_described(model)
    if not examples.masked:
        raise ConfigError(f"{examples.name} has no masks. Expected masks:FOLDER, a folder with images/ and masks/.")
    if model.config.classifier != "patches":
        raise ConfigError(
            f"The model gives an image one class, but {examples.name} has one for each pixel. Fine-tune a model on "
            "it: keras-vit finetune --task segmentation."
        )
    names, batches = matched_batches(model, examples, batch_size)
    confusion, worst, seen = np.zeros((len(names), len(names)), "int64"), [], 0
    for images, labels, weights in batches:
        images, counted, labels = np.asarray(images), np.asarray(weights) > 0, np.asarray(labels)
        predicted = require_finite(np.asarray(model.predict_on_batch(images)), model).argmax(-1)
        confusion += count_confusion(labels[counted], predicted[counted], len(names))
        shown = np.flatnonzero(counted.any((1, 2)))
        seen += len(shown)
        if keep:
            pixels, right = to_pixels(images, model), (labels == predicted) & counted
            labels = np.where(counted, labels, len(names))
            worst += [(pixels[i], labels[i], predicted[i], right[i].sum() / counted[i].sum()) for i in shown]
            worst = sorted(worst, key=lambda row: row[3])[:keep]
        if tell:
            tell(seen)
    if not seen:
        raise ConfigError(f"No mask of {examples.name} has a pixel that counts: all of them are 255.")
    return score_confusion(confusion, names, seen, worst)


def draw_masks(found: Segmentation, path: str | os.PathLike) -> None:
    """Writes a PNG of the worst masks: for each the image, the true classes over it, and the predicted ones."""
    from matplotlib.patches import Patch

    if not found.worst:
        raise ConfigError("There are no masks to draw. Keep some: mean_iou(model, examples, keep=8).")
    names, used = [score.name for score in found.classes], set()
    with write_figure(path, 7.5, 2.2 * len(found.worst) + 1) as figure:
        for axes, (image, labels, predicted, right) in zip(
            figure.subplots(len(found.worst), 3, squeeze=False), found.worst, strict=True
        ):
            used |= set(np.unique(labels[labels < len(names)])) | set(np.unique(predicted))
            masks = (None, "image"), (labels, "true"), (predicted, f"predicted, {right:.0%} right")
            for axis, (mask, title) in zip(axes, masks, strict=True):
                axis.imshow(
                    image if mask is None else paint_classes(image, mask, len(names)), cmap="gray", vmin=0, vmax=1
                )
                axis.set_title(title, fontsize=8)
                axis.set_axis_off()
        colours = class_colours(len(names))
        patches = [Patch(color=colours[i], label=shorten(names[i], 24)) for i in sorted(used)[:MOST_NAMED]]
        figure.legend(handles=patches, loc="outside lower center", ncols=4, fontsize=8)
        figure.suptitle(f"The worst masks; mean IoU {found.mean_iou:.1%}")

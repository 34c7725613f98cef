"""The predictions of a classifier for every example, and its mistakes as a figure and a table."""

import csv
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from keras_vit.errors import shorten
from keras_vit.evaluation.scores import count_confusion
from keras_vit.files import as_cell
from keras_vit.masked_patches.model import draw_masked_patches as draw_masked_patches  # public in this room
from keras_vit.models.preprocessing import require_finite, to_pixels, to_probabilities
from keras_vit.models.vectors import choose_predict
from keras_vit.pages import SHADES, write_figure

MOST_CLASSES = 30
SIDE = 6.5  # inches of each half of the figure


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for every example.

    Args:
        labels: true class, (n,); None if examples have several.
        predicted: most likely class, (n,).
        confidence: probability of the most likely class, (n,).
        worst: the most confident mistakes, as (image (h, w, c) in [0, 1], label, predicted, confidence), in this order.
        ranks: number of classes that are more likely than the correct one, (n,).
        images_per_second: of the model and its input together, without the first batch; None for a single batch.
    """

    labels: Any
    predicted: np.ndarray
    confidence: np.ndarray
    worst: tuple
    ranks: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    images_per_second: float | None = None

    @property
    def accuracy(self) -> float:
        return float((self.labels == self.predicted).mean())

    def confusion(self, num_classes: int) -> np.ndarray:
        """Counts (true classes, predicted classes) of examples."""
        return count_confusion(self.labels, self.predicted, num_classes)


def score_batch(logits, labels, model):
    """Ranks, confidences, most likely classes, labels. Labels: numbers (n,), or (n, classes) of 1 for correct ones."""
    probabilities = to_probabilities(logits.astype("float64"), model)
    order = np.argsort(-logits, axis=-1, kind="stable")  # among equal ones the first comes first, as in argmax
    single = labels.ndim == 1
    right = order == labels[:, None] if single else np.take_along_axis(labels, order, -1) > 0
    return right.argmax(-1), probabilities.max(-1), order[:, 0], labels if single else np.zeros(len(labels), int)


def predict_batches(
    predict: Callable, batches: Iterable, tell: Callable[[int], None] | None
) -> Iterator[tuple[Any, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (images, whether each counts, labels and outputs of those that do) from batches (images, labels, weights).

    Examples of weight 0 do not count. `predict` maps images to outputs; `tell` receives the number so far.
    """
    seen = 0
    for images, labels, weights in batches:
        images, kept = np.asarray(images), np.asarray(weights) > 0  # JAX does not accept TensorFlow's tensors
        yield images, kept, np.asarray(labels)[kept], keras.ops.convert_to_numpy(predict(images))[kept]
        seen += int(kept.sum())
        if tell:
            tell(seen)


def collect(
    predict: Callable, model: Any, batches: Iterable, keep: int, tell: Callable[[int], None] | None = None
) -> Predictions:
    """The `Predictions` of a model by `predict`, from images to logits; `tell` is as in `predict_batches`."""
    columns, worst, times, single = [], [], [], True
    for images, kept, labels, logits in predict_batches(predict, batches, tell):
        single = labels.ndim == 1
        columns.append(score_batch(require_finite(logits, model), labels, model))
        if keep and single:
            images, (ranks, confidence, predicted, _) = np.asarray(images)[kept], columns[-1]
            wrong = np.flatnonzero(ranks)
            worst += [(to_pixels(images[i], model), labels[i], predicted[i], confidence[i]) for i in wrong]
            worst = sorted(worst, key=lambda mistake: -mistake[3])[:keep]
        times.append(time.perf_counter())
    ranks, confidence, predicted, labels = (np.concatenate(column) for column in zip(*columns, strict=True))
    later = len(ranks) - len(columns[0][0])
    speed = later / (times[-1] - times[0]) if len(times) > 1 else None
    return Predictions(labels.astype(int) if single else None, predicted, confidence, tuple(worst), ranks, speed)


def collect_predictions(model: keras.Model, batches: Iterable, keep: int = 12) -> Predictions:
    """A model's `Predictions` on batches of (images, labels, weights); examples of weight 0 are left out.

    Args:
        model: a classifier with a `preprocessing`: images (n, h, w, c) to logits (n, num_classes).
        batches: such as `examples.evaluation(64, model.preprocessing)`.
        keep: number of the most confident mistakes to keep.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> collect_predictions(model, [(np.zeros((2, 32, 32, 3)), np.array([0, 1]), np.ones(2))]).accuracy
    0.5
    """
    return collect(choose_predict(model), model, batches, keep)


def draw_confusion(axis, predictions, class_names):
    matrix = predictions.confusion(len(class_names))
    errors = matrix.sum(0) + matrix.sum(1) - 2 * matrix.diagonal()
    classes = np.sort(np.argsort(-errors, kind="stable")[:MOST_CLASSES])
    matrix = matrix[np.ix_(classes, classes)]
    names = [shorten(class_names[i], 20) for i in classes]
    shades = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axis.imshow(shades, cmap=SHADES, vmin=0, vmax=1)
    cell = 72 * 0.7 * SIDE / len(classes)  # in points; names and titles need the rest of the side
    for i, j in np.argwhere(matrix):
        size = float(np.clip(cell / (0.7 * len(str(matrix[i, j]))), 3, 10))
        colour = "white" if shades[i, j] > 0.5 else "black"
        axis.text(j, i, matrix[i, j], ha="center", va="center", fontsize=size, color=colour)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7, parse_math=False)
    axis.set_yticks(range(len(names)), names, fontsize=7, parse_math=False)
    part = f" (the {len(classes)} most confused classes)" if len(classes) < len(class_names) else ""
    axis.set(xlabel="predicted", ylabel="true", title=f"Confusion matrix{part}")


def draw_worst(figure, predictions, class_names):
    figure.suptitle("Surest mistakes" if predictions.worst else "No mistakes")
    if not predictions.worst:
        return
    columns = math.ceil(math.sqrt(len(predictions.worst)))
    axes = figure.subplots(-(-len(predictions.worst) // columns), columns, squeeze=False)
    size = 9 if columns < 5 else 7
    most = int(72 * SIDE / columns / (0.6 * size))  # characters in a line
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (image, label, predicted, confidence) in zip(axes.flat, predictions.worst, strict=False):
        axis.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1)
        guess, truth = shorten(class_names[predicted], most - 6), shorten(class_names[label], most - 3)
        axis.set_title(f"{guess} {confidence:.0%}\nis {truth}", fontsize=size, parse_math=False)


def draw_mistakes(predictions: Predictions, class_names: Sequence[str], path: str | os.PathLike) -> None:
    """Writes a PNG of the confusion matrix (of the most confused classes, if many) and the most confident mistakes."""
    with write_figure(path, 2 * SIDE, SIDE) as figure:
        left, right = figure.subfigures(1, 2)
        draw_confusion(left.subplots(), predictions, class_names)
        draw_worst(right, predictions, class_names)
        figure.suptitle(f"{predictions.accuracy:.1%} of {len(predictions.labels):,} right")


def write_mistakes(
    predictions: Predictions, class_names: Sequence[str], images: Sequence[str], path: str | os.PathLike
) -> None:
    """Writes a CSV in UTF-8 with a line per mistake, most confident first: image, class, predicted, probability.

    `images` holds the file of every example.
    """
    wrong = np.flatnonzero(predictions.labels != predictions.predicted)
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "class", "predicted", "probability"])
        for i in wrong[np.argsort(-predictions.confidence[wrong], kind="stable")]:
            label, guess = class_names[predictions.labels[i]], class_names[predictions.predicted[i]]
            writer.writerow([*map(as_cell, (images[i], label, guess)), f"{predictions.confidence[i]:.6f}"])

"""Where a classifier errs: the confusion matrix, and the mistakes it was surest of, as a figure."""

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from keras_vit.text import shorten

MOST_CLASSES = 30
SIDE = 6.5  # inches of each half of the figure
TITLE = 0.4  # inches above a picture


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for every example.

    Args:
        labels, predicted: true and likeliest class, (n,).
        confidence: probability of the likeliest class, (n,).
        worst: the surest mistakes, as (image (h, w, c) in [0, 1], label, predicted, confidence), surest first.
    """

    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    worst: tuple

    @property
    def accuracy(self) -> float:
        return float((self.labels == self.predicted).mean())

    def confusion(self, num_classes: int) -> np.ndarray:
        """Counts (num_classes, num_classes): true classes down, predicted ones across."""
        matrix = np.zeros((num_classes, num_classes), int)
        np.add.at(matrix, (self.labels, self.predicted), 1)
        return matrix


def collect_predictions(model: keras.Model, batches: Iterable, keep: int = 12) -> Predictions:
    """A model's `Predictions` on batches of (images, labels, weights); examples of weight 0 are left out.

    Args:
        model: a classifier with a `preprocessing`: images (n, h, w, c) to logits (n, num_classes).
        batches: such as `examples.evaluation(64, model.preprocessing)`.
        keep: how many of the surest mistakes to keep.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> collect_predictions(model, [(np.zeros((2, 32, 32, 3)), np.array([0, 1]), np.ones(2))]).accuracy
    0.5
    """
    columns, worst = [], []
    for images, labels, weights in batches:
        logits = keras.ops.cast(model(images, training=False), "float32")
        probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
        images, labels, weights = (np.asarray(x) for x in (images, labels, weights))
        predicted, confidence = probabilities.argmax(-1), probabilities.max(-1)
        columns.append(np.stack([labels, predicted, confidence], -1)[weights > 0])
        wrong = np.flatnonzero((weights > 0) & (predicted != labels))
        mistakes = [(to_pixels(images[i], model), labels[i], predicted[i], confidence[i]) for i in wrong]
        worst = sorted([*worst, *mistakes], key=lambda mistake: -mistake[3])[:keep]
    labels, predicted, confidence = np.concatenate(columns).T
    return Predictions(labels.astype(int), predicted.astype(int), confidence, tuple(worst))


def to_pixels(image, model):
    """A model's input without its normalization: (h, w, c) in [0, 1]."""
    preprocessing = model.preprocessing
    return np.clip(image * np.array(preprocessing.std) + np.array(preprocessing.mean), 0, 1)


def draw_mistakes(predictions: Predictions, class_names: Sequence[str], path: str | os.PathLike) -> None:
    """Writes a PNG: the confusion matrix (of the classes most confused, if there are many) and the surest mistakes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * SIDE, SIDE), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2)
    draw_confusion(left.subplots(), predictions, class_names)
    draw_worst(right, predictions, class_names)
    figure.suptitle(f"{predictions.accuracy:.1%} of {len(predictions.labels):,} right")
    figure.savefig(path, dpi=110, format="png")


def write_mistakes(
    predictions: Predictions, class_names: Sequence[str], images: Sequence[str], path: str | os.PathLike
) -> None:
    """Writes a CSV in UTF-8 with a line per mistake, the surest first: image, class, predicted, probability.

    `images` has the file of every example.
    """
    wrong = np.flatnonzero(predictions.labels != predictions.predicted)
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "class", "predicted", "probability"])
        for i in wrong[np.argsort(-predictions.confidence[wrong], kind="stable")]:
            label, guess = class_names[predictions.labels[i]], class_names[predictions.predicted[i]]
            writer.writerow([images[i], label, guess, f"{predictions.confidence[i]:.6f}"])


def draw_confusion(axis, predictions, class_names):
    matrix = predictions.confusion(len(class_names))
    errors = matrix.sum(0) + matrix.sum(1) - 2 * matrix.diagonal()
    classes = np.sort(np.argsort(-errors, kind="stable")[:MOST_CLASSES])
    matrix = matrix[np.ix_(classes, classes)]
    names = [shorten(class_names[i], 20) for i in classes]
    shades = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axis.imshow(shades, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(matrix):
        size = cell_font_size(len(classes), len(str(matrix[i, j])))
        colour = "white" if shades[i, j] > 0.5 else "black"
        axis.text(j, i, matrix[i, j], ha="center", va="center", fontsize=size, color=colour)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7, parse_math=False)
    axis.set_yticks(range(len(names)), names, fontsize=7, parse_math=False)
    part = f" (the {len(classes)} classes most confused)" if len(classes) < len(class_names) else ""
    axis.set(xlabel="predicted", ylabel="true", title=f"Confusion matrix{part}")


def cell_font_size(classes, digits):
    """In points, so that a number fits into its cell of the matrix."""
    cell = 72 * 0.7 * SIDE / classes  # of points; names and titles take the rest of the side
    return float(np.clip(cell / (0.7 * digits), 3, 10))


def choose_columns(count):
    """How many columns make `count` square pictures, each with a title of two lines, largest on a square."""

    def side(columns):
        rows = -(-count // columns)
        return min(SIDE / columns, SIDE / rows - TITLE)

    return max(range(1, count + 1), key=side)


def draw_worst(figure, predictions, class_names):
    figure.suptitle("Surest mistakes" if predictions.worst else "No mistakes")
    if not predictions.worst:
        return
    columns = choose_columns(len(predictions.worst))
    axes = figure.subplots(-(-len(predictions.worst) // columns), columns, squeeze=False)
    size = 9 if columns < 5 else 7
    most = int(72 * SIDE / columns / (0.6 * size))  # characters in a line
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (image, label, predicted, confidence) in zip(axes.flat, predictions.worst, strict=False):
        axis.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=1)
        guess, truth = shorten(class_names[predicted], most - 6), shorten(class_names[label], most - 3)
        axis.set_title(f"{guess} {confidence:.0%}\nis {truth}", fontsize=size, parse_math=False)

"""How good a model is where images have several classes, or none: `evaluate_multi_label`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.evaluating import require_described

if TYPE_CHECKING:
    from keras_vit.data import Examples


@dataclass(frozen=True)
class ClassPrecision:
    """A class: how many images have it, and its average precision, in [0, 1]; None for a class without images."""

    name: str
    count: int
    average_precision: float | None


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """Average precision, class by class.

    Args:
        count: images.
        mean_average_precision: the mean over the classes that have images, in [0, 1].
        classes: one `ClassPrecision` per class.
    """

    count: int
    mean_average_precision: float
    classes: tuple[ClassPrecision, ...]

    def as_dict(self) -> dict:
        """Numbers, lists and names alone, as JSON holds them."""
        return asdict(self)


def evaluate_multi_label(
    model: keras.Model, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> MultiLabelEvaluation:
    """Average precision of every class (scikit-learn's), over every image once.

    Args:
        model: of as many classes as the examples have.
        examples: whose images have several classes, as of a "csv:FILE".
        batch_size: changes the time alone.
        tell: called after every batch with the number of examples so far.

    Raises:
        ConfigError: for examples of one class each, and for a model of other classes.

    >>> model = keras_vit.zoo.load("runs/1/model.keras")  # doctest: +SKIP
    >>> evaluate_multi_label(model, keras_vit.data.load("csv:photos.csv", "test"))  # doctest: +SKIP
    """
    require_described(model)
    if not examples.multi_label or model.config.num_classes != examples.num_classes:
        kind = "several classes" if examples.multi_label else "one class"
        raise ConfigError(
            f"evaluate_multi_label takes images of several classes, and a model of the same ones. {examples.name} has "
            f"{kind} per image, of {examples.num_classes}; the model has {model.config.num_classes}."
        )
    columns, seen = [], 0
    for images, labels, weights in examples.evaluation(batch_size, model.preprocessing):
        kept = np.asarray(weights) > 0
        columns.append((np.asarray(labels)[kept], keras.ops.convert_to_numpy(model(images, training=False))[kept]))
        seen += int(kept.sum())
        if tell:
            tell(seen)
    labels, logits = (np.concatenate(column) for column in zip(*columns, strict=True))
    return score_labels(labels, logits, examples.class_names)


def score_labels(labels, logits, names):
    """The evaluation of logits (n, classes) by labels of 0 and 1, (n, classes)."""
    from sklearn.metrics import average_precision_score

    counts = (labels > 0).sum(0)
    precisions = [
        float(average_precision_score(labels[:, i] > 0, logits[:, i])) if count else None
        for i, count in enumerate(counts)
    ]
    known = [precision for precision in precisions if precision is not None]
    classes = zip(map(str, names), map(int, counts), precisions, strict=True)
    return MultiLabelEvaluation(
        count=len(labels),
        mean_average_precision=float(np.mean(known)) if known else 0.0,
        classes=tuple(ClassPrecision(*row) for row in classes),
    )

"""Evaluates a model on a split of a dataset: `evaluate`, or `evaluate_multi_label` for images with several labels."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.console import log
from keras_vit.errors import ConfigError, quote_some
from keras_vit.evaluation.predictions import Predictions, collect, predict_batches
from keras_vit.evaluation.scores import Evaluation, Share, measure_calibration, score_classes
from keras_vit.models.preprocessing import require_described, require_finite
from keras_vit.models.vectors import choose_predict

if TYPE_CHECKING:
    from keras_vit.data import Examples


def renumber(labels, numbers, count):
    """Renumbers labels, numbers (n, ...) or shares (n, classes): class i becomes class `numbers[i]` of `count`."""
    labels = np.asarray(labels)
    if labels.dtype.kind == "i":
        return numbers[np.minimum(labels, len(numbers) - 1)]  # larger labels are pixels of weight 0
    renumbered = np.zeros((len(labels), count), labels.dtype)
    renumbered[:, numbers] = labels
    return renumbered


def matched_batches(model, examples, batch_size):
    """(names of the classes, batches of images, labels and weights), both in the model's order of classes."""
    names, labels = tuple(examples.class_names), getattr(model, "labels", None) or ()
    batches, counts = examples.evaluation(batch_size, model.preprocessing), Counter(labels)
    if labels and labels != names and all(counts[name] == 1 for name in names):
        numbers = np.array([labels.index(name) for name in names])
        return labels, ((images, renumber(y, numbers, len(labels)), weights) for images, y, weights in batches)
    unknown = [name for name in names if name not in labels] if labels else []
    if model.config.num_classes != len(names):
        others = f" Its labels have no {quote_some(unknown)}." if unknown else ""
        raise ConfigError(
            f"The model has {model.config.num_classes} classes, {examples.name} has {len(names)}.{others} "
            "Fine-tune the model on these classes, or evaluate it on its own classes."
        )
    if unknown:
        log.warning("The model has no labels %s: classes are matched by their order, not by name.", quote_some(unknown))
    return names, batches


def predict_examples(
    model: keras.Model,
    examples: "Examples",
    batch_size: int = 64,
    keep: int = 0,
    tell: Callable[[int], None] | None = None,
) -> tuple[tuple[str, ...], Predictions]:
    """The names of the classes and the `Predictions` of every example, with the `keep` most confident mistakes."""
    require_described(model)
    if not model.config.num_classes:
        raise ConfigError(
            f"The model has no head, so no classes. Fine-tune it on those of {examples.name}, or judge its "
            "features by evaluate_few_shot (keras-vit fewshot)."
        )
    if examples.masked or model.config.classifier == "patches":
        raise ConfigError(
            "evaluate judges one class for each image. Judge masks by mean_iou(model, examples) and examples of a "
            f"masks:FOLDER. Received: {model.name} and {examples.name}."
        )
    if examples.multi_label:
        raise ConfigError(
            "evaluate judges images of one class. Judge several classes by evaluate_multi_label(model, examples). "
            f"Received: {examples.name}."
        )
    names, batches = matched_batches(model, examples, batch_size)
    found = collect(model.predict_on_batch, model, batches, keep, tell)
    if not len(found.ranks):
        raise ConfigError(f"None of the images of {examples.name} that can be read has a class to evaluate by.")
    return names, found


def score_predictions(found: Predictions, names: tuple[str, ...]) -> Evaluation:
    """Makes the `Evaluation` from predictions, given the names of the classes."""
    right = found.ranks == 0
    confusion = None if found.labels is None else found.confusion(len(names))
    return Evaluation(
        top1=Share(int(right.sum()), len(right)),
        top5=Share(int((found.ranks < 5).sum()), len(right)) if len(names) > 5 else None,
        calibration_error=measure_calibration(found.confidence, right),
        classes=() if confusion is None else score_classes(confusion, names),
        confusion=confusion,
        images_per_second=found.images_per_second,
    )


def evaluate(
    model: keras.Model, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> Evaluation:
    """Accuracy with its interval, calibration, and the scores of each class, over every example once.

    Args:
        model: a classifier: a model of this package, or an exported one (`inference.open_classifier`). Its classes are
            found by name if its labels include all of the examples' classes, in any order; otherwise they must be as
            many, in the same order.
        examples: from `keras_vit.data.load`. If an example has several classes (ImageNet ReaL), each of them is
            correct, and an example without any is left out.
        batch_size: affects only the time.
        tell: called after every batch with the number of examples so far.

    Raises:
        ConfigError: for a model from elsewhere, without a head, or with other classes; if no example has a class.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> evaluate(model, keras_vit.data.load("digits", "test")).top1.count
    360
    """
    names, found = predict_examples(model, examples, batch_size, tell=tell)
    return score_predictions(found, names)


@dataclass(frozen=True)
class ClassPrecision:
    """A class: its number of images, and its average precision, in [0, 1], or None for a class without images."""

    name: str
    count: int
    average_precision: float | None


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """Average precision, class by class.

    Args:
        count: number of images.
        mean_average_precision: the mean over the classes that have images, in [0, 1].
        classes: one `ClassPrecision` per class.
    """

    count: int
    mean_average_precision: float
    classes: tuple[ClassPrecision, ...]

    def as_dict(self) -> dict:
        """The fields as types of JSON."""
        return asdict(self)


def score_labels(labels, logits, names):
    """Evaluates logits (n, classes) by labels of 0 and 1, (n, classes)."""
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


def evaluate_multi_label(
    model: keras.Model, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> MultiLabelEvaluation:
    """Average precision of every class (scikit-learn's), over every image once.

    Args:
        model, batch_size, tell: as for `evaluate`.
        examples: examples whose images have several classes, as from a "csv:FILE".

    Raises:
        ConfigError: for examples of one class each, or a model with other classes.

    >>> model = keras_vit.zoo.load("runs/1/model.keras")  # doctest: +SKIP
    >>> evaluate_multi_label(model, keras_vit.data.load("csv:photos.csv", "test"))  # doctest: +SKIP
    """
    require_described(model)
    if not examples.multi_label:
        raise ConfigError(
            f"evaluate_multi_label takes images of several classes. Those of {examples.name} have one: call evaluate."
        )
    names, batches = matched_batches(model, examples, batch_size)
    found = predict_batches(choose_predict(model), batches, tell)
    labels, logits = (np.concatenate(column) for column in zip(*((y, z) for *_, y, z in found), strict=True))
    if not len(labels):
        raise ConfigError(f"None of the images of {examples.name} can be read.")
    return score_labels(labels, require_finite(logits, model), names)

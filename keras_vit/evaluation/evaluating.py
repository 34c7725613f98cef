"""How good a model is on a split of a dataset: `evaluate`."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit.console import log
from keras_vit.data.datasets.image_files import quote_some
from keras_vit.errors import ConfigError
from keras_vit.evaluation.scores import Evaluation, Share, count_confusion, measure_calibration, score_classes
from keras_vit.models.probabilities import to_probabilities

if TYPE_CHECKING:
    from keras_vit.data import Examples


def require_described(model: Any) -> None:
    """Refuses a model that does not say how images become its input, as a Keras model of others does not.

    Raises:
        ConfigError: for such a model.
    """
    if not hasattr(model, "preprocessing") or not hasattr(getattr(model, "config", None), "num_classes"):
        raise ConfigError(
            f"A {type(model).__name__} does not say how images become its input. Expected a model of this package, or "
            "an exported one, as inference.open_classifier opens it."
        )


def evaluate(
    model: keras.Model, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> Evaluation:
    """Accuracy with its interval, calibration, and the classes one by one, over every example once.

    Args:
        model: a classifier: a model of this package, or an exported one (`inference.open_classifier`). Its classes are
            found by name where all of the examples' are among its labels, in any order; else they are as many, in
            the same order.
        examples: from `keras_vit.data.load`. Where an example has several classes (ImageNet ReaL), each of them is
            right, and an example without any is left out.
        batch_size: changes the time alone.
        tell: called after every batch with the number of examples so far.

    Raises:
        ConfigError: for a model of others, without a head, or of other classes; where no example has a class.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> evaluate(model, keras_vit.data.load("digits", "test")).top1.count
    360
    """
    require_described(model)
    if not model.config.num_classes:
        raise ConfigError(
            f"The model has no head, so it knows no classes. Fine-tune it on those of {examples.name}, or judge its "
            "features by evaluate_few_shot (keras-vit fewshot)."
        )
    names, batches = matched_batches(model, examples, batch_size)
    ranks, confidence, predicted, labels, seconds = collect(model, batches, tell)
    if not len(ranks):
        raise ConfigError(f"None of the images of {examples.name} that can be read has a class to evaluate by.")
    right = ranks == 0
    single = labels is not None
    confusion = count_confusion(labels, predicted, len(names)) if single else None
    return Evaluation(
        top1=Share(int(right.sum()), len(right)),
        top5=Share(int((ranks < 5).sum()), len(ranks)) if len(names) > 5 else None,
        calibration_error=measure_calibration(confidence, right),
        classes=() if confusion is None else score_classes(confusion, names),
        confusion=confusion,
        images_per_second=(len(ranks) - min(batch_size, len(ranks))) / seconds if seconds else None,
    )


def matched_batches(model, examples, batch_size):
    """(names of the classes, batches of images, labels and weights), both as the model numbers its classes."""
    names, labels = tuple(examples.class_names), getattr(model, "labels", None) or ()
    batches = examples.evaluation(batch_size, model.preprocessing)
    if labels and labels != names and len(set(labels)) == len(labels) and set(names) <= set(labels):
        numbers = np.array([labels.index(name) for name in names])
        return labels, ((images, renumber(y, numbers, len(labels)), weights) for images, y, weights in batches)
    unknown = [name for name in names if name not in labels] if labels else []
    if model.config.num_classes != len(names):
        others = f" Its labels have no {quote_some(unknown)}." if unknown else ""
        raise ConfigError(
            f"The model has {model.config.num_classes} classes, {examples.name} has {len(names)}.{others} "
            "Fine-tune the model on these classes, or evaluate it on its own."
        )
    if unknown:
        log.warning("The model has no labels %s: classes are taken by their order, not by name.", quote_some(unknown))
    return names, batches


def renumber(labels, numbers, count):
    """Labels, numbers (n,) or shares (n, classes), whose class i is the model's class `numbers[i]` of `count`."""
    labels = np.asarray(labels)
    if labels.ndim == 1:
        return numbers[labels]
    renumbered = np.zeros((len(labels), count), labels.dtype)
    renumbered[:, numbers] = labels
    return renumbered


def collect(model, batches, tell):
    """Of each example the rank of its class, confidence, likeliest class, label; and the seconds of later batches.

    The rank is the number of classes that are likelier; for all labels None comes where examples have several.
    """
    columns, start, seconds, single = [], None, None, True
    for images, labels, weights in batches:
        kept = np.asarray(weights) > 0
        logits = np.asarray(model.predict_on_batch(images)).astype("float32")[kept]
        probabilities = to_probabilities(logits, model.config.probabilities)
        labels = np.asarray(labels)[kept]
        single = labels.ndim == 1
        columns.append(score_batch(probabilities, labels))
        seconds = time.perf_counter() - start if start else None
        start = start or time.perf_counter()
        if tell:
            tell(sum(len(batch[0]) for batch in columns))
    ranks, confidence, predicted, labels = (np.concatenate(column) for column in zip(*columns, strict=True))
    return ranks, confidence, predicted, labels if single else None, seconds


def score_batch(probabilities, labels):
    """Ranks, confidences, likeliest classes, labels. Labels: numbers (n,), or 1 for each right class (n, classes)."""
    order = np.argsort(-probabilities, axis=-1, kind="stable")  # of equal ones the first class is first, as in argmax
    single = labels.ndim == 1
    right = order == labels[:, None] if single else np.take_along_axis(labels, order, -1) > 0
    return right.argmax(-1), probabilities.max(-1), order[:, 0], labels if single else np.zeros(len(labels), int)

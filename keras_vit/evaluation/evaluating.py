"""How good a model is on a split of a dataset: `evaluate`."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np
import scipy.special

from keras_vit.errors import ConfigError
from keras_vit.evaluation.scores import Evaluation, Share, count_confusion, measure_calibration, score_classes

if TYPE_CHECKING:
    from keras_vit.data import Examples


def evaluate(
    model: keras.Model, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> Evaluation:
    """Accuracy with its interval, calibration, and the classes one by one, over every example once.

    Args:
        model: of as many classes as the examples have.
        examples: from `keras_vit.data.load`. Where an example has several classes (ImageNet ReaL), each of them is
            right, and an example without any is left out.
        batch_size: changes the time alone.
        tell: called after every batch with the number of examples so far.

    Raises:
        ConfigError: for a model without a head, or of other classes.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> evaluate(model, keras_vit.data.load("digits", "test")).top1.count
    360
    """
    if not model.config.num_classes:
        raise ConfigError(
            f"The model has no head, so it knows no classes. Fine-tune it on those of {examples.name}, or judge its "
            "features by evaluate_few_shot (keras-vit fewshot)."
        )
    if model.config.num_classes != examples.num_classes:
        raise ConfigError(
            f"The model has {model.config.num_classes} classes, {examples.name} has {examples.num_classes}. "
            "Fine-tune the model on these classes, or evaluate it on its own."
        )
    batches = examples.evaluation(batch_size, model.preprocessing)
    ranks, confidence, predicted, labels, seconds = collect(model, batches, tell)
    right = ranks == 0
    single = labels is not None
    confusion = count_confusion(labels, predicted, examples.num_classes) if single else None
    return Evaluation(
        top1=Share(int(right.sum()), len(right)),
        top5=Share(int((ranks < 5).sum()), len(ranks)) if examples.num_classes > 5 else None,
        calibration_error=measure_calibration(confidence, right),
        classes=score_classes(confusion, examples.class_names) if single else (),
        confusion=confusion,
        images_per_second=(len(ranks) - min(batch_size, len(ranks))) / seconds if seconds else None,
    )


def collect(model, batches, tell):
    """Of each example the rank of its class, confidence, likeliest class, label; and the seconds of later batches.

    The rank is the number of classes that are likelier; for all labels None comes where examples have several.
    """
    columns, start, seconds, single = [], None, None, True
    for images, labels, weights in batches:
        kept = np.asarray(weights) > 0
        logits = np.asarray(model.predict_on_batch(images)).astype("float32")[kept]
        probabilities, labels = scipy.special.softmax(logits, axis=-1), np.asarray(labels)[kept]
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

"""Extracts the features of a dataset, for `few_shot` and the probes."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.evaluating import require_described
from keras_vit.evaluation.predictions import predict_batches
from keras_vit.models.config import Vector
from keras_vit.models.vectors import vector_reader

if TYPE_CHECKING:
    from keras_vit.data import Examples

BEFORE_CROP = 256 / 224  # the authors resize to 256 by 256, and crop the central 224 by 224


def require_features(split, features, labels):
    """Checks features (n, d) and class numbers (n,), and returns them as arrays."""
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ConfigError(
            f"{split}_features must be (n, d), and {split}_labels (n,), of at least one example. "
            f"Received: shapes {features.shape} and {labels.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ConfigError(f"{split}_labels must be class numbers from 0. Received: {labels.dtype} from {labels.min()}.")
    return features, labels


def require_one_width(train_features, test_features):
    """Refuses test features that are not (m, d) with the training features' width d."""
    widths = [np.shape(features)[1:] for features in (train_features, test_features)]
    if len(widths[1]) != 1 or widths[0] != widths[1]:
        received = " and ".join(",".join(map(str, width)) or "no axis" for width in widths)
        raise ConfigError(f"Training and test features must have one width. Received: {received}.")


def extract_features(
    model: Any,
    examples: "Examples",
    batch_size: int = 64,
    tell: Callable[[int], None] | None = None,
    vector: Vector = "features",
) -> tuple[np.ndarray, np.ndarray]:
    """The features that the head reads, of every example once: float32 (n, d), and labels int (n,).

    Images are resized as in the authors' few-shot evaluation: to a square with 256 / 224 times the model's size,
    without keeping the aspect ratio, and then cropped at the centre.

    Args:
        model: a model of this package, trained or not; or an exported one that gives vectors.
        examples: from `keras_vit.data.load`, with one class each.
        batch_size: affects only the time.
        tell: called after every batch with the number of examples so far.
        vector: name, as for `keras_vit.embed`, of another vector than the features.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> extract_features(model, keras_vit.data.load("digits", "test"))[0].shape
    (360, 64)
    """
    model = getattr(model, "encoder", model)  # a MaskedPatchModel has one
    require_described(model)
    if examples.masked:
        raise ConfigError(f"Features are judged by one class per example, but {examples.name} has one for each pixel.")
    reader = vector_reader(model, vector)
    batches = examples.evaluation(
        batch_size, dataclasses.replace(model.preprocessing, crop=1 / BEFORE_CROP, crop_mode="squash")
    )
    features, labels, done = np.empty((0, 0), "float32"), [], 0
    for _, _, batch_labels, outputs in predict_batches(reader, batches, tell):
        if batch_labels.ndim > 1:
            raise ConfigError(f"Features are judged by one class per example, but {examples.name} has several.")
        if not done:  # its pages take memory only when written
            features = np.empty((examples.num_examples, outputs.shape[-1]), "float32")
        features[done : done + len(outputs)] = outputs
        labels.append(batch_labels)
        done += len(outputs)
    return features[:done], np.concatenate(labels).astype(int)

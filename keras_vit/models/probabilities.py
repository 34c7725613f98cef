"""What logits say of an image: one class of all, by the softmax, or each class yes or no, by the sigmoid."""

from typing import Any

import numpy as np
import scipy.special

from keras_vit.models.config import ProbabilityKind


def to_probabilities(logits: Any, kind: ProbabilityKind = "softmax") -> np.ndarray:
    """Logits (n, num_classes) as probabilities of the same shape and type, each in [0, 1].

    Args:
        logits: an array or a tensor.
        kind: "softmax" of images with one class each: they sum to 1. "sigmoid" of images with several or none.

    >>> to_probabilities(np.zeros((1, 2))), to_probabilities(np.zeros((1, 2)), "sigmoid")
    (array([[0.5, 0.5]]), array([[0.5, 0.5]]))
    >>> to_probabilities([[9.0, 9.0]]).round(2), to_probabilities([[9.0, 9.0]], "sigmoid").round(2)
    (array([[0.5, 0.5]]), array([[1., 1.]]))
    """
    logits = np.asarray(logits)
    return scipy.special.expit(logits) if kind == "sigmoid" else scipy.special.softmax(logits, axis=-1)

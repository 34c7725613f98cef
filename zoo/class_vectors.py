"""Makes a classifier from a model of image vectors, such as CLIP or SigLIP, and the vectors of class names."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.lora import without_lora
from keras_vit.models.config import ProbabilityKind, is_number
from keras_vit.models.variants import build
from keras_vit.models.vit import VisionTransformer
from keras_vit.zoo.formats.variables import official_variables


def as_class_vectors(class_vectors, width):
    """The vectors (n, width) in float64, each divided by its length."""
    try:
        vectors = np.asarray(class_vectors, "float64")
    except (ValueError, TypeError) as error:
        raise ConfigError(f"class_vectors must be numbers. {error}.") from error
    if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != width:
        raise ConfigError(
            f"class_vectors must hold a row for each class, of the width of the model's vectors, (n, {width}). "
            f"Received: the shape {vectors.shape}. Vectors of images and of texts must come from the same model."
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if wrong.size:
        raise ConfigError(f"class_vectors must be finite and not zero. Row {wrong[0]} is not.")
    return vectors / lengths


def as_bias(bias, count):
    """The bias of the logits (count,): one for all classes, or one for each."""
    values = np.asarray(0.0 if bias is None else bias, "float64")
    if values.shape not in ((), (1,), (count,)) or not np.isfinite(values).all():
        raise ConfigError(f"bias must be a finite number, or one for each of {count} classes. Received: {bias!r}.")
    return np.broadcast_to(values, (count,))


def require_vectors(model):
    """Refuses a model whose outputs are not image vectors: a classifier, a model with a tanh layer, a ResNet."""
    if not isinstance(model, VisionTransformer) or type(model).config_class is not VisionTransformer.config_class:
        raise ConfigError(
            "zero_shot takes a VisionTransformer that gives vectors, such as CLIP's and SigLIP's. "
            f"Received: a {type(model).__name__}."
        )
    config = model.config
    if not config.unit_vectors and (config.representation_size or model.labels):
        found = "a tanh layer" if config.representation_size else f"a head of {config.num_classes} classes"
        raise ConfigError(f"zero_shot takes a model that gives vectors. Received: one with {found}.")


def plan_zero_shot(config, count, probabilities):
    """The configuration of the classifier: the layer that made the vector comes before the new head."""
    fields = {"num_classes": count, "head_bias": True, "unit_vectors": True, "probabilities": probabilities}
    if not config.unit_vectors:
        fields["representation_size"] = config.num_classes or None
    return dataclasses.replace(config, **fields)


def copy_weights(source, target):
    """Copies all weights except the new head; the head of an embedding model, if any, becomes the projection."""
    held, projects = official_variables(source), not source.config.unit_vectors
    for name, (variable, _) in official_variables(target).items():
        origin = name.replace("pre_logits/", "head/") if projects else name
        if origin in held and not name.startswith("head/"):
            variable.assign(held[origin][0])


def zero_shot(
    model: VisionTransformer,
    class_vectors: Any,
    *,
    scale: float,
    labels: Iterable[str] | None = None,
    bias: float | Iterable[float] | None = None,
    probabilities: ProbabilityKind = "softmax",
) -> VisionTransformer:
    """Makes a classifier with the logits scale * cosine(vector of the image, vector of the class) + bias.

    It predicts, evaluates, exports and saves like any other, and needs no text tower. The class vectors must come from
    the text tower of the same model: `tools/class_vectors.py` makes an .npz file of them with transformers, for
    `zero_shot(model, **np.load(path))`.

    Args:
        model: a `VisionTransformer` that gives vectors: without a head, or with a projection as its head. In a
            classifier from this function the classes are replaced.
        class_vectors: (n, d), a row for each class, of any length.
        scale: factor of the cosines: exp of CLIP's and SigLIP's `logit_scale`.
        labels: names of the n classes.
        bias: SigLIP's `logit_bias`; a number, or one for each class; None for CLIP.
        probabilities: "softmax" as for CLIP, if an image has exactly one class; "sigmoid" as for SigLIP, if it may have
            several or none.

    Returns:
        A new model with the weights of `model`, its preprocessing and the labels.

    Raises:
        ConfigError: for a model that gives no vectors, or vectors, scale, bias or labels that do not fit it.

    >>> towers = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=0)
    >>> classifier = keras_vit.zoo.zero_shot(towers, np.eye(2, 64), labels=["cat", "dog"], scale=100.0)
    >>> tuple(classifier(np.zeros((1, 32, 32, 3))).shape), classifier.labels
    ((1, 2), ('cat', 'dog'))
    """
    require_vectors(model)
    model, config = without_lora(getattr(model, "folded_from", model)), model.config
    width = (config.representation_size or config.features) if config.unit_vectors else model.output_shape[-1]
    vectors = as_class_vectors(class_vectors, width)
    if np.ndim(scale) or not is_number(np.asarray(scale)[()]) or not 0 < scale < np.inf:
        raise ConfigError(f"scale must be a positive number: exp of the model's logit_scale. Received: {scale!r}.")
    biases = as_bias(bias, len(vectors))
    target = plan_zero_shot(config, len(vectors), str(probabilities))
    names = None if labels is None else tuple(map(str, labels))
    classifier = build(target, model.get_config()["preprocessing"], names, model.dtype_policy, model.name)
    copy_weights(model, classifier)
    head = classifier.get_layer("head")
    head.kernel.assign(float(scale) * vectors.T)
    head.bias.assign(biases)
    return classifier

"""One vector per image: the names of a model's vectors, and the functions that compute them."""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_vit.distribution import DistributedModel
from keras_vit.errors import ConfigError
from keras_vit.layers import AveragePatches, TakeClassToken
from keras_vit.models.config import Vector

PARTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {model: {key: sub-model}}, compiled once each


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, d) divided by their lengths, in their own precision, float32 at least; a row of zeros stays.

    >>> unit_vectors(np.array([[3, 4], [0, 0]], "float32")).tolist()
    [[0.6..., 0.8...], [0.0, 0.0]]
    """
    vectors = vectors if vectors.dtype in ("float32", "float64") else vectors.astype("float32")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(vectors.dtype).tiny)


def vectors_of(model: Any) -> tuple[str, ...]:
    """The names of the vectors that a model has.

    >>> vectors_of(keras_vit.zoo.load("R50x1", weights=None, image_size=64))
    ('output', 'features')
    """
    whole = () if model.config.classifier == "patches" else ("output", "features")  # these are of each patch
    if not isinstance(model, keras.Model):
        return whole if model.gives_vectors else whole[:1]
    if not hasattr(model.config, "prefix_tokens"):
        return whole
    return *whole, *(("token", "gap", "token+gap") if model.config.has_class_token else ("gap",))


def choose_vector(model: Any, vector: Vector | None) -> str:
    """Checks the name of a vector; None stands for the model's own output if that is a vector, else for "features".

    A ViT that classifies each pixel has neither, and None stands for "gap".

    Raises:
        ConfigError: when the model has no such vector, or none at all.
    """
    known = vectors_of(model)
    if not known:
        raise ConfigError(
            f"{model.name} classifies each pixel: it has a vector for each cell of an image, but none for the image. "
            'Load the model with classifier="gap".'
        )
    own = "output" if model.gives_vectors else "features"
    name = vector or (own if own in known else "gap")
    if name in known:
        return name
    if not isinstance(model, keras.Model) and len(known) == 1:
        raise ConfigError(
            f"{model.name} is an exported classifier: it gives only logits. Use the model that it was made from, "
            'or export one without a head (zoo.load(..., num_classes=0)); vector="output" gives the logits.'
        )
    raise ConfigError(f"{model.name} has no vector {vector!r}. It has: {', '.join(known)}.")


def part_of(model, vector):
    """The sub-model from images to (n, d) for a name from `choose_vector`."""
    config = model.config
    if vector == "features":
        return DistributedModel(model.inputs[0], model.get_layer("head").input)
    if vector == config.classifier and not config.norm_after_pool:
        return DistributedModel(model.inputs[0], model.get_layer("pool").output)
    pool = TakeClassToken() if vector == "token" else AveragePatches(config.prefix_tokens, vector == "token+gap")
    return DistributedModel(model.inputs[0], pool(model.get_layer("encoder_norm").output))


def keep_part(model, key, make):
    """The sub-model that `make` makes, once for each key."""
    parts = PARTS.setdefault(model, {})
    if key not in parts:
        parts[key] = make()
    return parts[key]


def sub_model(model, name):
    """`part_of` for a name that the model has; an exported model has one vector, its output."""
    if not isinstance(model, keras.Model) or name == "output" or (name == "features" and not model.config.num_classes):
        return model
    return keep_part(model, name, lambda: part_of(model, name))


def choose_predict(model: keras.Model) -> Callable:
    """The model's function from images to outputs; compiled on JAX, whose single operations take many times longer."""
    return model.predict_on_batch if keras.backend.backend() == "jax" else partial(model, training=False)


def values_of(model: keras.Model, tensors: Sequence[Any], images: Any) -> list[np.ndarray]:
    """The values, float32, of tensors of the model's graph for images as the graph takes them."""
    part = keep_part(model, tuple(map(id, tensors)), lambda: DistributedModel(model.inputs[0], tensors))
    found = keras.tree.flatten(choose_predict(part)(images))
    return [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in found]


def forget_traces(model: keras.Model) -> None:
    """Lets Keras trace the model and its parts again: what they compute has changed."""
    for part in (model, *PARTS.get(model, {}).values()):
        part.train_function = part.test_function = part.predict_function = None


def vector_model(model: Any, vector: Vector | None = None) -> Any:
    """The sub-model from images, as the model takes them, to one vector each; `keras_vit.embed` explains the names.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> vector_model(model, "token+gap").output_shape
    (None, 128)
    """
    return sub_model(model, choose_vector(model, vector))


def vector_reader(model: Any, vector: Vector | None = None) -> Callable[[Any], np.ndarray]:
    """A function from inputs (n, h, w, c) to vectors float32 (n, d), for a model or an exported one."""
    part = vector_model(model, vector)
    return lambda images: np.asarray(part.predict_on_batch(images)).astype("float32")


def vector_width(model: Any, vector: Vector | None) -> int:
    """d of the vectors."""
    part = vector_model(model, vector)
    return part.output_shape[-1] if isinstance(part, keras.Model) else model.config.num_classes

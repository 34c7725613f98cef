"""`embed`, for one vector per image from any source; and `embed_each`, for more than memory holds."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError, ImageError
from keras_vit.files import sha256
from keras_vit.inference.classifiers import ExportedModel, open_model
from keras_vit.inference.listing import list_images, means_several
from keras_vit.inference.predicting import BATCH_SIZE, ask
from keras_vit.models.config import Vector
from keras_vit.models.vectors import unit_vectors, vector_reader, vector_width
from keras_vit.owned import files_in

if TYPE_CHECKING:
    from keras_vit.images.pixels import Picture
    from keras_vit.inference.predicting import Asked


def embed(
    model: "Asked",
    images: "Picture | list[Picture] | tuple[Picture, ...]",
    vector: Vector | None = None,
    normalize: bool = False,
    batch_size: int = BATCH_SIZE,
) -> np.ndarray:
    """A vector for each image: float32 (n, d), one row for a single image.

    Args:
        model: as for `predict`, with or without a head. Load it once if you call often: `inference.open_model(name)`.
        images: as for `predict`: an image of any kind, a list of them, a folder or a pattern.
        vector: the kind of vector.
            "output" is the model's own output: for DINO and SigLIP, which have no head, their vector; for CLIP, the
            vector after its projection, comparable with those of texts. Exported models have only this one.
            "features" is the input of the head, for CLIP before the projection.
            "token", "gap" and "token+gap" are the class token, the mean of the patches, and both joined, after the last
            norm of a `VisionTransformer`.
            None is "output" if that is a vector, and "features" for a classifier.
        normalize: whether to divide each vector by its length, so that products of two are cosines.
        batch_size: images at a time; affects only the time.

    Raises:
        ImageError: when an image cannot be read.
        ConfigError: for a vector that the model does not have.
        KerasVitError: when the model cannot be loaded.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> embed(model, [np.zeros((40, 50, 3), "uint8")] * 2, vector="token+gap").shape
    (2, 128)
    """
    asked: Any = images if isinstance(images, list | tuple) else [images]
    if means_several(images):
        asked = list_images(asked)
    model = open_model(model)
    vectors = [found for _, found in embed_each(model, asked, vector, normalize, batch_size)]
    return np.stack(vectors) if vectors else np.empty((0, vector_width(model, vector)), "float32")


def embed_each(
    model: "Asked",
    images: "Iterable[Picture]",
    vector: Vector | None = None,
    normalize: bool = False,
    batch_size: int = BATCH_SIZE,
    skip: Callable[["Picture", ImageError], object] | None = None,
) -> "Iterator[tuple[Picture, np.ndarray]]":
    """Yields each image with its vector (d,), for any number of images, in order; memory holds only a few batches.

    Args:
        model, vector, normalize, batch_size: as for `embed`.
        images: any iterable, read as the vectors are consumed.
        skip: called with an unreadable image and its error; that image is then left out. None raises the error.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> [vector.shape for _, vector in embed_each(model, [np.zeros((8, 8, 3), "uint8")])]
    [(64,)]
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1. Received: batch_size={batch_size}.")
    model = open_model(model)
    return embed_batches(model, vector_reader(model, vector), images, normalize, batch_size, skip)


def embed_batches(model, read, images, normalize, batch_size, skip):
    for batch, vectors in ask(model, read, images, batch_size, skip):
        yield from zip(batch, unit_vectors(vectors) if normalize else vectors, strict=True)


def digest_of_model(model: Any) -> str:
    """The SHA-256 of all that affects a model's vectors: weights, preprocessing, and options other than the defaults.

    Names do not count. For an exported model it is the SHA-256 of its files.
    """
    if isinstance(model, ExportedModel):
        path = model.path
        digests = [sha256(path / name) for name in files_in(path)] if path.is_dir() else [sha256(path)]
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    model = getattr(model, "folded_from", model)
    options = {
        field.name: value
        for field in dataclasses.fields(model.config)
        if (value := getattr(model.config, field.name)) != field.default
    }
    facts = [options, model.get_config()["preprocessing"], model.dtype_policy.name]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=dataclasses.asdict).encode())
    for weight in model.get_weights():
        digest.update(f"{weight.dtype}{weight.shape}".encode() + np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()

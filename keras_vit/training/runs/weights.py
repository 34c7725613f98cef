"""The files of a run's weights: checkpoints that `zoo.load` takes, for models of this package."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from keras_vit import zoo
from keras_vit.distribution.optimizer import unwrap
from keras_vit.errors import KerasVitError
from keras_vit.lora import factors_of, without_lora
from keras_vit.masked_patches.model import MaskedPatchModel
from keras_vit.models.classifier import Classifier
from keras_vit.training.errors import RunError
from keras_vit.training.runs.checkpoints import read_arrays
from keras_vit.zoo.formats import npz

if TYPE_CHECKING:
    import os

    import keras


def used_later(model):
    """The part of a trained model to keep: the encoder of masked patches; kernels with LoRA's products added."""
    return without_lora(model.encoder if isinstance(model, MaskedPatchModel) else model)


def write_weights(model, path):
    """Writes an .npz: a model of this package in its official layout, as `zoo.save` does, any other as {path: array}.

    Raises:
        OSError: when it cannot be written.
    """
    model = used_later(model)
    if isinstance(model, Classifier):
        npz.write(model, path)
    else:
        np.savez(path, **{v.path: v.numpy() for v in model.weights})


@contextlib.contextmanager
def averaged_weights(model):
    """Inside, the model has its optimizer's averaged weights, if there are any, so that validation evaluates those."""
    optimizer = unwrap(model.optimizer)
    pairs = optimizer.averages() if optimizer.use_ema else []
    before = [variable.numpy() for variable, _ in pairs]
    for variable, average in pairs:
        variable.assign(average.numpy())
    try:
        yield
    finally:
        for (variable, _), value in zip(pairs, before, strict=True):
            variable.assign(value)


def load_weights(model: keras.Model, path: str | os.PathLike) -> None:
    """Puts best.weights.npz, last.weights.npz or averaged.weights.npz of a run into a model of the same architecture.

    Factors of LoRA, whose products the kernels in the file contain, become zero.

    Raises:
        RunError: when the file is missing or damaged, or names, shapes or types differ.

    >>> load_weights(model, "runs/1/best.weights.npz")  # doctest: +SKIP
    """
    try:
        arrays = read_arrays(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error
    factors = factors_of(model)
    kept = [v for v in model.weights if not any(v is factor for factor in factors)]
    if isinstance(model, Classifier) and arrays.keys() != {v.path for v in kept}:
        arrays = read_official(model, kept, path)
    kinds = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    if kinds != {v.path: (tuple(v.shape), v.numpy().dtype) for v in kept}:
        raise RunError(f"{path} holds the weights of another model.")
    for variable in kept:
        variable.assign(arrays[variable.path])
    for factor in factors:
        factor.assign(np.zeros(factor.shape))


def read_official(model, kept, path):
    """{path of a variable of `kept`: array} of a file in an official layout; nothing for one of another model."""
    try:
        stored = zoo.load(path)
    except KerasVitError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if stored.config != model.config:
        return {}
    return {own.path: other.numpy() for own, other in zip(kept, stored.weights, strict=True)}

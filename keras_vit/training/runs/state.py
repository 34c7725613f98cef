"""What a run saves of a model: the state of its training, for checkpoints, and its weights, as `zoo.load` takes them.

The state is all that a training step reads or changes, as arrays, on any number of replicas.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from keras_vit import zoo
from keras_vit.distribution.optimizer import unwrap
from keras_vit.distribution.replicas import assign_per_replica, read_values
from keras_vit.errors import KerasVitError, RunError
from keras_vit.lora import factors_of, without_lora
from keras_vit.masked_patches.model import MaskedPatchModel
from keras_vit.models.classifier import Classifier
from keras_vit.training.runs.checkpoints import read_arrays
from keras_vit.zoo.formats import npz

if TYPE_CHECKING:
    import os

    import keras

DROPOUT = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")


def list_variables(model):
    """{key: variable}: weights, seeds, optimizer, running metrics."""
    named = [("model", model.variables), ("optimizer", model.optimizer.variables), ("metrics", model.metrics_variables)]
    return {f"{kind}/{i}/{v.path}": v for kind, owned in named for i, v in enumerate(owned)}


def key_number(key):
    """("optimizer", "3") of "optimizer/3/path": the path is left out, since its counters depend on the process."""
    return tuple(key.split("/", 2)[:2])


# The dtypes of variables that are others in a checkpoint. numpy cannot save bfloat16; TensorFlow counts steps in int64,
# JAX in int32.
STORED = {"bfloat16": "uint16", "int32": "int64"}


def stored_dtype(variable):
    """The dtype of the variable's array in a checkpoint."""
    return STORED.get(variable.dtype, variable.dtype)


def to_stored(array):
    dtype = STORED.get(array.dtype.name, array.dtype)
    return array.view(dtype) if array.dtype.name == "bfloat16" else array.astype(dtype)


def is_per_replica(key, variable, array):
    """Whether the array has an entry for each replica; the variable is their sum."""
    return key.startswith("metrics/") and array.ndim == len(variable.shape) + 1


def collect_state(model):
    """{key: array} of the model's variables; on several workers all of them must call it.

    On several replicas of TensorFlow, running metrics are stored per replica, (replicas, *shape): restoring only their
    total would change the last bit of later sums.
    """
    strategy = model.distribute_strategy
    return {key: to_stored(read_values(variable, strategy)) for key, variable in list_variables(model).items()}


def check_array(key, variable, array):
    """Refuses an array of another shape or dtype than the variable's."""
    found = None if array is None else array.shape[1:] if is_per_replica(key, variable, array) else array.shape
    if found == tuple(variable.shape) and array.dtype == stored_dtype(variable):
        return
    found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
    expected = f"{stored_dtype(variable)} of shape {tuple(variable.shape)}"
    raise RunError(
        f"The checkpoint has {found} for {key}; expected {expected}. Build and compile the model as in the run that "
        "wrote the checkpoint."
    )


def restore_state(model, arrays):
    """Puts the arrays of `collect_state` into the model, once all of them are known to fit."""
    own = list_variables(model)
    if len(arrays) != len(own):
        raise RunError(
            f"The checkpoint has {len(arrays)} variables; this model with its optimizer and metrics has {len(own)}. "
            "Build and compile the model as in the run that wrote the checkpoint."
        )
    numbered = {key_number(key): array for key, array in arrays.items()}
    for key, variable in own.items():
        check_array(key, variable, numbered.get(key_number(key)))
    for key, variable in own.items():
        array = numbered[key_number(key)]
        if variable.dtype == "bfloat16":
            array = array.view(np.asarray(variable).dtype)
        if is_per_replica(key, variable, array):
            assign_per_replica(variable, array, model.distribute_strategy)
        else:
            variable.assign(array)


def used_later(model):
    """The part of a trained model to keep: the encoder of masked patches; kernels with LoRA's products added."""
    return without_lora(model.encoder if isinstance(model, MaskedPatchModel) else model)


def write_weights(model, path):
    """Writes an .npz: a model of this package in its official layout, as `zoo.save` does; any other {path: array}."""
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


def without_dropout(config):
    """The configuration but for the rates at which training drops, which no weight depends on."""
    there = {name: 0.0 for name in DROPOUT if hasattr(config, name)}
    return dataclasses.replace(config, **there)


def read_official(model, kept, path):
    """{path of a variable of `kept`: array} of a file in an official layout; nothing for one of another model."""
    try:
        stored = zoo.load(path)
    except KerasVitError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if without_dropout(stored.config) != without_dropout(model.config):
        return {}
    return {own.path: other.numpy() for own, other in zip(kept, stored.weights, strict=True)}

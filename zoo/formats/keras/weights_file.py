"""*.weights.h5: Keras' weights, with the description of their model that `write` adds as an attribute."""

import json
import math
import os

import numpy as np

from keras_vit.zoo.formats.bounds import require_plausible
from keras_vit.zoo.formats.checkpoint import Fault, OpenCheckpoint, Tensor, blame_file
from keras_vit.zoo.formats.description import read_description, serialize_model
from keras_vit.zoo.formats.keras import hdf5
from keras_vit.zoo.formats.variables import official_variables


def read(path, hints):
    """The file, if `zoo.save` wrote it, as an `OpenCheckpoint`."""
    description = hdf5.read_attribute(path)
    if description is None:
        raise Fault(
            "does not say which model its weights belong to. Make that model with weights=None and call its "
            "load_weights, or save with keras_vit.zoo.save."
        )
    return open_weights(path, path, *read_description(description))


def open_weights(path, weights, config, preprocessing, labels):
    """The `OpenCheckpoint` of the file at `path`, whose values are in the HDF5 file `weights`."""
    require_plausible(config, hdf5.count_stored_numbers(weights))
    table = official_variables(build_with_weights(weights, config))
    tensors = {name: as_tensor(name, variable, shape) for name, (variable, shape) in table.items()}
    return OpenCheckpoint(path, config, tensors, preprocessing, labels)


def build_with_weights(weights, config):
    """A model of the configuration with the values that Keras reads from the HDF5 file `weights`."""
    from keras_vit.models import build

    model = build(config)
    with blame_file("does not hold the weights of the model it describes"), np.errstate(over="ignore"):
        model.load_weights(weights)
    return model


def as_tensor(name, variable, shape):
    return Tensor(name, shape, lambda: variable.numpy().reshape(shape))


def write(model, path):
    """Writes Keras' weights, with the model's description in an attribute."""
    import h5py

    require_room(path, sum(4096 + 4 * math.prod(variable.shape) for variable in model.variables))
    model.save_weights(path, overwrite=True)
    with h5py.File(path, "a") as file:
        file.attrs[hdf5.ATTRIBUTE] = json.dumps(serialize_model(model))


def require_room(path, size):
    """Raises OSError unless so many bytes can be written: a full disk makes HDF5 crash the process, not raise."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

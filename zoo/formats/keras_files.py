"""*.keras and *.weights.h5, Keras' own files of a model and of weights.

A .keras archive holds its weights as a .weights.h5 file. To a separate .weights.h5 file, `write` adds the description
of its model as an attribute. Weights are checked before Keras reads them: only plain arrays that are stored in the file
itself are allowed.
"""

import contextlib
import json
import math
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from keras_vit.zoo.formats.checkpoint import (
    CONFIGS,
    MOST_JSON,
    Fault,
    OpenCheckpoint,
    Tensor,
    blame_file,
    open_archive,
    parse_json,
    read_description,
    require_few,
    require_plausible,
    serialize_model,
)
from keras_vit.zoo.formats.variables import official_variables

COMPLAINT = "cannot be read as a Keras model"
ATTRIBUTE = "keras_vit"  # the file's attribute with the description of its model
DEEPEST = 32  # nested groups; an encoder block's kernels are six deep


@contextlib.contextmanager
def open_file(path):
    """Yields the HDF5 file at `path`, a checkpoint or a member of one."""
    with blame_file("cannot be read as Keras weights"):
        import h5py

        with h5py.File(path) as file:
            yield file


def weights_fault(why):
    return Fault(f"does not hold the weights of a model: {why}. Save it again with zoo.save.")


def find_datasets(file):
    """Yields every array of the file once, from all groups. No link is followed."""
    import h5py

    seen, groups = set(), [(0, file)]
    while groups:
        depth, group = groups.pop()
        if depth > DEEPEST:
            raise weights_fault(f"its groups are nested over {DEEPEST} deep")
        for key in group:
            if group.get(key, getclass=True, getlink=True) is not h5py.HardLink:
                raise weights_fault(f"{key} is a link to another place")
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            require_few(len(seen))
            if isinstance(item, h5py.Group):
                groups.append((depth + 1, item))
            elif isinstance(item, h5py.Dataset):
                yield item
            else:
                raise weights_fault(f"{key} is neither a group nor an array")


def count_stored_numbers(path):
    """Counts the floating-point numbers, of two bytes or more, in the file."""
    with open_file(path) as file:
        found = list(find_datasets(file))
        for dataset in found:
            if dataset.is_virtual or dataset.external or dataset.shape is None or dataset.dtype.kind not in "fiubV":
                raise weights_fault(f"{dataset.name} is not a plain array of numbers")
            if dataset.chunks:
                raise weights_fault(f"{dataset.name} is stored in chunks, as Keras writes none")
            if dataset.id.get_storage_size() < math.prod(dataset.shape) * dataset.dtype.itemsize:
                raise weights_fault(f"{dataset.name} declares shape {dataset.shape}, but its values are missing")
        if sum(dataset.id.get_storage_size() for dataset in found) > path.stat().st_size:
            raise weights_fault("its arrays take more bytes than there are")
        floats = [dataset for dataset in found if dataset.dtype.kind in "fV" and dataset.dtype.itemsize > 1]
        return sum(math.prod(dataset.shape) for dataset in floats)


def as_tensor(name, variable, shape):
    return Tensor(name, shape, lambda: variable.numpy().reshape(shape))


def open_weights(path, weights, config, preprocessing, labels):
    """The `OpenCheckpoint` for `path`, with the values that Keras reads from the HDF5 file `weights`."""
    from keras_vit.models import build

    require_plausible(config, count_stored_numbers(weights))
    model = build(config, dtype="float32")  # whatever the global policy
    with blame_file("does not hold the weights of the model it describes"), np.errstate(over="ignore"):
        model.load_weights(weights)
    table = official_variables(model)
    tensors = {name: as_tensor(name, variable, shape) for name, (variable, shape) in table.items()}
    return OpenCheckpoint(path, config, tensors, preprocessing, labels)


def require_our_model(description):
    """Refuses the description of a model unless this package has registered its class with Keras."""
    is_object = isinstance(description, dict)
    if is_object and description.get("registered_name") in [f"keras_vit>{name}" for name in CONFIGS]:
        return
    kind = description.get("class_name") if is_object else type(description).__name__
    raise Fault(f"holds a {kind}, not a model of this package. Read it with keras.saving.load_model.")


def read_trainable(config):
    """Reads which parts of the model train: a bool, or {path: bool}."""
    trainable = config.get("trainable")
    values = trainable.values() if isinstance(trainable, dict) else [trainable]
    if not all(isinstance(value, bool) for value in values):
        raise Fault("does not state by True or False which parts of its model train.")
    return trainable


def read_model(path):
    """Opens a .keras file of one of our models as an `OpenCheckpoint`."""
    with open_archive(path, COMPLAINT) as archive, tempfile.TemporaryDirectory() as folder:
        with blame_file(COMPLAINT), archive.open("config.json") as stream:
            text = stream.read(MOST_JSON + 1)
        description = parse_json(text)
        require_our_model(description)
        facts, trainable = read_description(description), read_trainable(description["config"])
        weights = Path(folder, "model.weights.h5")
        with blame_file(COMPLAINT), archive.open(weights.name) as stream, open(weights, "wb") as copy:
            shutil.copyfileobj(stream, copy)
        return replace(open_weights(path, weights, *facts), trainable=trainable)


def read_weights(path):
    """Opens a .weights.h5 file from `zoo.save` as an `OpenCheckpoint`."""
    with open_file(path) as file:
        is_there = ATTRIBUTE in file.attrs and file.attrs.get_id(ATTRIBUTE).shape == ()
        description = file.attrs[ATTRIBUTE] if is_there else None
    if not isinstance(description, str):
        raise Fault(
            "does not say which model its weights belong to. Make that model with weights=None and call its "
            "load_weights, or save with keras_vit.zoo.save."
        )
    return open_weights(path, path, *read_description(parse_json(description)))


def read(path, hints):
    return read_model(path) if path.suffix == ".keras" else read_weights(path)


def require_room(path, size):
    """Raises OSError unless `size` bytes can be written: on a full disk HDF5 would crash the process."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def write(model, path):
    """Writes the whole model like Keras, or its weights with the model's description in an attribute."""
    import h5py

    if path.suffix == ".keras":
        model.save(path)
        return
    require_room(path, sum(4096 + 4 * math.prod(variable.shape) for variable in model.variables))
    model.save_weights(path, overwrite=True)
    with h5py.File(path, "a") as file:
        file.attrs[ATTRIBUTE] = json.dumps(serialize_model(model))

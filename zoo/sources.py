"""Checkpoint files of every format, each as a Source: its tensors under official names, and the model they came from.

No format runs code: arrays are read without pickle, and a model's configuration goes through our own constructors only.
"""

import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.models.config import SIZES, ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.zoo import cost, dialects, hdf5, torch_layouts
from keras_vit.zoo.architecture import read_config
from keras_vit.zoo.companions import (
    companions,
    stated_heads,
    stated_labels,
    stated_numerics,
    stated_preprocessing,
)
from keras_vit.zoo.foreign import MOST_JSON, MOST_LAYERS, foreign, open_archive, parsed
from keras_vit.zoo.tensors import Tensor, open_npz, open_safetensors, shapes
from keras_vit.zoo.variables import variables

CONFIGS = {"VisionTransformer": ViTConfig, "ResNet": ResNetConfig}
MOST_MISSING = 0.5  # of a model's numbers, that it is begun for, so that each missing tensor can be named


@dataclass(frozen=True)
class Source:
    """Everything a checkpoint knows: tensors under official names, and the model they came from."""

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping
    preprocessing: Preprocessing | None = None
    labels: tuple | None = None


def described(path, description):
    """(config, preprocessing, labels) of a model's description: {"class_name": ..., "config": {...}}, checked."""
    try:
        values = dict(description["config"])
        kind = CONFIGS[description["class_name"]]
        config = kind(**{field.name: values[field.name] for field in fields(kind)})
        stated = values.get("preprocessing")
        preprocessing = Preprocessing(**stated) if stated else None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not describe a model of this package: {error!r}.") from error
    if preprocessing and len(preprocessing.mean) != config.num_channels:
        raise CheckpointError(
            f"{path} describes preprocessing of other than its model's {config.num_channels} channels."
        )
    return config, preprocessing, described_labels(path, values.get("labels"), config.num_classes)


def described_labels(path, labels, num_classes):
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_classes:
        raise CheckpointError(f"{path} describes a model of {num_classes} classes and does not name each of them once.")
    return tuple(map(str, labels))


def require_plausible(path, config, numbers, share=1):
    """Refuses a configuration of which the file's numbers do not fill that share, before anything is built for it."""
    needed = cost.parameters(config)
    if share * needed > numbers:
        raise CheckpointError(f"{path} describes a model of {needed:,} parameters and holds {numbers:,} numbers.")
    if cost.layers(config) > MOST_LAYERS:
        raise CheckpointError(
            f"{path} describes a model of {cost.layers(config):,} layers; models of at most {MOST_LAYERS} are built."
        )


def count(tensors):
    return sum(math.prod(shape) for shape in shapes(tensors).values())


def read_official(path, num_heads):
    """An official .npz file. One that `zoo.save` wrote describes its model in the archive's comment."""
    tensors = dialects.canonical(path, open_npz(path))
    with open_archive(path, "cannot be read as a numpy archive (.npz)") as archive:
        comment = archive.comment
    if comment.startswith(b"{"):
        config, preprocessing, labels = described(path, parsed(path, comment))
    else:
        config, preprocessing, labels = read_config(path, tensors), None, None
    require_plausible(path, config, count(tensors), MOST_MISSING)
    return Source(path, config, tensors, preprocessing, labels)


def read_torch(path, num_heads):
    """A .safetensors state dict of timm or transformers; heads from the call, a config.json beside it, or Table 1."""
    stated, tensors = companions(path), open_safetensors(path)
    heads = num_heads or stated_heads(stated) or heads_by_size(tensors)
    tensors, numerics = torch_layouts.canonical(path, tensors, heads)
    numerics = numerics and {**numerics, **stated_numerics(path, stated)}
    config = torch_layouts.with_numerics(read_config(path, tensors), numerics)
    require_plausible(path, config, count(tensors), MOST_MISSING)
    return Source(
        path, config, tensors, stated_preprocessing(stated, config), stated_labels(stated, config.num_classes)
    )


def heads_by_size(tensors):
    """The heads of a Ti, S, B, L or H Transformer, known by width, depth and MLP; None for any other."""
    blocks = [re.search(r"(?:blocks|layers|layer)\.(\d+)\.", name) for name in tensors]
    depth = len({match[1] for match in blocks if match})
    hidden = [
        t.shape for name, t in tensors.items() if re.search(r"\.0\.(mlp\.fc1|intermediate\.dense)\.weight$", name)
    ]
    for name, (hidden_size, num_layers, num_heads, mlp_dim) in SIZES.items():
        if name != "Test" and num_layers == depth and (mlp_dim, hidden_size) in hidden:
            return num_heads
    return None


def read_keras(path, num_heads):
    """A `.keras` file of one of our models: its weights are those of a `.weights.h5` file, which it holds."""
    complaint = "cannot be read as a Keras model"
    with open_archive(path, complaint) as archive, tempfile.TemporaryDirectory() as folder:
        with foreign(path, complaint), archive.open("config.json") as stream:
            text = stream.read(MOST_JSON + 1)
        about = described(path, of_our_models(path, parsed(path, text)))
        weights = Path(folder, "model.weights.h5")
        with foreign(path, complaint), archive.open(weights.name) as stream, open(weights, "wb") as copy:
            shutil.copyfileobj(stream, copy)
        return from_weights(path, weights, *about)


def of_our_models(path, description):
    """The description, if it is of a model that this package registers with Keras."""
    ours = [f"keras_vit>{name}" for name in CONFIGS]
    if isinstance(description, dict) and description.get("registered_name") in ours:
        return description
    kind = description.get("class_name") if isinstance(description, dict) else type(description).__name__
    raise CheckpointError(f"{path} holds a {kind}, not a model of this package. Read it with keras.saving.load_model.")


def read_weights(path, num_heads):
    """A `.weights.h5` file that `zoo.save` wrote: it describes its model in an attribute."""
    description = hdf5.description(path)
    if description is None:
        raise CheckpointError(
            f"{path} does not say what model its weights are of. Make that model with weights=None and call its "
            "load_weights, or save with keras_vit.zoo.save."
        )
    return from_weights(path, path, *described(path, description))


def from_weights(path, weights, config, preprocessing, labels):
    """The Source of the checkpoint at `path`, whose values are in the HDF5 file `weights`."""
    require_plausible(path, config, hdf5.stored_numbers(path, weights))
    table = variables(filled(path, weights, config))
    tensors = {name: held(name, variable, shape) for name, (variable, shape) in table.items()}
    return Source(path, config, tensors, preprocessing, labels)


def filled(path, weights, config):
    """A model of the configuration with the values that Keras reads from the HDF5 file `weights`."""
    from keras_vit.models import build

    model = build(config)
    with foreign(path, "does not hold the weights of the model it describes"), np.errstate(over="ignore"):
        model.load_weights(weights)
    return model


def held(name, variable, shape):
    return Tensor(name, shape, lambda: variable.numpy().reshape(shape))


READERS = {".npz": read_official, ".safetensors": read_torch, ".keras": read_keras, ".weights.h5": read_weights}


def read(reader, path, num_heads):
    try:
        return reader(path, num_heads)
    except ConfigError as error:
        raise CheckpointError(f"{path} does not describe a model that this package can build. {error}") from error


def open_source(path, num_heads=None):
    """The Source of a file, by its ending; `num_heads` tells what a state dict of torch cannot.

    Raises:
        CheckpointError: for a file that is missing, damaged or foreign.
    """
    if not os.path.isfile(path):
        raise CheckpointError(
            f"There is no file {path}. Give the path of a checkpoint, or a name that zoo.list() shows."
        )
    for ending, reader in READERS.items():
        if path.name.endswith(ending):
            return read(reader, path, num_heads)
    raise CheckpointError(f"{path} has an ending this package does not read. Known: {', '.join(READERS)}.")

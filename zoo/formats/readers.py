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
from keras_vit.models import cost
from keras_vit.models.config import SIZES, ResNetConfig, ViTConfig, pair
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing, preprocessing_of
from keras_vit.zoo.formats import hdf5, official_layouts, timm_config, torch_layouts, transformers_config
from keras_vit.zoo.formats.architecture import read_config
from keras_vit.zoo.formats.companion_files import read_companions, stated_labels
from keras_vit.zoo.formats.foreign import MOST_JSON, MOST_LAYERS, foreign, open_archive, parsed
from keras_vit.zoo.formats.stated import require_own_config
from keras_vit.zoo.formats.stated_input import stated_preprocessing
from keras_vit.zoo.formats.tensors import Tensor, open_npz, open_safetensors, safetensors_metadata, shapes
from keras_vit.zoo.formats.variables import variables

CONFIGS = {"VisionTransformer": ViTConfig, "ResNet": ResNetConfig}
MOST_MISSING = 0.5  # of a model's numbers, that it is begun for, so that each missing tensor can be named


@dataclass(frozen=True)
class Hints:
    """What a caller knows of a checkpoint that its file may not say.

    Args:
        num_heads: attention heads, which hold against what is stated.
        variant_heads: those of the variant asked for, where nothing is stated.
        image_size: int or (height, width), in patches of `patch_size`, for grids that are no square.
        patch_size: of the model asked for; None for the file's.
    """

    num_heads: int | None = None
    variant_heads: int | None = None
    image_size: int | tuple | None = None
    patch_size: int | tuple | None = None

    @property
    def asked(self):
        """The arguments of `read_config` that these hints are."""
        size = None if self.image_size is None else pair("image_size", self.image_size)
        return {"asked": size, "patch_size": self.patch_size}


@dataclass(frozen=True)
class Source:
    """Everything a checkpoint knows: tensors under official names, and the model they came from.

    `preprocessing` None stands for the paper's.
    """

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping
    preprocessing: Preprocessing | UnknownPreprocessing | None = None
    labels: tuple | None = None


def described(path, description):
    """(config, preprocessing, labels) of a model's description: {"class_name": ..., "config": {...}}, checked."""
    try:
        values = dict(description["config"])
        kind = CONFIGS[description["class_name"]]
        config = kind(**{field.name: values[field.name] for field in fields(kind)})
        stated = values.get("preprocessing")
        preprocessing = preprocessing_of(stated) if stated else None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not describe a model of this package: {error!r}.") from error
    if isinstance(preprocessing, Preprocessing) and len(preprocessing.mean) != config.num_channels:
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


def read_official(path, hints):
    """An official .npz file. One that `zoo.save` wrote describes its model in the archive's comment."""
    tensors = official_layouts.canonical(path, open_npz(path))
    with open_archive(path, "cannot be read as a numpy archive (.npz)") as archive:
        comment = archive.comment
    if comment.startswith(b"{"):
        config, preprocessing, labels = described(path, parsed(path, comment))
    else:
        config, preprocessing, labels = read_config(path, tensors, **hints.asked), None, None
    require_plausible(path, config, count(tensors), MOST_MISSING)
    return Source(path, config, tensors, preprocessing, labels)


def read_torch(path, hints):
    """A state dict of timm or transformers; one that `zoo.save` wrote describes its model in its header."""
    text, tensors = safetensors_metadata(path).get("keras_vit"), torch_layouts.stripped(path, open_safetensors(path))
    layout = torch_layouts.layout_of(path, tensors)
    if text is None:
        return read_foreign(path, tensors, layout, hints)
    config, preprocessing, labels = described(path, parsed(path, text))
    tensors = torch_layouts.canonical(path, tensors, layout, getattr(config, "num_heads", None))
    require_plausible(path, config, count(tensors), MOST_MISSING)
    return Source(path, config, tensors, preprocessing, labels)


def read_foreign(path, tensors, layout, hints):
    """A state dict as its library wrote it: heads from the call, the JSON files beside it, the variant or Table 1."""
    said, processor = read_companions(path)
    statements = {"timm": timm_config, "transformers": transformers_config}[layout.library]
    stated = (statements.stated_vit if layout.numerics else statements.stated_bit)(path, said, tensors)
    require_own_config(path, torch_layouts.width(tensors), stated)
    heads = hints.num_heads or stated.num_heads or hints.variant_heads
    heads = heads or (heads_by_size(tensors) if stated.assume_heads else None)
    tensors = torch_layouts.canonical(path, tensors, layout, heads, stated.patch_positions)
    config = read_config(path, tensors, stated.image_size, **hints.asked)
    config = torch_layouts.with_numerics(config, {**layout.numerics, **stated.fields})
    require_own_config(path, vars(config), stated)
    require_plausible(path, config, count(tensors), MOST_MISSING)
    preprocessing = stated_preprocessing(path, said, processor, config)
    return Source(path, config, tensors, preprocessing, stated_labels(said, config.num_classes))


def heads_by_size(tensors):
    """The heads that Table 1 gives a Ti, S, B, L or H Transformer of that width, depth and MLP; None for any other."""
    blocks = [re.search(r"(?:blocks|layers|layer)\.(\d+)\.", name) for name in tensors]
    depth = len({match[1] for match in blocks if match})
    hidden = [
        t.shape for name, t in tensors.items() if re.search(r"\.0\.(mlp\.fc1|intermediate\.dense)\.weight$", name)
    ]
    for name, (hidden_size, num_layers, num_heads, mlp_dim) in SIZES.items():
        if name != "Test" and num_layers == depth and (mlp_dim, hidden_size) in hidden:
            return num_heads
    return None


def read_keras(path, hints):
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


def read_weights(path, hints):
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


def read(reader, path, hints):
    try:
        return reader(path, hints)
    except ConfigError as error:
        raise CheckpointError(f"{path} does not describe a model that this package can build. {error}") from error


def open_source(path, hints=None):
    """The Source of a file, by its ending; `hints` tell what it cannot say.

    Raises:
        CheckpointError: for a file that is missing, damaged or foreign.
    """
    if not os.path.isfile(path):
        raise CheckpointError(
            f"There is no file {path}. Give the path of a checkpoint, or a name that zoo.list() shows."
        )
    for ending, reader in READERS.items():
        if path.name.endswith(ending):
            return read(reader, path, hints or Hints())
    raise CheckpointError(f"{path} has an ending this package does not read. Known: {', '.join(READERS)}.")

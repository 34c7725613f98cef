"""An open checkpoint: its named tensors, the faults it may have, and the kinds of files it comes from.

No format runs code: arrays are read without pickle, and only our own constructors read a model's configuration.
Importing this imports no Keras and no file library.
"""

import contextlib
import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType

from keras_vit.errors import CheckpointError, ConfigError, KerasVitError
from keras_vit.models.axial.config import AxialResNetConfig, AxialViTConfig
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing, preprocessing_of

# A run's weights in the order of preference, its model, and the files in folders of transformers and timm.
IN_FOLDERS = (
    *("best.weights.npz", "averaged.weights.npz", "last.weights.npz", "model.keras"),
    *("model.safetensors", "timm/model.safetensors"),
)


class Fault(CheckpointError):
    """An error in a checkpoint: a sentence without its beginning, the file's path (`about_file`)."""


@contextlib.contextmanager
def about_file(path: str | os.PathLike) -> Iterator[None]:
    """A scope for the file at `path`: turns a `Fault` into a CheckpointError that names the file.

    >>> with about_file("mine.npz"):
    ...     raise Fault("lacks the tensor cls.")
    Traceback (most recent call last):
    keras_vit.errors.CheckpointError: mine.npz lacks the tensor cls.
    """
    try:
        yield
    except Fault as fault:
        raise CheckpointError(f"{os.fspath(path)} {fault}") from fault.__cause__


@contextlib.contextmanager
def blame_file(complaint: str) -> Iterator[None]:
    """A scope in which a library reads untrusted bytes: turns any exception into a `Fault`.

    Libraries also raise errors that their authors did not foresee, so no list of exceptions is complete. Only such
    reading belongs into the scope: it would blame the file for mistakes of this package.
    """
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise Fault(f"{complaint}: {cause}. Fetch the file again from its source.") from error


class SharedRead:
    """A function `read` of a tensor that keeps the values for a number of uses."""

    def __init__(self, read, uses):
        self.read, self.uses, self.left, self.values = read, uses, 0, None

    def __call__(self):
        if not self.left:
            self.left, self.values = self.uses, self.read()
        self.left -= 1
        values = self.values
        if not self.left:
            self.values = None
        return values


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its name there, its shape, and the function `read()` that returns its values."""

    source: str
    shape: tuple
    read: Callable

    def map(self, shape, function):
        """The tensor of the given shape that `function` makes from this one's values."""
        return replace(self, shape=tuple(shape), read=lambda: function(self.read()))

    def with_length(self, axis, length, function):
        """The tensor that `function` makes from this one's values by changing the length of one axis."""
        return self.map((*self.shape[:axis], length, *self.shape[axis + 1 :]), function)

    def reshape(self, shape):
        return self.map(shape, lambda values: values.reshape(shape))

    def share(self, uses):
        """This tensor, for `uses` others made from it: values are read for the first and dropped after the last."""
        return replace(self, read=SharedRead(self.read, uses))


def gather(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """{name: Tensor} from (name, tensor) pairs; raises a Fault if two have the same name."""
    tensors = {}
    for name, tensor in named:
        if name in tensors:
            raise Fault(f"holds two tensors of the same name, {name}. Fetch the file again from its source.")
        tensors[name] = tensor
    return tensors


def count_numbers(tensors: Mapping[str, Tensor]) -> int:
    """The number of values in all tensors."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


@dataclass(frozen=True)
class Hints:
    """Facts about a checkpoint that its file may not state, from the caller.

    Args:
        num_heads: attention heads, overriding the files.
        variant_heads: attention heads of the requested variant, if the files state none.
        image_size: int or (height, width), in patches of `patch_size`, for grids that are not square.
        patch_size: that of the requested model; None for the file's.
        own_size: (height, width) of the images that the file was trained on, if known.
        fields: fields of the configuration that tensors cannot show, {name: value}.
    """

    num_heads: int | None = None
    variant_heads: int | None = None
    image_size: int | tuple[int, int] | None = None
    patch_size: int | tuple[int, int] | None = None
    own_size: tuple[int, int] | None = None
    fields: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class OpenCheckpoint:
    """The contents of a checkpoint: tensors under official names, and a description of their model.

    Args:
        path: path of its file.
        config: the model's configuration.
        tensors: {official name: Tensor}, not read yet.
        preprocessing: preprocessing of the images; None for the paper's.
        labels: names of the classes, or None.
        trainable: the parts of the model that train, as the argument of `Classifier`.
    """

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping[str, Tensor]
    preprocessing: Preprocessing | UnknownPreprocessing | None = None
    labels: tuple[str, ...] | None = None
    trainable: bool | Mapping[str, bool] = True


# The families of models, by the names of their classes in a file's description.
CONFIGS = {
    "VisionTransformer": ViTConfig,
    "ResNet": ResNetConfig,
    "AxialVisionTransformer": AxialViTConfig,
    "AxialResNet": AxialResNetConfig,
}


def serialize_model(model):
    """The description of a model that `zoo.save` writes into every file: {"class_name": ..., "config": {...}}.

    Class and arguments are as in Keras' `.keras` files, without those that concern training.
    """
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "dtype", "trainable")}
    return {"class_name": type(model).__name__, "config": config}


def read_labels(labels, num_classes):
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_classes:
        raise Fault(f"describes a model of {num_classes} classes but does not name each of them once.")
    return tuple(map(str, labels))


def read_description(description):
    """Reads (config, preprocessing, labels) from a model's description; only our own constructors run."""
    try:
        values = dict(description["config"])
        kind = CONFIGS[description["class_name"]]
        kept = [x.name for x in fields(kind) if not x.metadata.get("later") or x.name in values]
        config = kind(**{name: values[name] for name in kept})
        stated = values.get("preprocessing")
        preprocessing = preprocessing_of(stated) if stated else None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"does not describe a model of this package: {error!r}.") from error
    if isinstance(preprocessing, Preprocessing) and len(preprocessing.mean) != config.num_channels:
        raise Fault(
            f"describes a model of {config.num_channels} channels but a preprocessing of {len(preprocessing.mean)}."
        )
    return config, preprocessing, read_labels(values.get("labels"), config.num_classes)


@dataclass(frozen=True)
class Ending:
    """A kind of checkpoint file.

    Args:
        suffix: ending of its files' names.
        title: its name in sentences.
        module: a module; `read(path, hints)` opens such a file as an `OpenCheckpoint`, `write(model, path)` raises
            OSError if there is no room.
    """

    suffix: str
    title: str
    module: str

    def load(self) -> ModuleType:
        """The module that reads and writes such files."""
        return importlib.import_module(self.module)


ENDINGS = (
    Ending(".npz", "the authors' layouts", "keras_vit.zoo.formats.npz"),
    Ending(".safetensors", "timm's and transformers' state dicts", "keras_vit.zoo.formats.safetensors"),
    Ending(".keras", "a model of Keras", "keras_vit.zoo.formats.keras_files"),
    Ending(".weights.h5", "weights of Keras", "keras_vit.zoo.formats.keras_files"),
)


def find_ending(path: str | os.PathLike) -> Ending:
    """The row for a file.

    Raises:
        CheckpointError: for an unknown ending.

    >>> find_ending("runs/best.npz").title
    "the authors' layouts"
    """
    for ending in ENDINGS:
        if os.fspath(path).endswith(ending.suffix):
            return ending
    known = ", ".join(f"{ending.suffix} ({ending.title})" for ending in ENDINGS)
    raise CheckpointError(f"{path} does not have the ending of any checkpoint format. Known: {known}.")


def find_file(path: Path) -> Path:
    """Finds the file of a checkpoint: `path`, or the first of `IN_FOLDERS` if that is a folder.

    Raises:
        CheckpointError: if there is none.
    """
    for file in (path, *(path / name for name in IN_FOLDERS)):
        if os.path.isfile(file):
            return file
    expected = "a checkpoint, a folder with one (of a run, or of the Hub), or a name that zoo.list() shows"
    if os.path.isdir(path):
        raise CheckpointError(f"There is no model in the folder {path}. Expected {expected}.")
    kind = "file" if os.path.splitext(path)[1] else "folder or file"
    raise CheckpointError(f"There is no {kind} {path}. Expected {expected}.")


def open_checkpoint(path: Path, hints: Hints | None = None) -> OpenCheckpoint:
    """Opens the checkpoint in a file or folder, by the file's ending; `hints` add facts that the file cannot state.

    Raises:
        CheckpointError: for a file that is missing, damaged or foreign.
    """
    path = find_file(path)
    module = find_ending(path).load()
    with about_file(path):
        try:
            return module.read(path, hints or Hints())
        except ConfigError as error:
            raise Fault(f"does not describe a model that this package can build. {error}") from error

"""An open checkpoint: its named tensors, the faults it may have, and the kinds of files it comes from.

No format runs code: arrays are read without pickle, and a model's configuration goes through our own constructors only.
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

# The weights of a run by their use, its model, and the files of folders of transformers and timm.
IN_FOLDERS = (
    *("best.weights.npz", "averaged.weights.npz", "last.weights.npz", "model.keras"),
    *("model.safetensors", "timm/model.safetensors"),
)


class Fault(CheckpointError):
    """What is wrong with a checkpoint: a sentence without its beginning, the file's path (`about_file`)."""


@contextlib.contextmanager
def about_file(path: str | os.PathLike) -> Iterator[None]:
    """A scope about the file at `path`: a `Fault` inside becomes a CheckpointError that names the file.

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
    """A scope in which a library reads a stranger's bytes: whatever it raises becomes a `Fault`.

    Libraries raise what their authors did not foresee, so no list of exceptions is ever complete. Only such reading
    belongs in the scope, or a mistake of this package would be blamed on the file.
    """
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise Fault(f"{complaint}: {cause}. Fetch the file again from its source.") from error


class SharedRead:
    """A tensor's `read` that keeps the values for a number of uses."""

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
    """A tensor of a file: its name there, its shape, and `read()`, which fetches its values."""

    source: str
    shape: tuple
    read: Callable

    def map(self, shape, function):
        """The tensor that `function` makes of this one's values, of the given shape."""
        return replace(self, shape=tuple(shape), read=lambda: function(self.read()))

    def with_length(self, axis, length, function):
        """The same, where `function` changes the length of one axis."""
        return self.map((*self.shape[:axis], length, *self.shape[axis + 1 :]), function)

    def reshape(self, shape):
        return self.map(shape, lambda values: values.reshape(shape))

    def share(self, uses):
        """This tensor for `uses` others made of it: its values are read for the first and dropped after the last."""
        return replace(self, read=SharedRead(self.read, uses))


def gather(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """{name: Tensor} of (name, tensor) pairs, if no two have one name."""
    tensors = {}
    for name, tensor in named:
        if name in tensors:
            raise Fault(f"holds two tensors of one name, {name}. Fetch the file again from its source.")
        tensors[name] = tensor
    return tensors


def count_numbers(tensors: Mapping[str, Tensor]) -> int:
    """How many numbers the tensors hold."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


@dataclass(frozen=True)
class Hints:
    """What a caller knows about a checkpoint and its file may not state.

    Args:
        num_heads: attention heads, whatever the files state.
        variant_heads: those of the requested variant, if nothing is stated.
        image_size: int or (height, width), in patches of `patch_size`, for grids that are not square.
        patch_size: of the model asked for; None for the file's.
        own_size: (height, width) of the images that the file was trained on, where that is known.
        fields: of the configuration, those that tensors cannot tell, {name: value}.
    """

    num_heads: int | None = None
    variant_heads: int | None = None
    image_size: int | tuple[int, int] | None = None
    patch_size: int | tuple[int, int] | None = None
    own_size: tuple[int, int] | None = None
    fields: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class OpenCheckpoint:
    """Everything a checkpoint knows: tensors under official names, and the model they came from.

    Args:
        path: of its file.
        config: of the model.
        tensors: {official name: Tensor}, none of them read.
        preprocessing: of the images; None stands for the paper's.
        labels: names of the classes, or None.
        trainable: which parts of the model train, as the argument of `Classifier`.
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

    Class and arguments are as Keras writes them into `.keras` files, without those that concern training.
    """
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "dtype", "trainable")}
    return {"class_name": type(model).__name__, "config": config}


def read_labels(labels, num_classes):
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_classes:
        raise Fault(f"describes a model of {num_classes} classes and does not name each of them once.")
    return tuple(map(str, labels))


def read_description(description):
    """(config, preprocessing, labels) of a model's description, checked: only our own constructors run."""
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
            f"describes a model of {config.num_channels} channels and its preprocessing of {len(preprocessing.mean)}."
        )
    return config, preprocessing, read_labels(values.get("labels"), config.num_classes)


@dataclass(frozen=True)
class Ending:
    """A kind of checkpoint file.

    Args:
        suffix: how the names of its files end.
        title: what it is called in sentences.
        module: its `read(path, hints)` opens such a file as an `OpenCheckpoint`; its `write(model, path)` raises
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
    """The row of a file.

    Raises:
        CheckpointError: for an ending that no row has.

    >>> find_ending("runs/best.npz").title
    "the authors' layouts"
    """
    for ending in ENDINGS:
        if os.fspath(path).endswith(ending.suffix):
            return ending
    known = ", ".join(f"{ending.suffix} ({ending.title})" for ending in ENDINGS)
    raise CheckpointError(f"{path} has an ending that names no checkpoint format. Known: {known}.")


def find_file(path: Path) -> Path:
    """The file of a checkpoint: `path`, or in a folder the first of `IN_FOLDERS`.

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
    """The checkpoint in a file or folder, read by the file's ending; `hints` add what the file cannot state.

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

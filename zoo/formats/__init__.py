"""Checkpoint files: `ENDINGS` has a row for each kind, `open_checkpoint` reads any of them.

No format runs code: arrays are read without pickle, and only our own constructors read a model's configuration.
Importing this imports no Keras and no file library.
"""

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.zoo.formats.checkpoint import Fault, Hints, OpenCheckpoint, about_file

# A run's weights in the order of preference, its model, and the files in folders of transformers and timm.
IN_FOLDERS = (
    *("best.weights.npz", "averaged.weights.npz", "last.weights.npz", "model.keras"),
    *("model.safetensors", "timm/model.safetensors"),
)


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

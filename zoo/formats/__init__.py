"""Checkpoint files: `ENDINGS` has a row for each kind, `open_checkpoint` reads any of them.

No format runs code: arrays are read without pickle, and only our own constructors read a model's configuration.
Importing this imports no Keras and no file library.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.zoo.formats.checkpoint import Fault, Hints, OpenCheckpoint, about_file

# A run's weights in the order of preference, its model, and the files in folders of transformers and timm.
IN_FOLDERS = (
    *("best.weights.npz", "averaged.weights.npz", "last.weights.npz", "model.keras"),
    *("model.safetensors", "timm/model.safetensors"),
)


# {ending of a file's name: (title of the format, module in this package)}. The module's `read(path, hints)` opens such
# a file as an `OpenCheckpoint`; its `write(model, path)` raises OSError if there is no room.
ENDINGS = {
    ".npz": ("the authors' layouts", "npz"),
    ".safetensors": ("timm's and transformers' state dicts", "safetensors"),
    ".keras": ("a model of Keras", "keras_files"),
    ".weights.h5": ("weights of Keras", "keras_files"),
}


def module_for(path: str | os.PathLike) -> ModuleType:
    """The module that reads and writes a file, by its ending.

    >>> module_for("runs/best.npz").__name__
    'keras_vit.zoo.formats.npz'
    """
    for ending, (_, module) in ENDINGS.items():
        if os.fspath(path).endswith(ending):
            return importlib.import_module(f"keras_vit.zoo.formats.{module}")
    known = ", ".join(f"{ending} ({title})" for ending, (title, _) in ENDINGS.items())
    raise CheckpointError(f"{path} does not have the ending of any checkpoint format. Known: {known}.")


def find_file(path: Path) -> Path:
    """Finds the file of a checkpoint: `path`, or the first of `IN_FOLDERS` if that is a folder."""
    for file in (path, *(path / name for name in IN_FOLDERS)):
        if os.path.isfile(file):
            return file
    expected = "a checkpoint, a folder with one (of a run, or of the Hub), or a name that zoo.list() shows"
    if os.path.isdir(path):
        others = sorted(name for name in os.listdir(path) if name.endswith((".bin", ".safetensors.index.json")))
        advice = " save_pretrained(folder, max_shard_size='99GB') of transformers writes one model.safetensors."
        advice = f" {others[0]} is not read.{advice}" if others else ""
        raise CheckpointError(f"There is no model in the folder {path}. Expected {expected}.{advice}")
    kind = "file" if os.path.splitext(path)[1] else "folder or file"
    is_repository = not os.path.isabs(path) and os.fspath(path).count("/") == 1
    advice = " A repository of the Hub is written hf://owner/name." if is_repository else ""
    raise CheckpointError(f"There is no {kind} {path}. Expected {expected}.{advice}")


def open_checkpoint(path: Path, hints: Hints | None = None) -> OpenCheckpoint:
    """Opens the checkpoint in a file or folder, by the file's ending; `hints` add facts that the file cannot state.

    Raises:
        CheckpointError: for a file that is missing, damaged or foreign.
    """
    path = find_file(path)
    module = module_for(path)
    with about_file(path):
        try:
            return module.read(path, hints or Hints())
        except ConfigError as error:
            raise Fault(f"does not describe a model that this package can build. {error}") from error

"""The kinds of checkpoint files, a row for each ending. Importing the table imports no Keras and no file library."""

import importlib
import os
from dataclasses import dataclass
from types import ModuleType

from keras_vit.errors import CheckpointError


@dataclass(frozen=True)
class Ending:
    """A kind of checkpoint file.

    Args:
        suffix: how the names of its files end.
        title: what it is called in sentences.
        module: has `read(path, hints)`, which opens such a file as an `OpenCheckpoint`, and `write(model, path)`,
            which raises OSError where there is no room.
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
    Ending(".keras", "a model of Keras", "keras_vit.zoo.formats.keras.model_file"),
    Ending(".weights.h5", "weights of Keras", "keras_vit.zoo.formats.keras.weights_file"),
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


def require_file(path: str | os.PathLike) -> None:
    """Refuses a path that leads to no file."""
    expected = "the path of a checkpoint, the folder of a run, or a name that zoo.list() shows"
    if os.path.isdir(path):
        raise CheckpointError(f"There is no model in the folder {path}. Expected {expected}.")
    if not os.path.isfile(path):
        kind = "file" if os.path.splitext(path)[1] else "folder or file"
        raise CheckpointError(f"There is no {kind} {path}. Expected {expected}.")

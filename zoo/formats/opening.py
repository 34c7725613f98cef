"""From a file of any kind to an `OpenCheckpoint`.

No format runs code: arrays are read without pickle, and a model's configuration goes through our own constructors only.
"""

from pathlib import Path

from keras_vit.errors import ConfigError
from keras_vit.zoo.formats.checkpoint import Hints, OpenCheckpoint
from keras_vit.zoo.formats.endings import find_ending, require_file
from keras_vit.zoo.formats.faults import Fault, about_file


def open_checkpoint(path: Path, hints: Hints | None = None) -> OpenCheckpoint:
    """The checkpoint in a file, by the file's ending; `hints` tell what it cannot say.

    Raises:
        CheckpointError: for a file that is missing, damaged or foreign.
    """
    require_file(path)
    module = find_ending(path).load()
    with about_file(path):
        try:
            return module.read(path, hints or Hints())
        except ConfigError as error:
            raise Fault(f"does not describe a model that this package can build. {error}") from error

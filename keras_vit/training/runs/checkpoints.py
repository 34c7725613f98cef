"""Checkpoints of a run: step-00000120.npz, entered in the run's record, under its name only when it is complete."""

from __future__ import annotations

import errno
import os
import warnings
import zipfile
from collections.abc import Mapping

import numpy as np

from keras_vit.errors import RunError, printable
from keras_vit.files import local_path, sha256
from keras_vit.training.runs.run_folder import RunFolder, warn_if_not_written


def read_arrays(path):
    """{name: array} of a file that `numpy.savez` wrote; a ValueError for a damaged one.

    A compressed one is refused too: a small file could fill the memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("its arrays are compressed, which a run never does")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except OSError:
        raise
    except Exception as error:  # numpy, zipfile and zlib have a dozen kinds for damaged files
        raise ValueError(str(error) or type(error).__name__) from error


class Checkpoints:
    """The checkpoints in a folder.

    Args:
        folder: made when first written to.
        keep: how many of the newest complete ones stay.
        run_folder: the folder above it, if there is an object of it already.

    >>> store = keras_vit.training.Checkpoints("runs/1/checkpoints")
    >>> store.save(120, {"kernel": np.zeros((4, 2))})
    True
    >>> store.steps()
    [120]
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 2, run_folder: RunFolder | None = None):
        self.folder = local_path(folder)
        self.keep = keep
        self.run_folder = run_folder or RunFolder(self.folder.parent, self.folder.name)

    def steps(self) -> list[int]:
        """Steps of the run's complete checkpoints, newest first."""
        entered = self.run_folder.checkpoints().items()
        return sorted((step for step, entry in entered if entry and self.path(step).is_file()), reverse=True)

    def name(self, step):
        """The checkpoint's name in the run's folder."""
        return f"{self.folder.name}/step-{step:08d}.npz"

    def path(self, step):
        return self.run_folder.path / self.name(step)

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes a checkpoint, then removes the oldest; a full or failing disk damages no earlier one.

        Returns:
            True, or False with a warning when the checkpoint could not be written.
        """
        try:
            self.write(step, arrays)
        except OSError as error:
            warnings.warn(
                f"The checkpoint of step {step} could not be written to {printable(self.folder)}: {error.strerror}. "
                "Earlier checkpoints are unchanged.",
                stacklevel=2,
            )
            return False
        with warn_if_not_written(self.folder / "run.json"):
            old = set(self.run_folder.checkpoints()) - set(self.steps()[: self.keep])  # incomplete ones too
            self.run_folder.remove(map(self.name, old))
        return True

    def write(self, step, arrays):
        files, name, path = self.run_folder.entries(), self.name(step), self.path(step)
        if name not in files:
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, f"{path.name} exists and was not written by this run")
            self.run_folder.save({**files, name: []})  # `save` then removes what a kill leaves of it
        with self.run_folder.writing(name) as unfinished:
            np.savez(unfinished, **arrays)

    def load(self, step: int) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint.

        Raises:
            RunError: when it is incomplete, damaged, or of another run.
        """
        try:
            if sha256(self.path(step)) not in self.run_folder.digests().get(self.name(step), []):
                raise ValueError("it is damaged or of another run: its SHA-256 is not the recorded one")
            return read_arrays(self.path(step))
        except (OSError, ValueError) as error:
            raise RunError(f"The checkpoint of step {step} in {self.folder} cannot be read: {error}.") from error

    def newest(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """(step, arrays) of the newest readable checkpoint, or None; warns of those skipped.

        Raises:
            RunError: if there are checkpoints but none is readable, or all of them are gone.
        """
        steps = self.steps()
        if not steps and any(isinstance(entry, str) for entry in self.run_folder.checkpoints().values()):
            raise RunError(
                f"The run's checkpoints are missing from {self.folder}. Put one back, or begin in another folder."
            )
        for step in steps:
            try:
                return step, self.load(step)
            except RunError as error:
                if step == steps[-1]:
                    raise RunError(
                        f"{error} No other checkpoint is left: begin in another folder, or empty this one."
                    ) from error
                warnings.warn(f"{error} The one before it is used.", stacklevel=2)
        return None

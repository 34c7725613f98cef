"""Checkpoints of a run.

A checkpoint is two files: step-00000120.npz, the arrays, and step-00000120.json with its length and SHA-256, written
last. Both appear under their names only when they are complete.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from keras_vit.files import require_local, sha256, write_whole
from keras_vit.owned import partial_path
from keras_vit.text import printable
from keras_vit.training.errors import RunError
from keras_vit.training.runs.folder import RunFolder, warn_if_not_written

ENDINGS = (".npz", ".json")


def read_arrays(path):
    """{name: array} of a file that `numpy.savez` wrote.

    Raises:
        ValueError: when it is damaged, or compressed, so that a small file could fill the memory.
        OSError: when it cannot be read.
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

    >>> store = keras_vit.training.Checkpoints("runs/1/checkpoints")
    >>> store.save(120, {"kernel": np.zeros((4, 2))})
    True
    >>> store.steps()
    [120]
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 2):
        require_local(folder)
        self.folder = Path(folder)
        self.keep = keep
        self.run_folder = RunFolder(self.folder.parent, self.folder.name)

    def steps(self) -> list[int]:
        """Steps of the run's checkpoints that have both files, newest first."""
        written = map(int, self.read_entries())
        return sorted((step for step in written if self.path(step, ".json").is_file()), reverse=True)

    def read_entries(self):
        """{step: whether it has been complete} of the run's checkpoints, from its record."""
        return (self.run_folder.read() or {"checkpoints": {}})["checkpoints"]

    def path(self, step, ending):
        return self.folder / f"step-{step:08d}{ending}"

    def paths(self, step):
        """The two files of a checkpoint, in the order in which they are written."""
        return [self.path(step, ending) for ending in ENDINGS]

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Writes a checkpoint, then removes the oldest; a full or failing disk damages no earlier one.

        Returns:
            True, or False with a warning when the checkpoint could not be written.
        """
        try:
            self.enter(step)
            self.write(step, arrays)
        except OSError as error:
            warnings.warn(
                f"The checkpoint of step {step} could not be written to {printable(self.folder)}: {error.strerror}. "
                "Earlier checkpoints are unchanged.",
                stacklevel=2,
            )
            return False
        with warn_if_not_written(self.folder / "run.json"):
            self.prune()
        return True

    def write(self, step, arrays):
        path, description = self.paths(step)
        with write_whole(path, partial_path(path)) as unfinished:
            np.savez(unfinished, **arrays)
            about = {"run": self.run_folder.run, "step": step}
            about |= {"bytes": unfinished.stat().st_size, "sha256": sha256(unfinished)}
        with write_whole(description, partial_path(description)) as unfinished:
            unfinished.write_text(json.dumps(about))

    def enter(self, step):
        """Records, before they are written, that the files of that step are the run's."""
        entered = self.run_folder.read_own()["checkpoints"]
        if str(step) in entered:
            return
        for path in self.paths(step):
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, f"{path.name} exists and was not written by this run")
        self.run_folder.save_checkpoints({**entered, str(step): False})

    def prune(self):
        """Removes the run's checkpoints, incomplete ones too, except the newest `keep`."""
        entered, kept = self.run_folder.read_own()["checkpoints"], self.steps()[: self.keep]
        for step in map(int, entered):
            if step not in kept:
                for path in self.paths(step):
                    path.unlink(missing_ok=True)
                    partial_path(path).unlink(missing_ok=True)
        self.run_folder.save_checkpoints({str(step): True for step in kept})

    def load(self, step: int) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint.

        Raises:
            RunError: when it is incomplete, damaged, or of another run.
        """
        try:
            about = json.loads(self.path(step, ".json").read_text("utf-8"))
            if (about["run"], about["step"]) != ((self.run_folder.read() or about)["run"], step):
                raise ValueError("it is of another run or step")
            path = self.path(step, ".npz")
            if path.stat().st_size != about["bytes"] or sha256(path) != about["sha256"]:
                raise ValueError("its length or SHA-256 differs from the recorded one")
            return read_arrays(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"The checkpoint of step {step} in {self.folder} cannot be read: {error}.") from error

    def newest(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """(step, arrays) of the newest readable checkpoint, or None where there is none; warns of those skipped.

        Raises:
            RunError: if there are checkpoints but none is readable, or all that there were are gone.
        """
        steps = self.steps()
        if not steps and any(self.read_entries().values()):
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

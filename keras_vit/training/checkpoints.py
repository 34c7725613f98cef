"""Files that are complete or do not count, checkpoints of a run among them.

A checkpoint is two files: step-00000120.npz, the arrays, and step-00000120.json with its length and SHA-256, written
last. Both appear under their names only when they are whole.
"""

import contextlib
import hashlib
import json
import os
import re
import warnings
from pathlib import Path

import numpy as np

from keras_vit.training.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SUFFIX = ".partial"
FORMAT = 2  # of checkpoints; 1 had the replicas' sums of a metric added up


def write(path, fill):
    """Calls fill(file) on a new file that takes the name `path` once it is whole and on the disk."""
    path = Path(path)
    partial = path.with_name(path.name + SUFFIX)
    try:
        with open(partial, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_if_possible(path, fill):
    """`write`; whether it could. A disk that is full or fails is a warning, and the file that was there stays."""
    try:
        write(path, fill)
    except OSError as error:
        warnings.warn(f"{path} could not be written: {error.strerror}. The run goes on.", stacklevel=3)
        return False
    return True


@contextlib.contextmanager
def needed(folder):
    """Turns a failure to write what the run cannot do without into a `RunError`.

    >>> with needed("runs/1"):
    ...     model.save("runs/1/model.keras")
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"A file of the run in {folder} could not be written: {error.strerror or error}. Its checkpoints are kept: "
            "make room and resume it."
        ) from error


@contextlib.contextmanager
def alone(folder):
    """Holds the folder, which no other process may hold meanwhile; a process that dies lets go of it.

    Raises:
        RunError: when another process holds it.
    """
    if fcntl is None:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise RunError(f"Another process trains in {folder}. Wait for it, or choose another folder.") from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(held)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Checkpoints:
    """The checkpoints of a folder.

    Args:
        folder: made when first written to.
        keep: how many of the newest whole ones stay.

    >>> Checkpoints("runs/1/checkpoints").save(120, arrays)
    """

    def __init__(self, folder, keep=2):
        self.folder = Path(folder)
        self.keep = keep

    def steps(self):
        """Steps of the checkpoints that look whole, newest first."""
        return sorted((step for step, path in self.files() if path.suffix == ".json"), reverse=True)

    def files(self):
        """(step, path) of each file of a checkpoint, whole or not."""
        for path in self.folder.glob("step-*"):
            if found := re.fullmatch(r"step-(\d+)\.(npz|json)(\.partial)?", path.name):
                yield int(found[1]), path

    def path(self, step, suffix):
        return self.folder / f"step-{step:08d}{suffix}"

    def save(self, step, arrays):
        """Writes a checkpoint, then removes the oldest. A disk that is full or fails costs none that was there.

        Returns:
            True, or False with a warning when nothing could be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.path(step, ".npz")
            write(path, lambda file: np.savez(file, **arrays))
            about = {"format": FORMAT, "step": step, "bytes": path.stat().st_size, "sha256": digest(path)}
            write(self.path(step, ".json"), lambda file: file.write(json.dumps(about).encode()))
        except OSError as error:
            warnings.warn(
                f"No checkpoint of step {step} in {self.folder}: {error.strerror}. Those before it are untouched.",
                stacklevel=2,
            )
            return False
        self.prune()
        return True

    def prune(self):
        kept = self.steps()[: self.keep]
        for step, path in self.files():
            if step not in kept:
                path.unlink(missing_ok=True)

    def load(self, step):
        """The arrays of a checkpoint.

        Raises:
            RunError: when it is torn or damaged, or of a later version of this package.
        """
        try:
            about = json.loads(self.path(step, ".json").read_text())
            if about.get("format", 1) > FORMAT:
                raise ValueError(f"its format is {about['format']}, and this version of the package knows {FORMAT}")
            path = self.path(step, ".npz")
            if path.stat().st_size != about["bytes"] or digest(path) != about["sha256"]:
                raise ValueError("its SHA-256 is not the one written down")
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"The checkpoint of step {step} in {self.folder} cannot be read: {error}.") from error

    def newest(self):
        """(step, arrays) of the newest whole checkpoint, or None where there is none; warns of those passed over.

        Raises:
            RunError: when there are checkpoints, and none is whole.
        """
        steps = self.steps()
        for step in steps:
            try:
                return step, self.load(step)
            except RunError as error:
                if step == steps[-1]:
                    raise RunError(f"{error} No other is left: begin in another folder, or empty this one.") from error
                warnings.warn(f"{error} The one before it is used.", stacklevel=2)
        return None

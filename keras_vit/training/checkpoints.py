"""The whole state of a training model in files that are complete or do not count.

A checkpoint is two files: step-00000120.npz, the arrays, and step-00000120.json with its length and SHA-256, written
last. Both appear under their names only when they are whole.
"""

import contextlib
import hashlib
import json
import os
import warnings
from pathlib import Path

import numpy as np

from keras_vit.training.errors import RunError

SUFFIX = ".partial"


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


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def variables(model):
    """{key: variable} of all that a step reads or changes: weights, seeds, optimizer, running metrics."""
    named = [("model", model.variables), ("optimizer", model.optimizer.variables), ("metrics", model.metrics_variables)]
    return {f"{kind}/{i}/{v.path}": v for kind, owned in named for i, v in enumerate(owned)}


def state(model):
    """{key: array} of `variables`; bfloat16 travels as uint16. On several workers all must call it."""
    arrays = {key: np.asarray(v.numpy()) for key, v in variables(model).items()}
    return {key: a.view("uint16") if a.dtype.name == "bfloat16" else a for key, a in arrays.items()}


def restore(model, arrays):
    """Puts `arrays` of `state` into the model.

    Raises:
        RunError: when they are not of this model, optimizer and metrics.
    """
    own = variables(model)
    # Names of variables count up within a process; kind, number and shape are what matters.
    keys = {tuple(key.split("/", 2)[:2]): key for key in arrays}
    if len(keys) != len(own):
        raise RunError(
            f"The checkpoint holds {len(keys)} variables, this model with its optimizer and metrics {len(own)}. "
            "Build and compile it as in the run that wrote the checkpoint."
        )
    for key, variable in own.items():
        array = arrays.get(keys.get(tuple(key.split("/", 2)[:2])))
        if array is None or tuple(array.shape) != tuple(variable.shape):
            found = "nothing" if array is None else f"shape {array.shape}"
            raise RunError(f"The checkpoint has {found} for {key}, of shape {tuple(variable.shape)}.")
    for key, variable in own.items():
        array = arrays[keys[tuple(key.split("/", 2)[:2])]]
        if variable.dtype == "bfloat16":
            array = array.view(variable.numpy().dtype)
        variable.assign(array)


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
        return sorted((int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-*.json")), reverse=True)

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
            about = {"step": step, "bytes": path.stat().st_size, "sha256": digest(path)}
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
        for path in self.folder.glob("step-*"):
            if int(path.name.removeprefix("step-").split(".")[0]) not in kept:
                path.unlink(missing_ok=True)

    def load(self, step):
        """The arrays of a checkpoint.

        Raises:
            RunError: when it is torn or damaged.
        """
        try:
            about = json.loads(self.path(step, ".json").read_text())
            path = self.path(step, ".npz")
            if path.stat().st_size != about["bytes"] or digest(path) != about["sha256"]:
                raise ValueError("its SHA-256 is not the one written down")
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"The checkpoint of step {step} in {self.folder} is damaged: {error}.") from error

    def newest(self):
        """(step, arrays) of the newest whole checkpoint, or None; warns of each that is damaged."""
        for step in self.steps():
            try:
                return step, self.load(step)
            except RunError as error:
                warnings.warn(f"{error} The one before it is used.", stacklevel=2)
        return None

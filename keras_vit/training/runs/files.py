"""What a run has written in its folder, and disks that are full."""

import contextlib
import re
import uuid
import warnings
from pathlib import Path

from keras_vit import files
from keras_vit.files import make_folder
from keras_vit.owned import OwnFolder, lock
from keras_vit.text import printable
from keras_vit.training.errors import RunError

LONGEST = 1 << 26  # bytes of a run's JSON files
# What a run writes, and what each file is.
FILES = {
    "config.json": "what the run was asked for",
    "best.weights.npz": "the weights of the best epoch",
    "last.weights.npz": "the weights after the last step",
    "averaged.weights.npz": "the weights averaged over the steps",
    "model.keras": "the model as the run ended, for Keras",
    "mistakes.png": "what it confuses, and its surest mistakes",
    "mistakes.csv": "the files that it takes for another class",
    "masked_patches.keras": "the model that predicts masked patches, for Keras",
    "masked_patches.png": "what it predicts of masked patches",
    "curves.png": "the metrics as curves",
    "metrics.csv": "a row per epoch",
}


@contextlib.contextmanager
def require_written(folder):
    """Turns a failure to write what the run needs into a `RunError`.

    >>> with require_written("runs/1"):  # doctest: +SKIP
    ...     model.save("runs/1/model.keras")
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"A file of the run in {folder} could not be written: {error.strerror or error}. Free some disk space, "
            "then give the same command with --resume (in Python resume=True): it goes on from the newest checkpoint, "
            "or from the beginning where none could be written."
        ) from error


@contextlib.contextmanager
def warn_if_not_written(path):
    """Turns a failure to write what the run can do without into a warning; the file that was there stays."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{printable(path)} could not be written: {error.strerror}. The run continues.", stacklevel=4)


@contextlib.contextmanager
def hold_folder(folder):
    """Makes the folder and locks it against other processes; an error inside removes it again where it is empty.

    Raises:
        RunError: when the folder cannot be made, or another process holds it.
    """
    busy = RunError(f"Another process is training in {folder}. Wait until it ends, or choose another folder.")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(make_folder(folder))
            stack.enter_context(lock(folder / ".lock", busy))
        except OSError as error:
            raise RunError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error
        yield


def read_small_json(path):
    """The content of a small JSON file of a run.

    Raises:
        OSError: when the file is missing or not a regular file.
        ValueError, RecursionError: when it is damaged, or longer than any that a run writes.
    """
    return files.read_json(path, LONGEST, follow_links=True)


def is_step(name):
    """Whether a name in the ledger is the step of a checkpoint."""
    return re.fullmatch("[0-9]{1,18}", name, re.ASCII) is not None


class Ledger(OwnFolder):
    """checkpoints/run.json: which run a folder belongs to, and what that run has written there.

    Beside its files it lists its checkpoints, {step: whether it has been complete}, entered before they are written.

    Args:
        folder: of the checkpoints, in the run's.
    """

    names = re.compile("|".join(map(re.escape, FILES)))
    writer = "this run"
    error = RunError
    fields = {"run": str, "checkpoints": {is_step: bool}}

    def __init__(self, folder):
        folder = Path(folder)
        super().__init__(folder.parent)
        self.record = f"{folder.name}/run.json"
        self.run = None

    def begin(self):
        """Continues the run that the ledger names, or begins a new one."""
        facts = self.read()
        self.run = facts["run"] if facts else self.run or uuid.uuid4().hex

    def read_own(self):
        """What this run has written.

        Raises:
            RunError: when another run has begun since.
        """
        if self.run is None:
            self.begin()
        facts = self.read() or {"run": self.run, "files": {}, "checkpoints": {}}
        if facts["run"] != self.run:
            raise RunError(f"Another run has begun in {self.path}. Choose another folder for this one.")
        return facts

    def digests(self):
        own = self.read_own()
        self.facts = {"run": own["run"], "checkpoints": own["checkpoints"]}
        return super().digests()

    def save_checkpoints(self, checkpoints):
        """Enters these in place of those that it has."""
        known = self.digests()
        self.facts["checkpoints"] = checkpoints
        self.save(known)

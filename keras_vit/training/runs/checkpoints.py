"""Checkpoints of a run.

A checkpoint is two files: step-00000120.npz, the arrays, and step-00000120.json with its length and SHA-256, written
last. Both appear under their names only when they are whole.
"""

import errno
import json
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np

from keras_vit.files import sha256
from keras_vit.text import printable
from keras_vit.training.errors import RunError
from keras_vit.training.runs import files
from keras_vit.training.runs.ledger import Ledger

FORMAT = 2  # of checkpoints; 1 had the replicas' sums of a metric added up
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
                raise ValueError("its arrays are compressed, and a run's are not")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except OSError:
        raise
    except Exception as error:  # numpy, zipfile and zlib have a dozen kinds for damaged files
        raise ValueError(str(error) or type(error).__name__) from error


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
        self.ledger = Ledger(folder)

    def steps(self):
        """Steps of the run's checkpoints that look whole, newest first."""
        written = map(int, self.entered())
        return sorted((step for step in written if self.path(step, ".json").is_file()), reverse=True)

    def entered(self):
        """{step: whether it has been whole} of the run's checkpoints, as its ledger says."""
        return (self.ledger.read() or {"checkpoints": {}})["checkpoints"]

    def path(self, step, ending):
        return self.folder / f"step-{step:08d}{ending}"

    def save(self, step, arrays):
        """Writes a checkpoint, then removes the oldest. A disk that is full or fails costs none that was there.

        Returns:
            True, or False with a warning when nothing could be written.
        """
        try:
            self.enter(step)
            with files.write_whole(self.path(step, ".npz")) as path:
                np.savez(path, **arrays)
                about = {"format": FORMAT, "run": self.ledger.run, "step": step}
                about |= {"bytes": path.stat().st_size, "sha256": sha256(path)}
            with files.write_whole(self.path(step, ".json")) as path:
                path.write_text(json.dumps(about))
        except OSError as error:
            warnings.warn(
                f"No checkpoint of step {step} in {printable(self.folder)}: {error.strerror}. Those before it are "
                "untouched.",
                stacklevel=2,
            )
            return False
        with files.spared(self.ledger.path):
            self.prune()
        return True

    def enter(self, step):
        """Says in the ledger that the files of that step are the run's, before they are there."""
        facts = self.ledger.facts()
        if str(step) in facts["checkpoints"]:
            return
        for path in (self.path(step, ending) for ending in ENDINGS):
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, f"{path.name} is there and is not the run's")
        facts["checkpoints"][str(step)] = False
        self.ledger.write(facts)

    def prune(self):
        """Removes the run's checkpoints, torn ones too, but the newest `keep`."""
        facts, kept = self.ledger.facts(), self.steps()[: self.keep]
        for step in map(int, facts["checkpoints"]):
            if step not in kept:
                for path in (self.path(step, ending) for ending in ENDINGS):
                    path.unlink(missing_ok=True)
                    files.partial(path).unlink(missing_ok=True)
        facts["checkpoints"] = {str(step): True for step in kept}
        self.ledger.write(facts)

    def load(self, step):
        """The arrays of a checkpoint.

        Raises:
            RunError: when it is torn, damaged, or of another run or a later version of this package.
        """
        try:
            about = json.loads(self.path(step, ".json").read_text("utf-8"))
            if about["format"] > FORMAT:
                raise ValueError(f"its format is {about['format']}, and this version of the package knows {FORMAT}")
            if (about["run"], about["step"]) != ((self.ledger.read() or about)["run"], step):
                raise ValueError("it is of another run or step")
            path = self.path(step, ".npz")
            if path.stat().st_size != about["bytes"] or sha256(path) != about["sha256"]:
                raise ValueError("its SHA-256 is not the one written down")
            return read_arrays(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"The checkpoint of step {step} in {self.folder} cannot be read: {error}.") from error

    def newest(self):
        """(step, arrays) of the newest whole checkpoint, or None where there is none; warns of those passed over.

        Raises:
            RunError: when there are checkpoints, and none is whole, or there were, and they are gone.
        """
        steps = self.steps()
        if not steps and any(self.entered().values()):
            raise RunError(
                f"The run's checkpoints in {self.folder} are gone. Put one back, or begin in another folder."
            )
        for step in steps:
            try:
                return step, self.load(step)
            except RunError as error:
                if step == steps[-1]:
                    raise RunError(f"{error} No other is left: begin in another folder, or empty this one.") from error
                warnings.warn(f"{error} The one before it is used.", stacklevel=2)
        return None

"""The folder of a run: all that a run writes there, and the care that it touches nothing else."""

import contextlib
import os
from pathlib import Path

from keras_vit.files import sha256
from keras_vit.models.config import VARIANTS
from keras_vit.training.errors import RunError
from keras_vit.training.runs import files
from keras_vit.training.runs.ledger import Ledger

FILES = (
    "config.json",
    "metrics.csv",
    "curves.png",
    "best.weights.npz",
    "final.weights.npz",
    "model.keras",
    "model.npz",
    "mistakes.png",
)
CHECKPOINTS, EVENTS = FOLDERS = ("checkpoints", "tensorboard")


class RunFolder:
    """A folder in which one run writes `FILES` and what is in `FOLDERS`, none of which another may have put there.

    >>> with RunFolder("runs/1").writing("config.json") as path:
    ...     path.write_text("{}")
    """

    def __init__(self, path):
        self.path = Path(path)
        self.ledger = Ledger(self.path / CHECKPOINTS)

    @contextlib.contextmanager
    def writing(self, name):
        """The path to write the file of that name to, one of FILES, which then appears when it is whole."""
        path = self.path / FILES[FILES.index(name)]
        self.ledger.claim()
        with files.write_whole(path) as unfinished:
            yield unfinished
            self.ledger.enter(name, sha256(unfinished))

    def check(self, resume):
        """Refuses a folder in which a run cannot begin, or with `resume` go on, without loss to the user.

        Raises:
            RunError: when nothing can be written there, or a file is there that the run would overwrite or remove.
        """
        require_writable(self.path)
        facts = self.ledger.read()
        if facts and not resume and facts["run"] != self.ledger.run:
            raise RunError(
                f"{self.path} holds a run already. Go on with it (--resume, in Python resume=True), or choose another "
                "folder."
            )
        try:
            foreign = next(self.foreign(facts), None)
        except OSError as error:
            raise RunError(f"What is in {self.path} cannot be read: {error}. Choose another folder.") from error
        if foreign:
            raise RunError(
                f"{foreign} is not what this run has written there. Choose another folder, or move it away, so that it "
                "is not lost."
            )

    def foreign(self, facts):
        """Paths that the run would write to, and that hold what it has not written."""
        known = facts["files"] if facts else {}
        for name in FILES:
            path = self.path / name
            ours = name in known and path.is_file() and sha256(path) in known[name]
            if os.path.lexists(path) and not ours:
                yield path
            if not facts and os.path.lexists(files.partial(path)):
                yield files.partial(path)
        for name in FOLDERS:
            path = self.path / name
            if os.path.lexists(path) and not path.is_dir():
                yield path
            elif path.is_dir() and not facts:
                # What a kill leaves of the ledger itself, the first that a run writes.
                yield from sorted(set(path.iterdir()) - {files.partial(self.ledger.path)})

    def begin(self, resume):
        """`check`, after which this run alone may write."""
        self.check(resume)
        self.ledger.begin()

    @contextlib.contextmanager
    def held(self, resume):
        """The folder, begun, while no other process has it; a run that fails before it has a result leaves nothing."""
        with files.made(self.path), files.alone(self.path):
            self.ledger.run = None
            self.begin(resume)
            new = self.ledger.read() is None
            try:
                yield
            except BaseException:
                if new:
                    self.withdraw()
                raise

    def withdraw(self):
        """Removes what a run wrote that has no result."""
        with contextlib.suppress(OSError, RunError):
            facts = self.ledger.facts()
            if set(facts["files"]) <= {"config.json"} and not any(facts["checkpoints"].values()):
                for path in (self.path / "config.json", self.ledger.path):
                    path.unlink(missing_ok=True)
                files.remove_empty([self.path / CHECKPOINTS])


def require_writable(folder):
    """Refuses a place where no folder can be made or written in; makes none."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    reason = None if there.is_dir() else f"{there} is not a folder"
    if reason is None and not os.access(there, os.W_OK | os.X_OK):
        reason = f"{there} may not be written in"
    if reason:
        raise RunError(f"Nothing can be written in {folder}: {reason}. Choose another folder.")


def model_of(name):
    """What `zoo.load` takes for a model that a command was given: of a run's folder its model.keras.

    Raises:
        RunError: when that run has not finished.

    >>> model_of("runs/1")
    'runs/1/model.keras'
    """
    folder = RunFolder(name)
    if "://" in str(name) or str(name).partition(":")[0] in VARIANTS:
        return name
    if os.path.isfile(folder.path / "model.keras"):
        return str(folder.path / "model.keras")
    facts = folder.ledger.read()
    if facts is None:
        return name
    done = max((int(step) for step, is_whole in facts["checkpoints"].items() if is_whole), default=0)
    raise RunError(
        f"{name} is a run that has not finished ({done:,} of {total_steps(folder)} steps are saved). Go on with it "
        "first: the command that began it, with --resume."
    )


def total_steps(folder):
    """How many steps a run is to have, for a sentence."""
    try:
        return f"{int(files.read_json(folder.path / 'config.json')['total_steps']):,}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "all"

"""The folder of a run: all that a run writes there, and the checks that it touches nothing else."""

import contextlib
import os
import zipfile
from pathlib import Path

from keras_vit.files import require_local
from keras_vit.models.variants import VARIANTS
from keras_vit.owned import partial_path
from keras_vit.training.errors import RunError
from keras_vit.training.runs.files import FILES, Ledger, hold_folder, read_small_json
from keras_vit.training.runs.history import NAME as METRICS
from keras_vit.training.runs.history import find_best, read_rows

CHECKPOINTS, EVENTS = FOLDERS = ("checkpoints", "tensorboard")
WEIGHTS = ("best", "averaged", "last")  # WEIGHTS.weights.npz, of which a command takes the first that there is


def require_writable(folder):
    """Refuses a place where no folder can be made or written in; makes none."""
    require_local(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    reason = None if existing.is_dir() else f"{existing} is not a folder"
    if reason is None and not os.access(existing, os.W_OK | os.X_OK):
        reason = f"{existing} is not writable"
    if reason:
        raise RunError(f"Nothing can be written in {folder}: {reason}. Choose another folder.")


class RunFolder:
    """A folder in which one run writes `FILES` and what is in `FOLDERS`; it overwrites nothing of anybody else's.

    It may be checked before TensorFlow is imported, and handed on to `Run`: each file is read for its digest once,
    and again only if it has been changed since.

    >>> with RunFolder("runs/1").writing("config.json") as path:
    ...     _ = path.write_text("{}")
    """

    def __init__(self, path):
        self.path = Path(path)
        self.ledger = Ledger(self.path / CHECKPOINTS)

    @contextlib.contextmanager
    def writing(self, name):
        """The path to write one of FILES to; the file appears under its name when it is complete."""
        if name not in FILES:
            raise ValueError(f"a run writes no {name!r}")
        with self.ledger.writing(name) as path:
            yield path

    def check(self, resume):
        """Refuses a folder in which a run cannot begin, or with `resume` continue, without loss to the user.

        Raises:
            RunError: when nothing can be written there, or the run would overwrite or remove a file it did not write.
        """
        require_writable(self.path)
        facts = self.ledger.read()
        if facts and not resume and facts["run"] != self.ledger.run:
            raise RunError(
                f"{self.path} already contains a run. Resume it (--resume, in Python resume=True), or choose another "
                "folder."
            )
        try:
            foreign = next(self.find_foreign(facts), None)
            if foreign:
                raise RunError(
                    f"{foreign} was not written by this run, which would overwrite it. Choose another folder, or move "
                    "the file away."
                )
            self.ledger.require_own(FILES)
        except OSError as error:
            raise RunError(f"The folder {self.path} cannot be read: {error}. Choose another folder.") from error

    def find_foreign(self, facts):
        """Yields what stands in place of the run's folders, or in them before there is a run."""
        for name in FOLDERS:
            path = self.path / name
            if path.is_symlink() or (os.path.lexists(path) and not path.is_dir()):
                yield path  # what a link leads to is not this run's to prune
            elif path.is_dir() and not facts:
                # A run killed at its very first write leaves the ledger itself unfinished, and nothing else.
                yield from sorted(set(path.iterdir()) - {partial_path(self.path / self.ledger.record)})

    def begin(self, resume):
        """`check`, after which only this run may write."""
        self.check(resume)
        self.ledger.begin()

    @contextlib.contextmanager
    def hold(self, resume):
        """Locks the folder and begins the run in it; a run that fails before it has a result leaves nothing."""
        require_writable(self.path)
        with hold_folder(self.path):
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
        """Removes what a run without any result has written."""
        with contextlib.suppress(OSError, RunError):
            facts = self.ledger.read_own()
            if set(facts["files"]) <= {"config.json"} and not any(facts["checkpoints"].values()):
                for name in ("config.json", self.ledger.record):
                    (self.path / name).unlink(missing_ok=True)
                (self.path / CHECKPOINTS).rmdir()


def describe_asked(folder):
    """(how many steps a run is to have, by which command it was begun), as texts, also where config.json is damaged."""
    steps, command = "all", "finetune, or pretrain,"
    try:
        config = read_small_json(folder.path / "config.json")
        steps = f"{int(config['total_steps']):,}"
        command = "pretrain" if config["settings"]["pretrain"] else "finetune"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    return steps, command


def is_checkpoint(path):
    """Whether `zoo.load` takes a file of weights: those of models of other packages are {path: array}."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment.startswith(b"{")
    except (OSError, zipfile.BadZipFile):
        return False


def require_finished(folder, facts):
    """Refuses a run that has not written its last weights."""
    if (folder.path / "model.keras").is_file():
        return
    done = max((int(step) for step, is_whole in facts["checkpoints"].items() if is_whole), default=0)
    steps, command = describe_asked(folder)
    best = folder.path / "best.weights.npz"
    so_far = f" Its best weights so far are a model too: {best}." if is_checkpoint(best) else ""
    raise RunError(
        f"{folder.path} is a run that has not finished ({done:,} of {steps} steps are saved): --resume it. The "
        f"command is keras-vit {command} --out {folder.path} --resume.{so_far}"
    )


def model_of(name: str | os.PathLike, weights: str | None = None) -> str | os.PathLike:
    """What to give `zoo.load` for the model that a command was given: for a run's folder, a file of its weights.

    Args:
        name: a name of `zoo.load`, or the folder of a run.
        weights: "best", "averaged" or "last" of a run; None for the first of these that it has.

    Raises:
        RunError: when that run has not finished, or has no such weights.

    >>> model_of("runs/1")  # doctest: +SKIP
    'runs/1/best.weights.npz'
    """
    folder = RunFolder(name)
    if "://" in str(name) or str(name).partition(":")[0] in VARIANTS or not os.path.isdir(folder.path):
        return require_no_weights(name, weights)
    facts = folder.ledger.read()
    if facts is not None:
        require_finished(folder, facts)
    there = [key for key in WEIGHTS if is_checkpoint(folder.path / f"{key}.weights.npz")]
    if weights in there or (weights is None and there):
        return str(folder.path / f"{weights or there[0]}.weights.npz")
    if weights is not None and facts is not None:
        has = ", ".join(there) or "model.keras alone"
        raise RunError(f"The run in {name} has no {weights} weights. It has: {has}.")
    if os.path.isfile(folder.path / "model.keras"):
        return str(folder.path / "model.keras")
    return require_no_weights(name, weights)


def require_no_weights(name, weights):
    """The name, unless weights of a run were asked for: it is none."""
    if weights is not None:
        raise RunError(f"--weights {weights} chooses among the weights of a run, and {name} is not the folder of one.")
    return name


def read_monitor(folder):
    """The metric by which a run's best epoch is chosen."""
    try:
        return str(read_small_json(folder / "config.json")["monitor"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "val_accuracy"


def describe_weights(path: str | os.PathLike) -> str | None:
    """Says which of a run's weights a file has; None for any other file.

    >>> describe_weights("runs/1/best.weights.npz")  # doctest: +SKIP
    'From the run in runs/1: the weights of the best epoch, 12 of 20: val_accuracy 0.694.'
    """
    folder, name = Path(path).parent, Path(path).name
    if name not in FILES or not (folder / "config.json").is_file():
        return None
    rows, metric = read_rows(folder / METRICS), read_monitor(folder)
    best = find_best(rows, metric)
    if name != "best.weights.npz" or best is None:
        return f"From the run in {folder}: {FILES[name]}."
    return f"From the run in {folder}: {FILES[name]}, {best['epoch']} of {len(rows)}: {metric} {best[metric]:.3f}."

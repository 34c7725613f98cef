"""The folder of a run: all that a run writes there, and the checks that it touches nothing else."""

import contextlib
import os
import zipfile
from pathlib import Path

from keras_vit.files import require_local, sha256, write_whole
from keras_vit.models.variants import VARIANTS
from keras_vit.training.errors import RunError
from keras_vit.training.runs.files import (
    lock_folder,
    make_run_folder,
    partial_path,
    read_small_json,
    warn_if_not_written,
)
from keras_vit.training.runs.history import NAME as METRICS
from keras_vit.training.runs.history import find_best, read_rows
from keras_vit.training.runs.ledger import Ledger

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

    It may be checked before TensorFlow is imported, and handed on to `Run`: each file is read for its digest once, and
    again only if it has been changed since.

    >>> with RunFolder("runs/1").writing("config.json") as path:
    ...     _ = path.write_text("{}")
    """

    def __init__(self, path):
        self.path = Path(path)
        self.ledger = Ledger(self.path / CHECKPOINTS)
        self.digests = {}  # {name: (what the system says of the file, its SHA-256)}

    def digest_of(self, name):
        """The SHA-256 of a file, which is not read again while it is the same file, unchanged."""
        facts = os.stat(self.path / name)
        state = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if self.digests.get(name, (None,))[0] != state:
            self.digests[name] = (state, sha256(self.path / name))
        return self.digests[name][1]

    @contextlib.contextmanager
    def writing(self, name):
        """The path to write one of FILES to; the file appears under its name when it is complete."""
        if name not in FILES:
            raise ValueError(f"a run writes no {name!r}")
        path = self.path / name
        self.ledger.claim()
        with write_whole(path, partial_path(path)) as unfinished:
            yield unfinished
            self.ledger.enter(name, sha256(unfinished))

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
        except OSError as error:
            raise RunError(f"The folder {self.path} cannot be read: {error}. Choose another folder.") from error
        if foreign:
            raise RunError(
                f"{foreign} was not written by this run, which would overwrite it. Choose another folder, or move the "
                "file away."
            )

    def find_foreign(self, facts):
        """Yields the paths that the run would write to, and that hold what it has not written."""
        known = facts["files"] if facts else {}
        for name in FILES:
            path = self.path / name
            own = name in known and path.is_file() and self.digest_of(name) in known[name]
            if os.path.lexists(path) and not own:
                yield path
            if not facts and os.path.lexists(partial_path(path)):
                yield partial_path(path)
        for name in FOLDERS:
            path = self.path / name
            if path.is_symlink() or (os.path.lexists(path) and not path.is_dir()):
                yield path  # what a link leads to is not this run's to prune
            elif path.is_dir() and not facts:
                # A run killed at its very first write leaves the ledger itself unfinished, and nothing else.
                yield from sorted(set(path.iterdir()) - {partial_path(self.ledger.path)})

    def begin(self, resume):
        """`check`, after which only this run may write."""
        self.check(resume)
        self.ledger.begin()
        self.forget_cut_off_writes()

    def forget_cut_off_writes(self):
        """Takes out of the ledger the digest of a content that was entered and never took its file's name.

        After a second kill at that point the last two digests would both be of such contents, and the file foreign.
        """
        facts = self.ledger.read() or {"files": {}}
        present = {name: self.digest_of(name) for name in facts["files"] if (self.path / name).is_file()}
        cut_off = {name: [digest] for name, digest in present.items() if facts["files"][name][-1:] != [digest]}
        if cut_off:
            with warn_if_not_written(self.ledger.path):
                self.ledger.write({**facts, "files": facts["files"] | cut_off})

    @contextlib.contextmanager
    def hold(self, resume):
        """Locks the folder and begins the run in it; a run that fails before it has a result leaves nothing."""
        require_writable(self.path)
        with make_run_folder(self.path), lock_folder(self.path):
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
                for path in (self.path / "config.json", self.ledger.path):
                    path.unlink(missing_ok=True)
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

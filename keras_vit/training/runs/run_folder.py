"""The folder of a run: its files, checks that the run touches no others, full disks."""

import contextlib
import os
import re
import uuid
import warnings
import zipfile
from pathlib import Path
from typing import Any

from keras_vit.errors import COUNT, POSITIVE, RunError, printable
from keras_vit.files import local_path, make_folder, read_record
from keras_vit.models.variants import VARIANTS
from keras_vit.owned import OwnFolder, lock, partial_path
from keras_vit.training.runs.history import find_best, find_last_epoch, read_rows

CHECKPOINTS, EVENTS = FOLDERS = ("checkpoints", "tensorboard")
WEIGHTS = ("best", "averaged", "last")  # WEIGHTS.weights.npz; a command takes the first that exists
# The files that a run writes, and their contents.
FILES = {
    "config.json": "the settings of the run",
    "best.weights.npz": "the weights of the best epoch",
    "last.weights.npz": "the weights after the last step",
    "averaged.weights.npz": "the weights averaged over the steps",
    "model.keras": "the model as the run ended, for Keras",
    "mistakes.png": "the classes that it confuses, and its most confident mistakes",
    "mistakes.csv": "the files that it takes for another class",
    "masks.png": "its worst masks beside the true ones",
    "masked_patches.keras": "the model that predicts masked patches, for Keras",
    "masked_patches.png": "its predictions of masked patches",
    "curves.png": "the metrics as curves",
    "metrics.csv": "a row per epoch",
}


@contextlib.contextmanager
def require_written(folder):
    """Raises a `RunError` if a file that the run needs cannot be written.

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
    """Warns if a file that the run does not need cannot be written; the file that was there stays."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{printable(path)} could not be written: {error.strerror}. The run continues.", stacklevel=4)


@contextlib.contextmanager
def hold_folder(folder):
    """Makes the folder and locks it against other processes; after an error inside, removes it if it is empty."""
    busy = RunError(f"Another process is training in {folder}. Wait until it ends, or choose another folder.")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(make_folder(folder))
            stack.enter_context(lock(folder / ".lock", busy))
        except OSError as error:
            raise RunError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error
        yield


def require_writable(folder):
    """Refuses a path if no folder can be made or written there; makes none."""
    folder = local_path(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    reason = None if existing.is_dir() else f"{existing} is not a folder"
    if reason is None and not os.access(existing, os.W_OK | os.X_OK):
        reason = f"{existing} is not writable"
    if reason:
        raise RunError(f"Nothing can be written in {folder}: {reason}. Choose another folder.")


class RunFolder(OwnFolder):
    """A folder in which one run writes `FILES` and the contents of `FOLDERS`, and overwrites no file of others.

    Its record, checkpoints/run.json, says which run the folder belongs to, and lists the files and the checkpoints.

    The folder may be checked before TensorFlow is imported, then passed to `Run`: each file is read for its digest
    once, and again only if it has changed since.

    Args:
        checkpoints: the name of their folder.

    >>> with RunFolder("runs/1").writing("config.json") as path:
    ...     _ = path.write_text("{}")
    """

    writer = "this run"
    error = RunError
    fields = {"run": str}

    def __init__(self, path, checkpoints=CHECKPOINTS):
        super().__init__(path)
        self.record = f"{checkpoints}/run.json"
        steps = re.escape(f"{checkpoints}/step-") + r"([0-9]{8,18})\.npz"
        self.names = re.compile("|".join([*map(re.escape, FILES), steps]))

    def read(self):
        """As of every `OwnFolder`; refuses the record of another run that has begun since this one."""
        found = super().read()
        if found and self.facts and found["run"] != self.facts["run"]:
            raise RunError(f"Another run has begun in {self.path}. Choose another folder for this one.")
        return found

    def choose_run(self):
        """Continues the run that the record names, or begins a new one."""
        found = self.read() or self.facts or {"run": uuid.uuid4().hex}
        self.facts = {"run": found["run"]}

    def save(self, files):
        self.choose_run()
        super().save(files)

    def checkpoints(self):
        """{step: the checkpoint's entry}, which is a list until the checkpoint has its name."""
        files = self.entries()
        known = map(self.names.fullmatch, files)
        return {int(name[1]): files[name[0]] for name in known if name and name[1]}

    def check(self, resume):
        """Refuses a folder in which a run could not begin, or with `resume` continue, without harm to others' files."""
        require_writable(self.path)
        found = self.read()
        if found and not resume and not self.facts:
            raise RunError(
                f"{self.path} already contains a run. Resume it (--resume, in Python resume=True), or choose another "
                "folder."
            )
        try:
            self.require_own({*FILES, *self.find_foreign(begun=bool(found))})
        except OSError as error:
            raise RunError(f"The folder {self.path} cannot be read: {error}. Choose another folder.") from error

    def find_foreign(self, begun):
        """Yields the names of files in place of the run's folders, or inside them before there is a run."""
        for name in FOLDERS:
            path = self.path / name
            if path.is_symlink() or (os.path.lexists(path) and not path.is_dir()):
                yield name  # a run never prunes what a link leads to
            elif path.is_dir() and not begun:
                # A run killed at its very first write leaves the record itself unfinished, and nothing else.
                for file in set(path.iterdir()) - {partial_path(self.path / self.record)}:
                    yield f"{name}/{file.name}"

    def begin(self, resume):
        """Checks as `check`, then lets only this run write."""
        self.check(resume)
        self.choose_run()

    @contextlib.contextmanager
    def hold(self, resume):
        """Locks the folder and begins the run in it; a run that fails before it has a result leaves nothing."""
        require_writable(self.path)
        with hold_folder(self.path):
            self.facts = {}
            self.begin(resume)
            new = self.read() is None
            try:
                yield
            except BaseException:
                if new:
                    self.withdraw()
                raise

    def withdraw(self):
        """Removes the files of a run without any result."""
        with contextlib.suppress(OSError, RunError):
            files = self.entries()
            if not any((self.path / name).exists() for name in files if name != "config.json"):
                for name in (*files, self.record):
                    (self.path / name).unlink(missing_ok=True)
                (self.path / CHECKPOINTS).rmdir()

    def discard(self, kept=()):
        """Removes the run's files, except those with an ending in `kept`, and then its record.

        Files of others stay, and those changed since. TensorBoard's events are known by their names.
        """
        with contextlib.suppress(OSError, RunError):
            if self.read() is None:
                return
            known = self.digests()
            self.remove([name for name in known if not name.endswith(kept) and self.is_own(name, known[name])])
            for path in (self.path / EVENTS).glob("events.out.tfevents.*"):
                path.unlink()
            (self.path / self.record).unlink()
            for name in (*FOLDERS, "."):
                with contextlib.suppress(OSError):  # it is not there, or not empty
                    (self.path / name).rmdir()


def read_config(folder: Path, to_resume: bool = False) -> dict[str, Any]:
    """The contents of a run's config.json; {} if it is missing or damaged. Any part may be missing.

    Raises:
        RunError: with `to_resume`, when it is missing or damaged, or lacks what a resumed run needs.
    """
    count = COUNT.__contains__
    fields = {
        "monitor?": str,
        "total_steps?": count,
        "settings?": {"pretrain?": bool, "dataset?": str, "model?": str},
        "recipe?": {"name?": str, "examples?": (count, None)},
        "held_out?": (count, None),
    }
    if to_resume:
        recipe = {"batch_size": count, "learning_rate": POSITIVE.__contains__}
        fields |= {"settings": dict, "recipe": recipe, "classes?": ([str], None)}
    what = "the record of the run's settings"
    advice = "Restore the run's own file, or choose another folder."
    try:
        return read_record(folder / "config.json", fields, what=what, error=RunError, advice=advice, follow_links=True)
    except RunError:
        if to_resume:
            raise
        return {}


def read_monitor(folder):
    """The metric by which a run's best epoch is chosen."""
    return read_config(folder).get("monitor", "val_accuracy")


def find_row(path):
    """The row of metrics.csv for the weights in a run's file, or None. A run that averages its weights validates the
    averaged ones.
    """
    rows = read_rows(path.with_name("metrics.csv"))
    if path.name == "best.weights.npz":
        return find_best(rows, read_monitor(path.parent))
    averages = path.with_name("averaged.weights.npz").is_file()
    return None if not rows or (path.name == "last.weights.npz" and averages) else rows[-1]


def is_checkpoint(path):
    """Whether `zoo.load` takes a file of weights: those of models of other packages are {path: array}."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment.startswith(b"{")
    except (OSError, zipfile.BadZipFile):
        return False


def require_finished(folder):
    """Refuses a run that has not written its last weights."""
    if (folder.path / "model.keras").is_file():
        return
    done = max((step for step, entry in folder.checkpoints().items() if isinstance(entry, str)), default=0)
    config = read_config(folder.path)
    steps = f"{config['total_steps']:,}" if "total_steps" in config else "all"
    pretrain = config.get("settings", {}).get("pretrain")
    command = {True: "pretrain", False: "finetune", None: "finetune, or pretrain,"}[pretrain]
    best = folder.path / "best.weights.npz"
    so_far = f" Its best weights so far are a model too: {best}." if is_checkpoint(best) else ""
    raise RunError(
        f"{folder.path} is a run that has not finished ({done:,} of {steps} steps are saved): resume it. The "
        f"command is keras-vit {command} --out {folder.path} --resume.{so_far}"
    )


def model_of(name: str | os.PathLike, weights: str | None = None) -> str | os.PathLike:
    """The argument of `zoo.load` for a model as commands take it: for a run's folder, a file of its weights.

    Args:
        name: a name of `zoo.load`, or the folder of a run.
        weights: "best", "averaged" or "last" of a run; None for the first of these that it has.

    Raises:
        RunError: when that run has not finished, or has no such weights.

    >>> model_of("runs/1")  # doctest: +SKIP
    'runs/1/best.weights.npz'
    """
    name = name if "://" in str(name) else os.path.expanduser(name)
    folder = RunFolder(name)
    if "://" not in str(name) and str(name).partition(":")[0] not in VARIANTS and os.path.isdir(folder.path):
        is_run = folder.read() is not None
        if is_run:
            require_finished(folder)
        there = [key for key in WEIGHTS if is_checkpoint(folder.path / f"{key}.weights.npz")]
        if weights in there or (weights is None and there):
            return str(folder.path / f"{weights or there[0]}.weights.npz")
        if weights is not None and is_run:
            has = ", ".join(there) or "model.keras alone"
            raise RunError(f"The run in {name} has no {weights} weights. It has: {has}.")
        if os.path.isfile(folder.path / "model.keras"):
            return str(folder.path / "model.keras")
    if weights is not None:
        raise RunError(f"weights={weights!r} chooses among those of a run, and {name} is not the folder of one.")
    return name


def describe_weights(path: str | os.PathLike) -> str | None:
    """A sentence on which of a run's weights a file has; None for any other file.

    >>> describe_weights("runs/1/best.weights.npz")  # doctest: +SKIP
    'From the run in runs/1: the weights of the best epoch, 12 of 20: val_accuracy 0.694.'
    """
    path = Path(path)
    folder, name = path.parent, path.name
    if name not in FILES or not (folder / "config.json").is_file():
        return None
    best = find_row(path) if name == "best.weights.npz" else None
    if best is None:
        return f"From the run in {folder}: {FILES[name]}."
    count, metric = find_last_epoch(read_rows(folder / "metrics.csv")), read_monitor(folder)
    return f"From the run in {folder}: {FILES[name]}, {best['epoch']} of {count}: {metric} {best[metric]:.3f}."

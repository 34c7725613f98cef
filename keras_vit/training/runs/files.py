"""What a run does with files beside writing them whole: names, locks, damaged JSON, and disks that are full."""

import contextlib
import os
import warnings

from keras_vit import files
from keras_vit.files import make_folder
from keras_vit.text import printable
from keras_vit.training.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LONGEST = 1 << 26  # bytes of a run's JSON files


def partial_path(path):
    """Where `path` is written until it is complete: a name by which a later process knows what a killed one left."""
    return path.with_name(f"partial.{path.name}")


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
def lock_folder(folder):
    """Locks the folder against other processes; the lock of a process that dies ends with it.

    Raises:
        RunError: when another process holds the lock.
    """
    if fcntl is None:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise RunError(
            f"Another process is training in {folder}. Wait until it ends, or choose another folder."
        ) from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def make_run_folder(folder):
    """As `make_folder`.

    Raises:
        RunError: when the folder cannot be made.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(make_folder(folder))
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

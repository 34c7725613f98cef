"""Files that are complete or do not count, and folders that one process holds."""

import contextlib
import os
import warnings
from pathlib import Path

from keras_vit import files
from keras_vit.text import printable
from keras_vit.training.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LONGEST = 1 << 26  # bytes of a run's JSON files


def partial(path):
    """The path at which `path` is written, beside it and of its ending, until it is whole."""
    return path.with_name(f"partial.{path.name}")


def write_whole(path):
    """As `keras_vit.files.write_whole`, through the name by which a later session knows what a killed one left."""
    path = Path(path)
    return files.write_whole(path, partial(path))


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
def spared(path):
    """Turns a failure to write what the run can do without into a warning; the file that was there stays."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{printable(path)} could not be written: {error.strerror}. The run goes on.", stacklevel=4)


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


def remove_empty(folders):
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def made(folder):
    """Makes the folder and those above it; an error inside removes again those of them that are still empty.

    Raises:
        RunError: when it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(missing)
        raise RunError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error
    try:
        yield
    except BaseException:
        remove_empty(missing)
        raise


def read_json(path):
    """What a small file of a run holds.

    Raises:
        OSError: when it is missing or not a regular file.
        ValueError, RecursionError: when it is damaged, or longer than any run writes.
    """
    return files.read_json(path, LONGEST, follow_links=True)

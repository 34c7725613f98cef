"""How the faults of a checkpoint are told: the one place where a file's path begins a sentence."""

import contextlib
import os
from collections.abc import Iterator

from keras_vit.errors import CheckpointError, KerasVitError


class Fault(CheckpointError):
    """What is wrong with a checkpoint: the rest of a sentence that the path of its file begins (`about_file`)."""


@contextlib.contextmanager
def about_file(path: str | os.PathLike) -> Iterator[None]:
    """A scope about the file at `path`: a `Fault` inside becomes a CheckpointError that names the file.

    >>> with about_file("mine.npz"):
    ...     raise Fault("lacks the tensor cls.")
    Traceback (most recent call last):
    keras_vit.errors.CheckpointError: mine.npz lacks the tensor cls.
    """
    try:
        yield
    except Fault as fault:
        raise CheckpointError(f"{os.fspath(path)} {fault}") from fault.__cause__


@contextlib.contextmanager
def blame_file(complaint: str) -> Iterator[None]:
    """A scope in which a library reads a stranger's bytes: whatever it raises becomes a `Fault`.

    Libraries raise what their authors did not foresee, so no list of exceptions is ever complete. Nothing but such
    reading belongs in the scope: a mistake of this package would be taken for the file's there.
    """
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise Fault(f"{complaint}: {cause}. Fetch the file again from its source.") from error

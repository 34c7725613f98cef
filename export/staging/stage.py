"""Artefacts appear when they are complete, and replace what an earlier export wrote and nothing else.

The files are written to a hidden folder at their destination, which the process has locked, and are then renamed into
their places one by one; see `placing`.
"""

import contextlib
import os
import shutil
from pathlib import Path

from keras_vit.errors import ExportError, KerasVitError
from keras_vit.export.staging.listing import MANIFEST, write_manifest
from keras_vit.export.staging.placing import (
    JOURNAL,
    Place,
    move_into_place,
    require_no_others,
    require_replaceable,
    restore,
)
from keras_vit.files import make_folder, require_local

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HIDDEN = ".keras-vit-export"


@contextlib.contextmanager
def stage(path, names, *, is_folder, tell=None):
    """Yields a path in a hidden folder; what is written there replaces an earlier export at `path`.

    A folder is new and empty, and gets its manifest here; a file must be sealed by who writes it. A process killed
    inside leaves the hidden folder, which the next export to the same path clears.

    Args:
        path: of the file, or the folder.
        names: of the files that will be written, as far as they are known before.
        tell: called with a line of text that names the files of the earlier export that have no successor.

    Raises:
        ExportError: if nothing can be written there, or a file in the way is not one that an earlier export wrote.
    """
    with raise_file_errors(path), contextlib.ExitStack() as stack:
        place = place_of(path, is_folder)
        stack.enter_context(make_folder(place.home))
        stack.enter_context(lock_hidden_folder(place))
        restore(place)
        require_replaceable(place, names)
        (place.staging / "new").mkdir()
        yield place.staging / "new" if is_folder else place.staging / "new" / place.last
        if is_folder:
            write_manifest(place.staging / "new")
        move_into_place(place, tell or (lambda line: None))


def place_of(path, is_folder):
    """Where the files for `path` go. A link to a folder stands for that folder."""
    require_local(path, ExportError)
    path = Path(path)
    if is_folder:
        if path.exists() and not path.is_dir():
            raise ExportError(f"{path} is a file, but a folder is written there. Choose another path.")
        home = Path(os.path.realpath(path))
        return Place(home, MANIFEST, home / HIDDEN)
    if path.is_dir():
        raise ExportError(f"{path} is a folder. Expected a path where a {path.suffix} file can be written.")
    home = Path(os.path.realpath(path.parent))
    return Place(home, path.name, home / f".{path.name}{HIDDEN}")


@contextlib.contextmanager
def raise_file_errors(path):
    """Within, an OSError, such as a full disk or a missing permission, becomes an ExportError."""
    try:
        yield
    except KerasVitError:  # a DownloadError is an OSError too, and says what to do
        raise
    except OSError as error:
        raise ExportError(
            f"The export to {path} failed: {error.strerror or error}. What was there before is "
            "unchanged. Make room, or choose another path."
        ) from error


@contextlib.contextmanager
def lock_hidden_folder(place):
    """Makes the hidden folder and locks it; the lock ends with the process, in whatever container it runs."""
    held = open_locked(place)
    try:
        require_no_others(place)
        try:
            yield
        finally:
            if not (place.staging / JOURNAL).exists():  # else the next export needs it
                shutil.rmtree(place.staging, ignore_errors=True)
    finally:
        if held is not None:
            os.close(held)


def open_locked(place):
    """A descriptor of the hidden folder, locked, and empty except for what a killed export left."""
    if fcntl is None:
        place.staging.mkdir(exist_ok=True)
        return None
    while True:
        is_new = not place.staging.exists()
        place.staging.mkdir(exist_ok=True)
        held = os.open(place.staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            require_lock(held, place, is_new)
            if is_same(held, place.staging):  # its owner removes it, perhaps just before the lock was taken
                return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


def require_lock(held, place, is_new):
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ExportError(
            f"Another export writes to {place.target} now. Wait for it, or choose another path."
        ) from error
    except OSError as error:
        if not is_new:  # a file system without locks
            raise ExportError(
                f"{place.staging} belongs to another export, which may still be running: this file "
                "system has no locks. Remove that folder when no export is running, and try again."
            ) from error


def is_same(held, path):
    try:
        return os.path.samestat(os.fstat(held), os.stat(path))
    except FileNotFoundError:
        return False

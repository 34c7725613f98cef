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
from keras_vit.owned import lock

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
    """Makes the hidden folder, empty except for what a killed export left, while no other process has it."""
    busy = ExportError(f"Another export writes to {place.target} now. Wait for it, or choose another path.")
    with lock(place.staging.with_name(f"{place.staging.name}.lock"), busy):
        if place.staging.is_symlink():
            raise ExportError(f"The export to {place.target} failed: {place.staging} is a link. Remove it.")
        place.staging.mkdir(exist_ok=True)
        require_no_others(place)
        try:
            yield
        finally:
            if not (place.staging / JOURNAL).exists():  # else the next export needs it
                shutil.rmtree(place.staging, ignore_errors=True)

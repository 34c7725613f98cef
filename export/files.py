"""Artefacts appear whole or not at all: written in a hidden folder beside the target, moved there when proved."""

import contextlib
import glob
import os
import shutil
from pathlib import Path

from keras_vit.errors import ExportError

PARTIAL = ".partial"
MARKS = ("saved_model.pb", "model.json")  # what a folder holds that an export made: a SavedModel, a bundle


@contextlib.contextmanager
def staged(path):
    """A fresh folder beside `path`; yields `path`'s name inside it. Everything in the folder moves out on success.

    A process killed inside leaves the hidden folder, which the next export to the same path removes.

    Raises:
        ExportError: when nothing can be written there, or something is there that no export made.
    """
    path = Path(os.path.abspath(path))
    require_replaceable(path)
    folder = path.parent / f".{path.name}.{os.getpid()}{PARTIAL}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        folder.mkdir()
    except OSError as error:
        raise ExportError(
            f"Nothing can be written at {path}: {error.strerror or error}. Choose another path."
        ) from error
    try:
        yield folder / path.name
        move_out(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_replaceable(path):
    """Only what looks like an earlier export, or nothing, may be replaced."""
    if path.suffix in (".onnx", ".tflite"):
        if path.is_dir():
            raise ExportError(f"{path} is a folder. Expected a path where a {path.suffix} file can be.")
    elif path.is_file():
        raise ExportError(
            f"{path} is a file. A folder is to be written there: give another path, or one in .onnx or .tflite."
        )
    elif path.is_dir() and any(path.iterdir()) and not any((path / name).is_file() for name in MARKS):
        raise ExportError(f"{path} holds files that no export made and stays as it is. Give a new or empty folder.")


def remove_abandoned(path):
    """Folders of exports to the same path whose process has ended."""
    for folder in path.parent.glob(f".{path.name}.*{PARTIAL}"):
        pid = folder.name.removesuffix(PARTIAL).rpartition(".")[2]
        if pid.isdigit() and not is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def is_running(pid):
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def move_out(folder, path):
    """Companions first, `path` itself last, so that what it names is always there; old companions go after that."""
    staged_path = folder / path.name
    new = {file.name for file in folder.iterdir()} - {path.name}
    for name in new:
        os.replace(folder / name, path.parent / name)
    if path.is_dir():
        os.replace(path, folder / "replaced")
    os.replace(staged_path, path)
    if path.suffix == ".onnx":
        for file in path.parent.glob(f"{glob.escape(path.stem)}-{'[0-9a-f]' * 12}.onnx.data"):
            if file.name not in new:
                file.unlink()

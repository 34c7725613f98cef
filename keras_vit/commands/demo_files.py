"""What `keras-vit demo` writes, listed with digests, so that the next demo replaces this and nothing else."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from keras_vit.errors import ExportError, RecordError
from keras_vit.export.staging.listing import files_in
from keras_vit.export.staging.placing import remove_empty_folders
from keras_vit.files import make_folder, read_record, sha256_of_regular, write_whole
from keras_vit.training.runs.folder import require_writable

# In the demo's folder, and what each part is.
PARTS = {
    "finetuned": "the run from the shipped weights, with curves.png",
    "scratch": "the run from random weights",
    "dist": "three formats, a page for browsers, predict.py and a model card",
    "int8": "ONNX and TFLite in int8",
    "report": "index.html: what it learned, and where it looks",
    "digits": "ten pictures to ask it about",
}
WRITTEN = "keras-vit-demo.json"  # {file: SHA-256} of what a demo has written, which the next one may replace


def digest_of(path):
    """SHA-256 of a regular file; None of anything else, such as a link."""
    try:
        return sha256_of_regular(path)
    except OSError:
        return None


def list_written(out):
    """{path below `out`: digest} of the list and of the files of all parts, as far as they are there."""
    names = []
    for name in (*PARTS, WRITTEN):
        path = out / name
        if path.is_dir() and not path.is_symlink():
            names += [f"{name}/{below}" for below in files_in(path)]
        elif os.path.lexists(path):
            names.append(name)
    return {name: digest_of(out / name) for name in names}


def read_written(out):
    """{path below `out`: digest} of what an earlier demo has listed, and of its list."""
    try:
        known = read_record(out / WRITTEN, {}, what="the list of a demo's files", follow_links=True)
    except RecordError:
        return {}
    return {**known, WRITTEN: digest_of(out / WRITTEN)}


def require_replaceable(out: Path) -> None:
    """Refuses a folder in which a demo would overwrite a file that no demo has written.

    Raises:
        ExportError: when there is such a file.
        RunError: when nothing can be written there.
    """
    require_writable(out)
    known = read_written(out)
    for name, digest in list_written(out).items():
        if digest is None or known.get(name) != digest:
            raise ExportError(f"{out / name} exists, and is not as a demo wrote it. Choose another folder.")


@contextlib.contextmanager
def replace_parts(out: Path) -> Iterator[None]:
    """Removes what an earlier demo has written in `out`; however the one inside ends, the next knows its files.

    Raises:
        ExportError, RunError: as `require_replaceable`.
    """
    require_replaceable(out)
    with make_folder(out):
        for name in list_written(out):
            (out / name).unlink()
            remove_empty_folders(out, [name])
        try:
            yield
        finally:
            if written := list_written(out):
                with contextlib.suppress(OSError), write_whole(out / WRITTEN) as path:
                    path.write_text(json.dumps(written, indent=1) + "\n", "utf-8")

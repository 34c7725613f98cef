"""Opens artefacts for use: reads their description of input and classes, and makes the function that runs them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.description import DESCRIBED
from keras_vit.export.formats import (
    FORMATS,
    Format,
    format_named,
    raise_reading_errors,
    recognise,
    require_known_operations,
)
from keras_vit.export.processes import run_in_batches
from keras_vit.export.proof.bundled import FIELDS, read_model_json
from keras_vit.files import find_misfit

DESCRIPTION = "model.json"


@dataclass(frozen=True)
class Artefact:
    """An exported classifier.

    Args:
        path: path of the file or folder.
        about: its "inputs", "outputs", "preprocessing", "labels" and "probabilities", as in model.json; None for those
            that are not stated.
        run: function from float32 images (n, h, w, c) to logits (n, classes).
    """

    path: Path
    about: dict[str, Any] | None
    run: Callable[[np.ndarray], np.ndarray]


def find_artefact(path: Path) -> tuple[Format, Path, dict | None] | None:
    """(format, path, description) of an export at a path, or of a bundle's first artefact; None for anything else."""
    if path.is_file() and (row := recognise(path)):
        return row, path, read_stored_description(row, path)
    if path.is_file() and path.name in {row.files[0] for row in FORMATS if row.is_folder}:
        path = path.parent
    if (path / DESCRIPTION).is_file():
        about = read_model_json(path)
        first = about["artefacts"][0]
        return format_named(first["format"]), path / first["file"], about
    for folder in (path, path / "1"):
        row = recognise(folder)
        if row and row.is_folder:
            return row, folder, read_stored_description(row, folder) or describe_by_bundle(folder)
    return None


def describe_by_bundle(folder):
    """The model.json of the bundle around a folder, or None: a SavedModel has no description of its own."""
    for parent in folder.absolute().parents[:2]:
        if (parent / DESCRIPTION).is_file():
            about = read_model_json(parent)
            if any((parent / entry["file"]) == folder.absolute() for entry in about["artefacts"]):
                return about
    return None


def read_stored_description(row, path):
    """The description that `write` of the format stored in an artefact, or None if no export wrote it."""
    with raise_reading_errors(path):
        about = getattr(row.load_reader(), "read_description", lambda path: None)(path)
        if about is None:
            return None
        about = {name: about.get(name) for name in DESCRIBED}
        wrong = [name for name in DESCRIBED if find_misfit(about[name], FIELDS[name])]
    if wrong:
        raise ExportError(f"The description in {path} is not one of an export: see its {wrong[0]!r}.")
    return about


def find_batch(about, row):
    """The batch of an artefact; None for any. In a bundle the inputs' shapes are the model's, not the artefact's."""
    for entry in about.get("artefacts", ()):
        if entry["format"] == row.name and len(entry["batches"]) == 1:
            return entry["batches"][0]
    return about["inputs"][0]["shape"][0]


def open_artefact(path: Path) -> Artefact | None:
    """Opens a file or folder in one of the formats, or the first artefact of a bundle; None for anything else.

    As in `verify`, an artefact that does more than compute is refused without opening it. Any other runs in this
    process, without a time limit. ExportError if it is damaged, or does not map one image to its logits or those of its
    pixels.

    >>> export_path = keras_vit.export.convert(keras_vit.zoo.load("ViT-Test/4", weights=None), "vit.onnx").path
    >>> open_artefact(Path(export_path)).run(np.zeros((2, 32, 32, 3), "float32")).shape
    (2, 1000)
    """
    found = find_artefact(path)
    if found is None:
        return None
    row, place, about = found
    axes = [] if about is None else [[len(x["shape"]) for x in about[name]] for name in ("inputs", "outputs")]
    if axes not in ([], [[4], [2]], [[4], [4]]):
        raise ExportError(
            f"{place} does not take images (n, h, w, c) and give a row of logits for each, or its pixels."
        )
    require_known_operations(row.name, place)
    with raise_reading_errors(place, "cannot be opened"):
        compute = row.load_reader().load(place, None if about is None else [about["inputs"][0]["name"]])
    batch = None if about is None else find_batch(about, row)
    alone = threading.Lock()  # TFLite and OpenVINO have one place for the inputs of all threads

    def run(images):
        with alone:
            if batch is None:
                return compute([images])[0]
            filled = np.concatenate([images, np.repeat(images[-1:], -len(images) % batch, axis=0)])
            return run_in_batches(compute, [filled], (batch,))[0][: len(images)]

    return Artefact(place, about, run)

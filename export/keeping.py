"""Keeps in a bundle the artefacts of formats that an export does not write, if they are of its model."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.formats import format_named
from keras_vit.export.proof.comparison import model_runner
from keras_vit.export.proof.examples import read_examples
from keras_vit.export.proof.model_json import read_model_json
from keras_vit.export.proof.runtimes import run_in_batches
from keras_vit.export.staging import ExportFolder

ALIKE = ("inputs", "outputs", "preprocessing", "labels", "config")  # of model.json
ROUNDING = 1e-4  # of the largest output, between machines


def find_others(folder, formats):
    """(model.json, its artefacts of other formats) of the bundle in `folder`; (None, []) where there is none."""
    if not ExportFolder(folder).digests() or not (Path(folder) / "model.json").is_file():
        return None, []
    about = read_model_json(folder)
    return about, [entry for entry in about["artefacts"] if entry["format"] not in formats]


def require_same_model(folder, before, others, about, source):
    """Refuses to put artefacts of one model beside those of another, because model.json describes one model.

    Args:
        before, about: the model.json that is there, and that of the model to be exported.
        others: artefacts that are there.
        source: the model in its functional form.

    Raises:
        ExportError: unless both describe the same model, and it has the outputs of the bundle's examples.
    """
    now = json.loads(json.dumps(about, default=str))
    same = all(before[name] == now[name] for name in ALIKE)
    if same:
        further = before["further_outputs"]
        inputs, outputs = read_examples(Path(folder) / "examples.npz", before["inputs"], before["outputs"] + further)
        received = run_in_batches(model_runner(source, [x["name"] for x in further]), inputs, (len(inputs[0]),))
        same = all(
            np.abs(x - y).max() <= ROUNDING * max(np.abs(y).max(), 1e-6) for x, y in zip(received, outputs, strict=True)
        )
    if not same:
        names = [entry["format"] for entry in others]
        raise ExportError(
            f"{folder} has {' and '.join(names)} of another model, and a bundle has one model. "
            f"Export to these formats too, to replace them, or choose another folder."
        )


def keep_artefacts(folder, others, staging):
    """Copies the files of artefacts that stay from the old bundle to the new one.

    Raises:
        ExportError: when an export that was killed had begun to replace one of them.
    """
    files = ExportFolder(folder).digests()
    for entry in others:
        pattern = re.compile(format_named(entry["format"]).bundled_pattern(), re.ASCII)
        for name in filter(pattern.fullmatch, files):
            if len(files[name]) > 1:
                raise ExportError(
                    f"An export to {folder} was cut off while it replaced {name}. Export to {entry['format']} too, "
                    "to replace it, or choose another folder."
                )
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder, name), staging / name)


def count_examples(least, batch_size, others):
    """At least `least` examples, in whole batches of every artefact whose batch is fixed."""
    fixed = [entry["batches"][0] for entry in others if len(entry["batches"]) == 1]
    whole = math.lcm(batch_size or 1, *fixed)
    return -(-least // whole) * whole

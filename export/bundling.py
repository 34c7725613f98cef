"""The bundle: one folder with every artefact of a model, what it needs to be used, and what proves it again."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.card import card
from keras_vit.export.conversion import FORMATS, convert, runner
from keras_vit.export.description import described
from keras_vit.export.files import staged
from keras_vit.export.parity import BATCHES, difference, in_batches
from keras_vit.export.preparation import input_shapes, prepared, probe_shapes
from keras_vit.export.probes import inputs_for
from keras_vit.export.quantization import kind_of
from keras_vit.export.report import Report, size_of

# A SavedModel lies in a folder with its version, as TensorFlow Serving reads it.
NAMES = {"onnx": "model.onnx", "tflite": "model.tflite", "saved_model": "saved_model/1"}
EXAMPLES = 4


def bundle(
    model, out, formats=("onnx", "tflite", "saved_model"), quantize=None, *, endpoints=(), progress=None, **options
):
    """Writes the folder `out`: artefacts, model.json, README.md (a model card), predict.py, examples.npz.

    The folder appears whole, when every artefact has proved equal, in place of an earlier bundle.

    Args:
        model: a built keras.Model.
        formats: any of "onnx", "tflite", "saved_model".
        quantize: see `convert`; a SavedModel stays in float32.
        endpoints: further methods of the model for the SavedModel, such as ("features", "attention").
        progress: called with a line of text at every step, or None.
        options: images, image_size, batch_size, metadata, latency of `convert`.

    Returns:
        A list of `Report`, one per format.

    Raises:
        ExportError, ParityError: as `convert`; then nothing changes at `out`.

    >>> bundle(model, "dist", formats=["onnx"], quantize="dynamic")[0].bytes
    88123456
    """
    tell = progress or (lambda line: None)
    rows = [row_of(name) for name in formats]
    for row in rows:
        kind_of(supported(row, quantize), row.kinds, row.name)
    if endpoints and "saved_model" not in formats:
        raise ExportError("Only a SavedModel can have further endpoints. Add saved_model to the formats.")
    with staged(out) as staging:
        staging.mkdir()
        reports = []
        for row in rows:
            tell(f"{row.name}: converting and comparing")
            path = staging / NAMES[row.name]
            path.parent.mkdir(exist_ok=True)
            served = endpoints if row.name == "saved_model" else ()
            report = convert(model, path, quantize=supported(row, quantize), endpoints=served, **options)
            reports.append(dataclasses.replace(report, path=str(Path(out) / NAMES[row.name])))
            tell(str(reports[-1]))
        write_companions(model, staging, reports, options)
    return reports


def row_of(name):
    for row in FORMATS:
        if row.name == name:
            return row
    raise ExportError(f"No format is called {name!r}. Expected: {', '.join(NAMES)}.")


def supported(row, quantize):
    """A SavedModel is written in float32 whatever the others are."""
    return None if row.name == "saved_model" and quantize in ("float16", "dynamic", "int8") else quantize


def write_companions(model, folder, reports, options):
    """model.json, the card, the examples, and predict.py where the model knows its preprocessing."""
    source = prepared(model)
    shapes = input_shapes(model, source, options.get("image_size"), free_size=True)
    inputs = inputs_for(
        source, probe_shapes(shapes, model), options.get("images"), EXAMPLES, getattr(model, "preprocessing", None)
    )
    outputs = in_batches(runner(source), inputs, (EXAMPLES,))
    arrays = {f"input_{i}": x for i, x in enumerate(inputs)} | {f"output_{i}": x for i, x in enumerate(outputs)}
    np.savez_compressed(folder / "examples.npz", **arrays)
    about = described(model, source, shapes, options.get("metadata"))
    about["artefacts"] = [artefact(folder / NAMES[report.format], folder, report) for report in reports]
    about["examples_sha256"] = digest(folder / "examples.npz")
    (folder / "model.json").write_text(json.dumps(about, indent=2, default=str) + "\n")
    (folder / "README.md").write_text(card(about))
    if about["preprocessing"]:
        shutil.copyfile(Path(__file__).with_name("predict_script.py"), folder / "predict.py")


def artefact(path, folder, report):
    """A report as an entry of model.json."""
    entry = {name: value for name, value in dataclasses.asdict(report).items() if name != "path"}
    return {"file": str(path.relative_to(folder).as_posix()), "sha256": digest(path), **entry}


def digest(path):
    """SHA-256 of a file with the data files of its name, or of a folder: names and contents in order."""
    path = Path(path)
    beside = sorted(path.parent.glob(f"{path.stem}-*.onnx.data")) if path.suffix == ".onnx" else []
    files = [path, *beside] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    total = hashlib.sha256()
    for file in files:
        total.update(file.relative_to(path.parent).as_posix().encode() + b"\0")
        with open(file, "rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()


def verify(folder):
    """Proves a bundle again: digests, and every artefact in its own runtime on the stored examples, without the model.

    Returns:
        A list of `Report`, one per artefact.

    Raises:
        ExportError: when a file is missing, was changed, or its runtime is not installed.
        ParityError: when outputs are not those that the model gave.

    >>> verify("dist")[0].top1_agreement
    1.0
    """
    folder = Path(folder)
    about = read(folder)
    require_digest(folder / "examples.npz", about["examples_sha256"])
    with np.load(folder / "examples.npz", allow_pickle=False) as arrays:
        inputs = [arrays[f"input_{i}"] for i in range(len(about["inputs"]))]
        expected = [arrays[f"output_{i}"] for i in range(len(about["outputs"]))]
    names = [entry["name"] for entry in about["inputs"]]
    return [verified(folder, entry, names, inputs, expected) for entry in about["artefacts"]]


def read(folder):
    try:
        return json.loads((folder / "model.json").read_text())
    except (OSError, ValueError) as error:
        raise ExportError(
            f"{folder} is no bundle: model.json is missing or damaged. Give a folder that export wrote."
        ) from error


def require_digest(path, expected):
    if not path.exists():
        raise ExportError(f"{path} is missing from the bundle. Export it again.")
    if digest(path) != expected:
        raise ExportError(f"{path} was changed after the export: its SHA-256 is not the one in model.json.")


def verified(folder, entry, names, inputs, expected):
    row = row_of(entry["format"])
    kind = kind_of(entry["quantize"], row.kinds, row.name)
    path = folder / entry["file"]
    require_digest(path, entry["sha256"])
    try:
        run = row.module.load(path, names)
    except ImportError as error:
        raise ExportError(f"{path} needs {error.name}, which is not installed.") from error
    found = difference(expected, in_batches(run, inputs, tuple(entry["batches"])))
    if not (found.max_rel_diff <= kind.max_rel_diff and found.cosine >= kind.cosine):
        raise ParityError(f"{path} does not give the model's outputs: they differ by up to {found.max_abs_diff:.2e}.")
    return Report(
        format=row.name,
        path=str(path),
        quantize=kind.name,
        bytes=size_of(path),
        weight_bytes=row.module.weight_bytes(path),
        model_weight_bytes=entry["model_weight_bytes"],
        **found.numbers(),
        images=len(inputs[0]),
        batches=tuple(entry["batches"]) or BATCHES,
        tolerance=kind.max_rel_diff,
    )

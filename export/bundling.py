"""The bundle: one folder with every artefact of a model, what it needs to be used, and what proves it again."""

import dataclasses
import json
import shutil
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.card import card
from keras_vit.export.conversion import FORMATS, runner, write_proved
from keras_vit.export.description import described, described_preprocessing
from keras_vit.export.preparation import input_shapes, prepared, probe_shapes
from keras_vit.export.proof.examples import EXAMPLES, write_examples
from keras_vit.export.proof.model_json import FILES, read_model_json
from keras_vit.export.proof.probes import inputs_for
from keras_vit.export.proof.runtimes import in_batches
from keras_vit.export.quantization import kind_of
from keras_vit.export.staging.stage import staged


def bundle(
    model, out, formats=("onnx", "tflite", "saved_model"), quantize=None, *, endpoints=(), progress=None, **options
):
    """Writes into the folder `out`: artefacts, model.json, README.md (a model card), predict.py, examples.npz, and a
    manifest, which lists them with their SHA-256.

    The files take their places when every artefact has proved equal. Those of a former export are replaced, and removed
    where they have no successor; what no export wrote, or was changed since, stays, and where it is in the way there is
    an error.

    Args:
        model: a built keras.Model.
        formats: any of "onnx", "tflite", "saved_model".
        quantize: see `convert`; a SavedModel stays in float32.
        endpoints: further methods of the model for the SavedModel, such as ("features", "attention").
        progress: called with a line of text at every step, and for files that were removed; or None.
        options: images, image_size, batch_size, metadata, latency of `convert`.

    Returns:
        A list of `Report`, one per format.

    Raises:
        ExportError, ParityError: as `convert`; then nothing changes at `out`.

    >>> bundle(model, "dist", formats=["onnx"], quantize="dynamic")[0].bytes
    88123456
    """
    tell = progress or (lambda line: None)
    rows = [row_of(name) for name in dict.fromkeys(formats)]
    if not rows:
        raise ExportError(f"A bundle needs a format. Expected some of: {', '.join(FILES)}.")
    for row in rows:
        kind_of(supported(row, quantize), row.kinds, row.name)
    if endpoints and "saved_model" not in formats:
        raise ExportError("Only a SavedModel can have further endpoints. Add saved_model to the formats.")
    names = [*companions_of(model), *(name for row in rows for name in names_of(row))]
    with staged(out, names, is_folder=True, tell=tell) as staging:
        reports = []
        for row in rows:
            tell(f"{row.name}: converting and comparing")
            path = staging / FILES[row.name]
            path.parent.mkdir(exist_ok=True)
            served = endpoints if row.name == "saved_model" else ()
            report = write_proved(model, row, path, quantize=supported(row, quantize), endpoints=served, **options)
            reports.append(dataclasses.replace(report, path=str(Path(out) / FILES[row.name])))
            tell(str(reports[-1]))
        write_companions(model, staging, reports, options)
        read_model_json(staging)  # what `verify` would refuse is not written
    return reports


def row_of(name):
    for row in FORMATS:
        if row.name == name:
            return row
    raise ExportError(f"No format is called {name!r}. Expected: {', '.join(FILES)}.")


def companions_of(model):
    """The files of a bundle beside its artefacts."""
    preprocessing = described_preprocessing(getattr(model, "preprocessing", None))
    return ["README.md", "examples.npz", "model.json", *(["predict.py"] if preprocessing else [])]


def names_of(row):
    """The files of an artefact in a bundle, as far as they are known before."""
    return [f"{FILES[row.name]}/{name}" for name in row.files] or [FILES[row.name]]


def supported(row, quantize):
    """A SavedModel is written in float32 whatever the others are."""
    return None if row.name == "saved_model" and quantize in ("float16", "dynamic", "int8") else quantize


def write_companions(model, folder, reports, options):
    """model.json, the card, the examples, and predict.py where the model knows its preprocessing."""
    source = prepared(model)
    shapes = input_shapes(model, source, options.get("image_size"), free_size=True)
    batch_size = options.get("batch_size") or 1
    count = -(-EXAMPLES // batch_size) * batch_size
    inputs = inputs_for(
        source, probe_shapes(shapes, model), options.get("images"), count, getattr(model, "preprocessing", None)
    )
    outputs = in_batches(runner(source), inputs, (EXAMPLES,))
    write_examples(folder / "examples.npz", inputs, outputs)
    about = described(model, source, shapes, options.get("metadata"))
    about["artefacts"] = [artefact(report) for report in reports]
    (folder / "model.json").write_text(json.dumps(about, indent=2, default=str) + "\n", "utf-8")
    (folder / "README.md").write_text(card(about), "utf-8")
    if about["preprocessing"]:
        shutil.copyfile(Path(__file__).with_name("predict_script.py"), folder / "predict.py")


def artefact(report):
    """A report as an entry of model.json."""
    entry = {name: value for name, value in dataclasses.asdict(report).items() if name != "path"}
    return {"file": FILES[report.format], **entry}

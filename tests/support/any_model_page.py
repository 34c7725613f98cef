"""The table of docs/any_model.md, measured on each backend, which takes hours, and then written:

    KERAS_BACKEND=tensorflow python tests/support/any_model_page.py measure FILE.jsonl
    KERAS_BACKEND=jax python tests/support/any_model_page.py measure FILE.jsonl
    python tests/support/any_model_page.py write FILE.jsonl docs/any_model.md

Models are measured in a process of their own; what the file has is not measured again.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
import tempfile
from dataclasses import dataclass

import any_models
import keras
import numpy as np

from keras_vit.evaluation.device.process import NotMeasured, Process
from keras_vit.export import doctor
from keras_vit.export.onnx.lowering import Unsupported, lower
from keras_vit.export.preparation import prepare, prepare_model

MARK = "<!-- From here on: python tests/support/any_model_page.py -->"
HEAD = (
    "| model | library | parameters | way to ONNX | nodes | MB | ONNX, TensorFlow | ONNX, JAX | TFLite, TensorFlow | "
    "TFLite, JAX | Keras' ONNX, TensorFlow | Keras' ONNX, JAX |\n|---|---|---:|---|---:|---:|---|---|---|---|---|---|"
)
BOUNDS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
CHECKED = {  # of the rows, those that a test measures again
    "keras_vit": ("ViT", "ResNet"),
    "keras.applications": ("ConvNeXtTiny", "MobileNetV3Small"),
    "keras_hub": ("DeiT", "HGNetV2", "SwinTransformer"),
    "zeromodels": ("CaiT", "ConvNeXt", "ConvNeXtV2", "DeiT", "EfficientNet", "MobileNetV3", "SigLIP", "Swin", "ViT"),
}
CHECKED_ROWS = [row for row in any_models.ROWS if row.name in CHECKED[row.library]]
BACKENDS = ("tensorflow", "jax")
EXPORTS = (("onnx", doctor.OURS), ("tflite", doctor.OURS), ("onnx", doctor.KERAS))
LIMIT = 900  # seconds for a model


@dataclass(frozen=True)
class Line:
    """A line of the table. Differences are bounds, over the largest output; nodes and MB are of the ONNX file."""

    model: str
    library: str
    parameters: str
    way: str
    nodes: str
    megabytes: str
    onnx: str
    onnx_jax: str
    tflite: str
    tflite_jax: str
    keras: str
    keras_jax: str

    def __str__(self):
        return f"| {' | '.join(dataclasses.astuple(self))} |"

    def bound(self, column):
        return float(getattr(self, column).removeprefix("< "))


def random_model(row):
    """The model with every weight away from its initial value, so that no head and no layer scale is near zero."""
    keras.utils.set_random_seed(0)
    model, random = row.build(), np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype == "float32":
            value = np.asarray(weight) + random.normal(0, 0.05, weight.shape)
            weight.assign(np.abs(value) + 0.5 if "variance" in weight.path else value)
    return model


def way_to_onnx(model):
    source = prepare_model(model)
    try:
        lower(source, [tuple(x.shape) for x in source.inputs])
    except Unsupported:
        return "tf2onnx"
    return "emitters"


def measure(library, name):
    """What is known of one model on this backend, as plain values."""
    (row,) = (row for row in any_models.ROWS if (row.library, row.name) == (library, name))
    model = random_model(row)
    rounding = doctor.measure_rounding(doctor.make_trial(prepare(model), "onnx"))
    found = {"parameters": model.count_params(), "way": way_to_onnx(model), "rounding": rounding}
    with tempfile.TemporaryDirectory() as folder:
        for form, by in EXPORTS:
            found[f"{form} {by}"] = dataclasses.asdict(
                doctor.examine(prepare(model), form, by, f"{folder}/{by}.{form}")
            )
    keras.backend.clear_session()
    return found


def read_measurements(path):
    """{(library, model): {backend: what `measure` found}}"""
    found = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        found.setdefault((entry["library"], entry["model"]), {})[entry["backend"]] = entry
    return found


def measure_all(path):
    backend = keras.backend.backend()
    apart = importlib.import_module("any_model_page")  # this file: another process knows it by its name
    with Process(quiet=True) as process:
        for row in any_models.ROWS:
            if backend in read_measurements(path).get((row.library, row.name), {}):
                continue
            try:
                found = process.call(apart.measure, row.library, row.name, limit=LIMIT)
            except NotMeasured as error:
                found = {"error": str(error)}
                process.start()
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"library": row.library, "model": row.name, "backend": backend, **found}) + "\n")


def bound(difference):
    """The smallest round bound that leaves room for another machine's rounding."""
    return next((f"< {b:.0e}" for b in BOUNDS if 1.5 * difference < b), f"{difference:.0e}")


def describe_ours(found, rounding):
    if found["result"] == "right":
        return bound(found["difference"])
    if rounding > BOUNDS[-1]:
        return f"refused: compiled, the model differs from itself by {rounding:.0e}"
    return "by `batch_size=`" if "need a fixed batch" in found["error"] else "not exported"


def describe_keras(found, rounding=0):
    """What becomes of `model.export(format="onnx")`, and its nodes."""
    words = {"is not written": "fails", "differs": f"differs by {found['difference'] or 0:.0e}"}
    nodes = f", {found['nodes']:,} nodes" if found["result"] == "right" else ""
    return words.get(found["result"], found["result"]) + nodes


def make_line(row, found):
    """The line of a model from what was found on each backend."""
    first = found["tensorflow"]
    cells = [
        describe(found[backend][export], found[backend].get("rounding", 0))
        if export in found[backend]
        else "broken off"
        for export, describe in (
            ("onnx keras-vit", describe_ours),
            ("tflite keras-vit", describe_ours),
            ("onnx Keras", describe_keras),
        )
        for backend in BACKENDS
    ]
    for i in (1, 3):  # on JAX
        if cells[i] == "not exported" != cells[i - 1]:
            cells[i] = "on TensorFlow alone"
    onnx = first["onnx keras-vit"]
    megabytes = f"{onnx['bytes'] / 1e6:.1f}" if onnx["bytes"] else ""
    return Line(
        row.name, row.library, f"{first['parameters']:,}", first["way"], f"{onnx['nodes'] or ''}", megabytes, *cells
    )


def lines_of(page):
    """The lines of a page's table, by library and model."""
    table = page.partition(MARK)[2].strip().splitlines()
    lines = [Line(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table if line.startswith("| ")]
    return {(line.library, line.model): line for line in lines if line.model != "model"}


def write_page(measurements, path):
    """Writes the lines of the models that were measured on every backend."""
    found = read_measurements(measurements)
    whole = [row for row in any_models.ROWS if set(BACKENDS) <= set(found.get((row.library, row.name), ()))]
    lines = [str(make_line(row, found[row.library, row.name])) for row in whole]
    prose = path.read_text("utf-8").partition(MARK)[0]
    path.write_text(f"{prose}{MARK}\n\n{HEAD}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    {"measure": measure_all, "write": write_page}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))

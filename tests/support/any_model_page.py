"""The table of docs/any_model.md, measured: `python tests/support/any_model_page.py docs/any_model.md` (20 minutes)."""

import dataclasses
import pathlib
import sys
import tempfile
import time
from dataclasses import dataclass

import any_models
import keras
import numpy as np
import onnxruntime

from keras_vit.errors import ExportError
from keras_vit.export import convert
from keras_vit.export.onnx.lowering import Unsupported, lower
from keras_vit.export.preparation import prepare_model

MARK = "<!-- From here on: python tests/support/any_model_page.py docs/any_model.md -->"
HEAD = (
    "| model | library | parameters | way to ONNX | ONNX differs by | seconds | MB | TFLite differs by | "
    "Keras' own ONNX export |\n|---|---|---:|---|---:|---:|---:|---:|---|"
)
BOUNDS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
SHOWN = {
    "keras_vit": ("ViT", "ResNet"),
    "keras.applications": ("ConvNeXtTiny", "MobileNetV3Small"),
    "keras_hub": ("DeiT", "HGNetV2", "SwinTransformer"),
    "zeromodels": ("CaiT", "ConvNeXt", "ConvNeXtV2", "DeiT", "EfficientNet", "MobileNetV3", "SigLIP", "Swin", "ViT"),
}
ROWS = [row for row in any_models.ROWS if row.name in SHOWN[row.library]]


@dataclass(frozen=True)
class Line:
    """A line of the table. Differences are bounds, over the largest output; seconds and MB are of the ONNX file."""

    model: str
    library: str
    parameters: str
    way: str
    onnx: str
    seconds: str
    megabytes: str
    tflite: str
    keras: str

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


def keras_export(model, folder):
    """What becomes of `model.export(format="onnx")`."""
    path = f"{folder}/keras.onnx"
    try:
        model.export(path, format="onnx", verbose=False)
    except Exception:  # of whatever kind the converter raises
        return "fails"
    try:
        onnxruntime.InferenceSession(path)
    except Exception:  # onnxruntime's are no subclass of one another
        return "does not load"
    return "loads"


def bound(report):
    """The smallest round bound that leaves room for another machine's rounding."""
    return next((f"< {b:.0e}" for b in BOUNDS if 1.5 * report.max_rel_diff < b), f"{report.max_rel_diff:.0e}")


def try_to_convert(model, path):
    try:
        return convert(model, path)
    except ExportError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return None


def measure(row):
    """The line of one model."""
    model = random_model(row)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        onnx = try_to_convert(model, f"{folder}/model.onnx")
        seconds = time.perf_counter() - start
        tflite = try_to_convert(model, f"{folder}/model.tflite")
        own = keras_export(model, folder)
    return Line(
        model=row.name,
        library=row.library,
        parameters=f"{model.count_params():,}",
        way=way_to_onnx(model),
        onnx=bound(onnx) if onnx else "not exported",
        seconds=f"{seconds:.0f}",
        megabytes=f"{onnx.bytes / 1e6:.1f}" if onnx else "",
        tflite=bound(tflite) if tflite else "not exported",
        keras=own,
    )


def lines_of(page):
    """The lines of a page's table, by library and model."""
    table = page.partition(MARK)[2].strip().splitlines()
    lines = [Line(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table if line.startswith("| ")]
    return {(line.library, line.model): line for line in lines if line.model != "model"}


def main(path):
    prose = path.read_text("utf-8").partition(MARK)[0]
    lines = [HEAD]
    for row in ROWS:
        lines.append(str(measure(row)))
        print(lines[-1], flush=True)
        keras.backend.clear_session()
    path.write_text(f"{prose}{MARK}\n\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

"""web/ of a bundle: index.html, one script, one style sheet, the model for browsers, model.json and examples.

The page needs no network but for onnxruntime-web, which `vendor` puts beside it. A browser opens it from any server of
files, such as `keras-vit serve`, and not from the disk.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.conversion import write_proved
from keras_vit.export.description import describe_preprocessing
from keras_vit.export.formats import format_named
from keras_vit.export.proof.comparison import model_runner
from keras_vit.export.web.examples import write_examples
from keras_vit.export.web.runtime import VENDORED, WEBGPU_OPERATORS, copy_runtime, describe_runtime, fetch_runtime
from keras_vit.export.web.texts import BACKENDS, MODELS, page_texts

LARGEST = 18 * 10**8  # bytes of a model that is one file, which a browser's buffers of 2 GB hold
CHANNELS = (1, 3)
LOOKS = "attention"  # the optional output (n, blocks, heads, tokens, tokens)


def require_page(source, vendor):
    """Raises before any work unless a page has its runtime and can feed the model: one image in, logits out."""
    shapes = [tuple(tensor.shape) for tensor in (*source.functional.inputs, *source.functional.outputs)]
    if describe_preprocessing(source.preprocessing) is None:
        raise ExportError(
            f"A page must know how pictures become inputs of {source.model.name!r}, whose preprocessing is unknown. "
            "Give preprocessing= to zoo.load, or leave out the page."
        )
    if [len(shape) for shape in shapes] != [4, 2] or shapes[0][-1] not in CHANNELS:
        raise ExportError(
            "A page takes pictures (n, height, width, 1 or 3) and shows one row of logits for each. Received: a model "
            f"of the inputs and outputs {shapes}. Leave out the page."
        )
    if vendor:
        fetch_runtime(BACKENDS)


def write_page(source, folder, about, inputs, *, pictures, vendor, tell):
    """Writes the page of a bundle into the new folder `folder`.

    Args:
        about: the contents of the bundle's model.json.
        inputs: the bundle's examples, [float32 (n, h, w, c)].
        pictures: that the page tries itself on; see `bundle`.
        vendor: whether the runtime's files are copied beside the page.
        tell: called with lines of text.
    """
    (folder / "examples").mkdir(parents=True)
    if not about["labels"]:
        tell("web: the model has no labels; the page shows the numbers of its classes. zoo.load(labels=) names them")
    model, run = source.model, model_runner(source.functional)
    reports = write_models(dataclasses.replace(source, batch_size=None), folder, tell)
    entries = write_examples(folder / "examples", pictures, *inputs, model, lambda x: np.asarray(run([x])[0]))
    backends = tuple(report["backend"] for report in reports)
    runtime = describe_runtime(backends, vendor)
    if vendor:
        megabytes = sum(row["bytes"] for row in runtime.values()) / 1e6
        tell(f"web: copying onnxruntime-web for {' and '.join(backends)}, {megabytes:.0f} MB")
        copy_runtime(backends, folder / VENDORED)
    contents = {name: about[name] for name in ("name", "labels", "probabilities", "preprocessing")}
    contents |= {"channels": inputs[0].shape[-1], "grid": read_grid(model)}
    contents |= {"models": reports, "examples": entries, "runtime": runtime}
    (folder / "model.json").write_text(json.dumps(contents) + "\n", "utf-8")
    for name, text in page_texts(about["name"], vendor).items():
        (folder / name).write_text(text, "utf-8")


def write_models(source, folder, tell):
    """Writes the models of the page, each compared with the model as every artefact; their entries in model.json."""
    entries = []
    for row in MODELS:
        try:
            entries.append(write_model(source, row, folder, tell))
        except ExportError as error:
            if row is MODELS[-1]:
                raise
            for path in folder.glob(f"{Path(row.file).stem}*"):
                path.unlink()
            tell(f"web: the page has no model for {row.backend}; browsers run it in WebAssembly. {error}")
    return entries


def write_model(source, row, folder, tell):
    """Writes a model of the page; its entry in model.json."""
    onnx, path, model = format_named("onnx"), folder / row.file, source.model
    able = onnx.supported_endpoints([LOOKS]) and read_grid(model) and callable(getattr(model, LOOKS, None))
    looks = (LOOKS,) if able else ()
    try:
        report = write_proved(source, onnx, path, row.quantize, looks, tell=lambda line: tell(f"web: {line}"))
    except ParityError as error:
        if row is not MODELS[-1]:
            raise
        tell(f"web: in int8 the model's outputs differ too much, so the page has it in float32. {error}")
        report = write_proved(source, onnx, path, None, looks)
    if report.bytes > LARGEST:
        raise ExportError(
            f"The model {model.name!r} takes {report.bytes / 1e9:.1f} GB; a browser holds 2 GB, and a page takes up to "
            f"{LARGEST / 1e9:.1f} GB. "
            "Leave out the page, or choose a smaller model."
        )
    if row.backend == "webgpu":
        require_webgpu(path)
    tell(f"web: {row.file}, {report.quantize or 'float32'}, {report.bytes / 1e6:.1f} MB")
    named = ("quantize", "bytes", "tolerance", "max_rel_diff")
    return {"backend": row.backend, "file": row.file, **{name: getattr(report, name) for name in named}}


def require_webgpu(path):
    """Raises unless onnxruntime-web has the operators of this ONNX file for WebGPU."""
    import onnx

    found = {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}
    if lacking := sorted(found - WEBGPU_OPERATORS):
        raise ExportError(f"WebGPU lacks the operators {', '.join(lacking)} of this model.")


def read_grid(model):
    """(rows, columns) of the model's patches; None where it does not say."""
    grid = getattr(getattr(model, "config", None), "grid", None)
    return grid and list(grid)

"""TFLite files with built-in operators only, converted in a process of their own so that its memory is given back."""

import json
import os
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from keras_vit.export import saved_model
from keras_vit.export.apart import last_line, run_apart
from keras_vit.export.preparation import export_calls


def write(model, shapes, path, description, quantize=None, calibration=None):
    """Writes `model` as the file `path`.

    Args:
        quantize: see `quantization`.
        calibration: inputs by name, arrays (n, ...), for "int8".

    Raises:
        ExportError: when an operator is not among TFLite's built-in ones (named), or the converter fails.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with export_calls(model):
            saved_model.write(model, shapes, Path(folder) / "model")
        job = {"saved_model": str(Path(folder) / "model"), "output": str(path), "quantize": quantize}
        if calibration is not None:
            job["calibration"] = str(Path(folder) / "calibration.npz")
            np.savez(job["calibration"], **calibration)
        run_apart("tflite_worker.py", job, explained)
    append_description(path, description)


def append_description(path, description):
    """Appends a zip archive with the metadata and the labels, which TFLite's readers look for there."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metadata.json", json.dumps(description, indent=2, default=str))
        if description.get("labels"):
            archive.writestr("labels.txt", "\n".join(description["labels"]) + "\n")


def explained(log):
    """One sentence from what the converter wrote before it failed."""
    foreign = re.findall(r"^(?:Flex|Custom|TF Select) ops: ([\w, ]+)$", log, re.MULTILINE)
    if foreign:
        names = ", ".join(sorted({name.strip() for line in foreign for name in line.split(",")}))
        return f"TFLite has no built-in operator for: {names}. Export to .onnx or a SavedModel instead."
    raised = re.findall(r"^[\w.]+(?:Error|Exception): (.+)$", log, re.MULTILINE)
    return f"The TFLite converter failed: {raised[-1] if raised else last_line(log)}."


def load(path, names=None):
    """A function from a list of arrays to the list of outputs, run by LiteRT on every core but at most 8.

    Args:
        names: of the inputs, in the order of the arrays; may be left out for a single input.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=min(os.cpu_count() or 1, 8))
    runner = interpreter.get_signature_runner()
    names = names or list(runner.get_input_details())

    def run(inputs):
        outputs = runner(**dict(zip(names, inputs, strict=True)))
        return [outputs[name] for name in sorted(outputs, key=number_in)]

    return run


def number_in(name):
    """Outputs are called output_0, output_1, ..."""
    return int(re.sub(r"\D", "", name) or 0)


def weight_bytes(path):
    """Bytes of the constants in the file and of their scales."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes())
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    tensors = [graph.Tensors(i) for graph in graphs for i in range(graph.TensorsLength())]
    constants = {x.Buffer(): x for x in tensors if model.Buffers(x.Buffer()).DataLength()}
    scales = sum(4 * x.Quantization().ScaleLength() for x in constants.values() if x.Quantization())
    return scales + sum(model.Buffers(place).DataLength() for place in constants)

"""Smaller ONNX files: weights in float16 or int8, products in int8, calibrated ones by onnxruntime's quantizer.

Convolutions compute in float, which is faster on a CPU; their weights are stored in int8 and widened when a runtime
loads the file, which folds operations on constants.
"""

from pathlib import Path

import numpy as np

from keras_vit.export.onnx.graph import Node
from keras_vit.export.subprocess_job import run_script

SMALL = 2048  # elements; smaller tensors gain nothing


def narrow_weights(constants, quantize):
    """Stores float32 constants in fewer bits where that needs no quantizer; `constants` changes in place.

    Args:
        constants: arrays by name.
        quantize: see `quantization`; "dynamic" and "int8" narrow nothing here, but in `quantize_layers`.

    Returns:
        The nodes that widen them again, under the names they had.
    """
    if quantize != "float16":
        return []
    large = [name for name, x in constants.items() if x.dtype == "float32" and x.size >= SMALL]
    return [store_in_float16(constants, name) for name in large]


def store_in_float16(constants, name):
    limit = np.finfo("float16").max
    constants[f"{name}_float16"] = np.clip(constants.pop(name), -limit, limit).astype("float16")
    return Node("Cast", [f"{name}_float16"], [name], {"to": "float32"})


def quantize_layers(source, output, kind, goal, tell=None):
    """Writes `output`, the file `source` with the weights of its layers in int8, as far as `goal` bears it.

    Args:
        source, output: paths; a scratch file comes beside the source.
        kind: "dynamic" or "int8".
        goal: see `proof.mixture`.
        tell: takes a line of text on what is being done; or None.

    Returns:
        {layer: way} of those that are stored more finely; see `proof.mixture`.
    """
    job = {
        "source": str(source),
        "output": str(output),
        "kind": kind,
        "goal": str(source.with_name("goal.npz")),
        "reading": str(Path(__file__).with_name("reading.py")),
    }
    goal.save(job["goal"])
    return run_script("onnx/quantize_worker.py", job, tell=tell)

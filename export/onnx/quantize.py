"""Smaller ONNX files: weights in float16 or int8, products in int8 by onnxruntime's quantizer.

Convolutions compute in float, which is faster on a CPU; their weights are stored in int8 and widened when a runtime
loads the file, which folds operations on constants.
"""

import numpy as np

from keras_vit.export.onnx.graph import Node
from keras_vit.export.subprocess_job import run_script

SMALL = 2048  # elements; smaller tensors gain nothing
PRODUCTS = ("MatMul", "Gemm")


def narrow_weights(constants, kernels, quantize):
    """Stores float32 constants in fewer bits where that needs no quantizer; `constants` changes in place.

    Args:
        constants: arrays by name.
        kernels: the names among them of kernels of convolutions, (out, in, h, w).
        quantize: see `quantization`; "dynamic" and "int8" narrow the kernels alone.

    Returns:
        The nodes that widen them again, under the names they had.
    """
    large = [name for name, x in constants.items() if x.dtype == "float32" and x.size >= SMALL]
    if quantize == "float16":
        return [store_in_float16(constants, name) for name in large]
    if quantize is None:
        return []
    return [node for name in large if name in kernels for node in store_in_int8(constants, name)]


def store_in_float16(constants, name):
    limit = np.finfo("float16").max
    constants[f"{name}_float16"] = np.clip(constants.pop(name), -limit, limit).astype("float16")
    return Node("Cast", [f"{name}_float16"], [name], {"to": "float32"})


def store_in_int8(constants, name):
    """A kernel with 127 steps on each side of 0 per output channel."""
    kernel = constants.pop(name)
    scale = np.abs(kernel).max(axis=(1, 2, 3), keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype("float32")
    constants[f"{name}_int8"] = np.round(kernel / scale).astype("int8")
    constants[f"{name}_scale"] = scale
    return [
        Node("Cast", [f"{name}_int8"], [f"{name}_wide"], {"to": "float32"}),
        Node("Mul", [f"{name}_wide", f"{name}_scale"], [name]),
    ]


def products_with_weights(proto):
    """Names of the matrix products of an activation with a weight; not with a stack of weights.

    Of those, onnxruntime 1.31 refuses the scales per channel when the file is run.
    """
    weights = {tensor.name for tensor in proto.graph.initializer if len(tensor.dims) == 2}
    return [node.name for node in proto.graph.node if node.op_type in PRODUCTS and node.input[1] in weights]


def quantize_products(source, output, kind, nodes, calibration=None, batch_size=1):
    """Writes `output`, the file `source` with the products in int8.

    Args:
        calibration: inputs by name, arrays (n, ...), for the kind "int8".
        batch_size: of the file, a divisor of n; 1 if it is free.
    """
    inputs = source.with_name("calibration.npz")
    if calibration is not None:
        np.savez(inputs, **calibration)
    job = {
        "source": str(source),
        "output": str(output),
        "kind": kind,
        "nodes": nodes,
        "calibration": str(inputs),
        "batch_size": batch_size,
    }
    run_script("onnx/quantize_worker.py", job)

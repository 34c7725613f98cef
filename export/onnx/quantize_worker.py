"""Quantizes one ONNX file; run by `quantize` as a script in its own process, with a job as JSON on stdin.

Keys of the job: source, output (files), kind ("dynamic" or "int8"), calibration (a .npz of inputs by name, for "int8"),
batch_size (of the file, or 1), nodes (names of the products with weights).
"""

import json
import logging
import sys

import numpy as np


class CalibrationInputs:
    """The calibration inputs batch by batch, as onnxruntime's calibrators read them."""

    def __init__(self, path, batch_size):
        self.arrays = dict(np.load(path, allow_pickle=False))
        self.place, self.batch_size = 0, batch_size

    def get_next(self):
        place, self.place = self.place, self.place + self.batch_size
        batch = {name: array[place : self.place] for name, array in self.arrays.items()}
        return batch if all(len(array) for array in batch.values()) else None


def quantize_onnx(job):
    """Writes the output with the products of activations and weights in int8, a scale per channel of the weights."""
    from onnxruntime import quantization as q

    logging.disable(logging.WARNING)
    common = {
        "op_types_to_quantize": ["MatMul", "Gemm"],
        "per_channel": True,
        "weight_type": q.QuantType.QInt8,
    }
    if job["kind"] == "dynamic":
        # Renames the products it rewrites, so they cannot be chosen by name; it leaves those without weights alone.
        q.quantize_dynamic(job["source"], job["output"], **common)
        return
    q.quantize_static(
        job["source"],
        job["output"],
        CalibrationInputs(job["calibration"], job["batch_size"]),
        nodes_to_quantize=job["nodes"],
        quant_format=q.QuantFormat.QDQ,
        activation_type=q.QuantType.QUInt8,
        calibrate_method=q.CalibrationMethod.MinMax,
        extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
        **common,
    )


def drop_zero_points(graph):
    """Leaves out zero points that are 0 anyway: those of int32 biases and of the weights of MatMulInteger.

    The others stay: onnxruntime fuses a Gemm only with the zero points of its kernel.
    """
    import onnx

    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        place = {"DequantizeLinear": 2, "MatMulInteger": 3}.get(node.op_type)
        tensor = constants.get(node.input[place]) if place in range(len(node.input)) else None
        if tensor is None or onnx.numpy_helper.to_array(tensor).any():
            continue
        if node.op_type == "MatMulInteger" or tensor.data_type == onnx.TensorProto.INT32:
            del node.input[place]


def share_constants(graph):
    """Keeps one of equal constants (zero points are zeros each), and none that is not used."""
    first, renamed = {}, {}
    for tensor in graph.initializer:
        name, tensor.name = tensor.name, ""
        renamed[name] = first.setdefault(tensor.SerializeToString(), name)
        tensor.name = name
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    used = {name for node in graph.node for name in node.input} | {x.name for x in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def drop_what_is_inferred(path):
    """The file again without shapes that can be inferred and constants that can be spared."""
    import onnx

    proto = onnx.load(path)
    del proto.graph.value_info[:]
    # Branches may use the names of constants.
    if not any(attribute.HasField("g") for node in proto.graph.node for attribute in node.attribute):
        drop_zero_points(proto.graph)
        share_constants(proto.graph)
    onnx.save_model(proto, path)


def main():
    job = json.load(sys.stdin)
    quantize_onnx(job)
    drop_what_is_inferred(job["output"])


if __name__ == "__main__":
    main()

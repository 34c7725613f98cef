"""Quantizes one ONNX file; run by `quantize` as a script in its own process, with a job as JSON on stdin.

Keys of the job: source, output (files), kind ("dynamic" or "int8"), goal and runtime (see `proof.mixture`).
"""

import contextlib
import json
import logging
import os
import sys
from pathlib import Path

import numpy as np

from keras_vit.export.proof.mixture import Goal, quantize_to_goal

SMALL = 2048  # elements; smaller kernels of convolutions gain nothing
PRODUCTS = ("MatMul", "Gemm")
FINER = ("int8-weights", "float16", "float32")
LARGEST = np.finfo("float16").max


class CalibrationInputs:
    """The calibration inputs batch by batch, as onnxruntime's calibrators read them."""

    def __init__(self, batches):
        self.batches = iter(batches)

    def get_next(self):
        return next(self.batches, None)


def list_ladders(graph, kind):
    """{name: ladder} of the products of an activation with a weight, and of the convolutions, which compute in float.

    Not of products with a stack of weights: onnxruntime 1.31 refuses their scales per channel when the file is run.
    """
    import onnx

    floats = {x.name: x.dims for x in graph.initializer if x.data_type == onnx.TensorProto.FLOAT}
    added = {name for node in graph.node if node.op_type == "Add" for name in node.input}
    ladders = {}
    for node in graph.node:
        dims = floats.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type in PRODUCTS and dims is not None and len(dims) == 2:
            ladders[node.name] = (kind, *FINER)
        elif node.op_type == "Conv" and dims is not None and np.prod(dims) >= SMALL:
            # OpenVINO 2026.4 takes strides of 1 where a hybrid's shortcut is widened from int8, and refuses the file.
            misread = skips_pixels(node, dims) and added.isdisjoint(node.output)
            ladders[node.name] = FINER[1:] if misread else FINER
    return ladders


def skips_pixels(node, dims):
    """Whether a convolution, whose kernel has these dimensions, is pointwise and strided."""
    strides = next((attribute.ints for attribute in node.attribute if attribute.name == "strides"), (1,))
    return list(dims[2:]) == [1, 1] and max(strides) > 1


class OnnxQuantizer:
    """Writes the file of a job with its layers stored in the ways it is given."""

    def __init__(self, job):
        import onnx

        self.source, self.kind = job["source"], job["kind"]
        self.ladders = list_ladders(onnx.load(self.source, load_external_data=False).graph, self.kind)
        self.goal, self.ranges = Goal.read(job["goal"]), None

    def write(self, ways, output):
        """Writes `output`, the source with the layers in `ways`, {name: way}."""
        import onnx
        from onnxruntime import quantization as q

        prepared = self.source
        narrowed = [way for way in ways.values() if way in ("int8-weights", "float16")]
        if narrowed:
            prepared = f"{self.source}.prepared"
            onnx.save_model(store_weights(onnx.load(self.source), ways), prepared)
        nodes = [name for name, way in ways.items() if way == self.kind]
        common = {"op_types_to_quantize": list(PRODUCTS), "per_channel": True, "weight_type": q.QuantType.QInt8}
        if not nodes:
            onnx.save_model(onnx.load(prepared), output)
        elif self.kind == "dynamic":
            # A Gemm becomes a MatMul of this name; products without weights are left alone.
            plain = [name for name, way in ways.items() if way == "float32"]
            plain += [f"{name}_MatMul" for name in plain]
            q.quantize_dynamic(prepared, output, nodes_to_exclude=plain, **common)
        else:
            self.quantize_static(prepared, output, nodes, common)
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self.source}.prepared")
        drop_what_is_inferred(output)

    def quantize_static(self, prepared, output, nodes, common):
        """The products `nodes` in int8, by the ranges of activations of the float file, which are measured once."""
        from onnxruntime import quantization as q
        from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

        if self.ranges is None:
            calibrator = q.create_calibrator(Path(self.source), list(PRODUCTS), f"{self.source}.calibrated")
            calibrator.collect_data(CalibrationInputs(self.goal.split_inputs()))
            self.ranges = calibrator.compute_data()
        quantizer = q.QDQQuantizer(
            load_model_with_shape_infer(Path(prepared)),
            reduce_range=False,
            activation_qType=q.QuantType.QUInt8,
            tensors_range=self.ranges,
            nodes_to_quantize=nodes,
            nodes_to_exclude=[],
            extra_options={"OpTypesToExcludeOutputQuantization": list(PRODUCTS)},
            per_channel=common["per_channel"],
            weight_qType=common["weight_type"],
            op_types_to_quantize=common["op_types_to_quantize"],
        )
        quantizer.quantize_model()
        quantizer.model.save_model_to_file(output, False)


def store_weights(proto, ways):
    """The ModelProto with the weights of the layers on the ways "int8-weights" and "float16" stored so, and widened.

    A runtime folds what widens them when it loads the file.
    """
    from onnx import numpy_helper

    graph = proto.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    widening = []
    for node in graph.node:
        way = ways.get(node.name)
        if way in ("int8-weights", "float16"):
            weights = numpy_helper.to_array(tensors[node.input[1]])
            constants, nodes = narrow(weights, way, f"{node.name}/weights", output_axis(node))
            graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
            widening += nodes
            node.input[1] = nodes[-1].output[0]
    nodes = [*widening, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return proto


def output_axis(node):
    """The axis of a layer's weights along which its output channels lie."""
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return 0 if node.op_type == "Conv" or transposed else 1


def narrow(weights, way, name, axis):
    """(constants by name, nodes that widen them): float16, or int8 with 127 steps on each side of 0 per channel."""
    from onnx import TensorProto, helper

    float32 = {"to": TensorProto.FLOAT}
    if way == "float16":
        constants = {f"{name}_float16": np.clip(weights, -LARGEST, LARGEST).astype("float16")}
        return constants, [helper.make_node("Cast", [f"{name}_float16"], [f"{name}_wide"], **float32)]
    others = tuple(i for i in range(weights.ndim) if i != axis)
    scale = np.abs(weights).max(axis=others, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype("float32")
    constants = {f"{name}_int8": np.round(weights / scale).astype("int8"), f"{name}_scale": scale}
    return constants, [
        helper.make_node("Cast", [f"{name}_int8"], [f"{name}_cast"], **float32),
        helper.make_node("Mul", [f"{name}_cast", f"{name}_scale"], [f"{name}_wide"]),
    ]


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
    logging.disable(logging.WARNING)
    quantizer = OnnxQuantizer(job)
    quantize_to_goal(job, quantizer.ladders, quantizer.write)


if __name__ == "__main__":
    main()

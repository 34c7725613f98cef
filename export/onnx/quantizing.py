"""ONNX files with layers in int8 and float16; onnxruntime's quantizer calibrates products and convolutions.

Without calibrated ranges convolutions compute in float: a runtime is only fast if it also knows the ranges of their
outputs. Then only their weights are stored in int8. A runtime that loads the file folds operations on constants, and so
widens them once. This file is also the script that quantizes, in a separate process.
"""

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from keras_vit.export.proof.mixture import Goal, quantize_to_goal, run_quantizer

SMALL = 2048  # elements; smaller kernels of convolutions gain nothing
FEW = 4  # input channels; in convolutions of pixels, and depthwise ones, int8 costs more accuracy than it gains
PRODUCTS = ("MatMul", "Gemm")
LAYERS = (*PRODUCTS, "Conv")
FINER = ("int8-weights", "float16", "float32")
NARROW = ("dynamic", "int8-weights", "float16")
LARGEST = np.finfo("float16").max


def attributes(node):
    import onnx

    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def is_product(node):
    """Whether a node is only a product of matrices, with or without a bias."""
    found = attributes(node)
    return node.op_type in PRODUCTS and found.get("alpha", 1) == found.get("beta", 1) == 1 and not found.get("transA")


def list_ladders(graph, kind):
    """{name: ladder} of the products of an activation and a weight, and of the convolutions. Products with stacked
    weights are left out: onnxruntime 1.31 refuses their scales per channel when it runs the file.
    """
    import onnx

    floats = {x.name: x.dims for x in graph.initializer if x.data_type == onnx.TensorProto.FLOAT}
    added = {name for node in graph.node if node.op_type == "Add" for name in node.input}
    # onnxruntime 1.32 would round before the pooling, and its pooling of uint8 is slow: a fifth of R26+ViT-S/32's time.
    pooled = {name for node in graph.node if node.op_type == "MaxPool" for name in node.output}
    ladders = {}
    for node in graph.node:
        dims = floats.get(node.input[1]) if len(node.input) > 1 else None
        if is_product(node) and dims is not None and len(dims) == 2:
            ladders[node.name] = (kind, *FINER)
        elif node.op_type == "Conv" and dims is not None and np.prod(dims) >= SMALL:
            # OpenVINO 2026.4 assumes strides of 1 if a hybrid's shortcut is widened from int8, and refuses the file.
            pointwise, strided = list(dims[2:]) == [1, 1], max(attributes(node).get("strides", (1,))) > 1
            misread = pointwise and strided and added.isdisjoint(node.output)
            fast = dims[1] > FEW and node.input[0] not in pooled
            calibrated = ("int8",) if kind == "int8" and fast else ()
            ladders[node.name] = (*calibrated, *(FINER[1:] if misread else FINER))
    return ladders


def list_inputs(nodes):
    """The names of all inputs of the nodes and their branches, as a set."""
    names = {name for node in nodes for name in node.input}
    branches = [attribute.g for node in nodes for attribute in node.attribute if attribute.HasField("g")]
    return names.union(*(list_inputs(branch.node) for branch in branches))


def round_weights(weights, axis):
    """Rounds weights to (int8, float32 scales), with 127 steps on each side of 0 for every channel along an axis."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    scale = np.abs(weights).max(axis=others, keepdims=True) / 127
    scale = np.where(scale == 0, 1, scale).astype("float32")
    return np.round(weights / scale).astype("int8"), scale


def output_axis(node):
    """The axis of the output channels in a layer's weights."""
    return 0 if node.op_type == "Conv" or attributes(node).get("transB") else 1


def multiply_in_int8(node, weights, quantized):
    """(constants by name, nodes) that replace a product: int8 weights, and the range of each activation at run time.
    `quantized` names the activations that are in int8 already; this product's is added.
    """
    from onnx import TensorProto, helper

    if output_axis(node) == 0:
        weights = weights.T
    (x, _, *bias), (y,), name = node.input, node.output, node.name
    parts = [f"{x}/{part}" for part in ("int8", "scale", "zero_point")]
    nodes = [] if x in quantized else [helper.make_node("DynamicQuantizeLinear", [x], parts)]
    quantized.add(x)
    product, kernel = f"{name}/product" if bias else y, f"{name}/weights"
    nodes += [
        helper.make_node("MatMulInteger", [parts[0], f"{kernel}/int8", parts[2]], [f"{name}/sum"]),
        helper.make_node("Cast", [f"{name}/sum"], [f"{name}/cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [parts[1], f"{kernel}/scale"], [f"{name}/scales"]),
        helper.make_node("Mul", [f"{name}/cast", f"{name}/scales"], [product]),
    ]
    if bias:
        nodes.append(helper.make_node("Add", [product, *bias], [y]))
    integers, scale = round_weights(weights, 1)
    return {f"{kernel}/int8": integers, f"{kernel}/scale": scale.ravel()}, nodes


def widen(node, weights, way):
    """(constants by name, nodes) that replace a layer: weights stored in the way "float16" or "int8-weights", and
    widened. A runtime folds the widening when it loads the file.
    """
    from onnx import NodeProto, TensorProto, helper

    kernel = f"{node.name}/weights"
    wide = f"{kernel}/wide"
    if way == "float16":
        constants = {f"{kernel}/float16": np.clip(weights, -LARGEST, LARGEST).astype("float16")}
        nodes = [helper.make_node("Cast", [f"{kernel}/float16"], [wide], to=TensorProto.FLOAT)]
    else:
        integers, scale = round_weights(weights, output_axis(node))
        constants = {f"{kernel}/int8": integers, f"{kernel}/scale": scale}
        nodes = [
            helper.make_node("Cast", [f"{kernel}/int8"], [f"{kernel}/cast"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{kernel}/cast", f"{kernel}/scale"], [wide]),
        ]
    layer = NodeProto()
    layer.CopyFrom(node)
    layer.input[1] = wide
    return constants, [*nodes, layer]


def store_layers(source, ways):
    """Copies the ModelProto `source`, with layers stored in the ways "dynamic", "int8-weights" and "float16"."""
    import onnx

    tensors = {tensor.name: tensor for tensor in source.graph.initializer}
    nodes, constants, quantized = [], {}, set()
    for node in source.graph.node:
        way = ways.get(node.name)
        if way not in NARROW:
            nodes.append(node)
            continue
        weights = onnx.numpy_helper.to_array(tensors[node.input[1]])
        if way == "dynamic":
            stored, written = multiply_in_int8(node, weights, quantized)
        else:
            stored, written = widen(node, weights, way)
        constants.update(stored)
        nodes += written
    used = list_inputs(nodes)
    stored = [onnx.numpy_helper.from_array(x, name) for name, x in constants.items()]
    kept = [tensor for tensor in source.graph.initializer if tensor.name in used]
    graph = onnx.helper.make_graph(nodes, source.graph.name, source.graph.input, source.graph.output, [*kept, *stored])
    proto = onnx.helper.make_model(graph, opset_imports=source.opset_import, ir_version=source.ir_version)
    proto.metadata_props.extend(source.metadata_props)
    return proto


def share_constants(graph):
    """Drops repeated constants (such as zero points) and unused ones."""
    first, renamed = {}, {}
    for tensor in graph.initializer:
        name, tensor.name = tensor.name, ""
        renamed[name] = first.setdefault(tensor.SerializeToString(), name)
        tensor.name = name
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    used = list_inputs(graph.node) | {x.name for x in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def drop_zero_points(graph):
    """Drops the zero points of int32 biases, since they are 0.

    The others stay: onnxruntime fuses a Gemm only if its kernel has zero points.
    """
    import onnx

    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        tensor = constants.get(node.input[2]) if node.op_type == "DequantizeLinear" and len(node.input) > 2 else None
        if tensor is not None and tensor.data_type == onnx.TensorProto.INT32:
            del node.input[2]


class OnnxQuantizer:
    """Writes the file of a job with its layers stored in given ways."""

    def __init__(self, job):
        import onnx

        self.source, self.kind = job["source"], job["kind"]
        self.proto = onnx.load(self.source)
        graph = self.proto.graph
        self.ladders = list_ladders(graph, self.kind)
        counts = {tensor.name: int(np.prod(tensor.dims)) for tensor in graph.initializer}
        self.sizes = {node.name: counts[node.input[1]] for node in graph.node if node.name in self.ladders}
        convolutions = {node.name for node in graph.node if node.op_type == "Conv"}
        self.convolutions = {x for x, ladder in self.ladders.items() if x in convolutions and ladder[0] == "int8"}
        self.goal, self.ranges = Goal.read(job["goal"]), None

    def write(self, ways, output):
        """Writes `output`, the source with the layers in `ways`, {name: way}."""
        import onnx

        proto = store_layers(self.proto, ways)
        nodes = [name for name, way in ways.items() if way == "int8"]
        if nodes:
            proto = self.quantize_static(proto, nodes)
        share_constants(proto.graph)
        onnx.save_model(proto, output)

    def quantize_static(self, proto, nodes):
        """`proto` with the layers `nodes` in int8, by the ranges of activations in the float file, measured once."""
        from onnxruntime import quantization as q

        if self.ranges is None:
            calibrator = q.create_calibrator(Path(self.source), list(LAYERS), f"{self.source}.calibrated")
            batches = iter(self.goal.split_inputs())
            calibrator.collect_data(SimpleNamespace(get_next=lambda: next(batches, None)))
            self.ranges = calibrator.compute_data()
        quantizer = q.QDQQuantizer(
            proto,
            per_channel=True,
            reduce_range=False,
            weight_qType=q.QuantType.QInt8,
            activation_qType=q.QuantType.QUInt8,
            tensors_range=self.ranges,
            nodes_to_quantize=nodes,
            nodes_to_exclude=[],
            op_types_to_quantize=list(LAYERS),
            extra_options={"OpTypesToExcludeOutputQuantization": list(PRODUCTS)},
        )
        proto = quantizer.quantize_model()
        quantizer.model.topological_sort()
        del proto.graph.value_info[:]  # shapes that can be inferred
        drop_zero_points(proto.graph)
        return proto


def main(job):
    """Keys of the job: source, output (files), kind ("dynamic" or "int8"); also those of `proof.mixture`."""
    logging.disable(logging.WARNING)
    return quantize_to_goal(job, OnnxQuantizer(job))


def quantize_layers(source, output, order):
    """Writes `output`: the file `source` with the weights of its layers in int8, as far as the order's goal allows."""
    job = {"source": str(source), "output": str(output), "kind": order.quantize}
    return run_quantizer(__file__, job, order)

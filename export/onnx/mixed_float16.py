"""Graphs that compute in float16, for runtimes that can: WebGPU with shader-f16, GPUs.

Weights and activations are in float16, inputs and outputs in float32. In float32 stay the operators that sum over many
values, norms and softmax among them, and those whose values come near the largest number of float16, 65504. The
processor's onnxruntime widens float16 where it has no operator for it, so an overflow would not show there: how large
values become is measured on images beforehand.
"""

import copy
import tempfile
from pathlib import Path

import numpy as np

from keras_vit.export.onnx.graph import Graph, Node, Value

SUMMING = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "ReduceMean", "ReduceSum", "Softmax")
MOVING = ("Concat", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
LARGEST = float(np.finfo("float16").max) / 2  # other images may have twice the values of those that were measured


def measure_ranges(graph, inputs, images, save):
    """{name: the largest absolute value} of every float32 tensor that `graph` computes from the images.

    Args:
        images: inputs by name, arrays (n, ...).
        save: a function that writes a graph with these inputs and outputs to a path.
    """
    import onnxruntime

    names = [name for name, dtype in graph.dtypes.items() if dtype == "float32"]
    made = {name for node in graph.nodes for name in node.outputs}
    names = [name for name in names if name in made]
    probes = [Value(f"{name}/largest", (), "float32") for name in names]
    measuring = copy.copy(graph)
    measuring.constants = dict(graph.constants)
    measuring.nodes = list(graph.nodes)
    for name, probe in zip(names, probes, strict=True):
        measuring.nodes += [
            Node("Abs", [name], [f"{name}/absolute"]),
            Node("ReduceMax", [f"{name}/absolute"], [probe.name], {"keepdims": 0}),
        ]
    size = 1 if graph.is_batch(inputs[0].shape[0]) else inputs[0].shape[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measuring.onnx"
        save(measuring, inputs, probes, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        count = len(images[inputs[0].name])
        found = [
            session.run(None, {x.name: images[x.name][at : at + size] for x in inputs})
            for at in range(0, count - size + 1, size)
        ]
    return dict(zip(names, np.max(found, axis=0).tolist(), strict=True))


def compute_in_float16(graph: Graph, inputs: list[Value], outputs: list[Value], ranges: dict[str, float]) -> None:
    """Changes `graph` in place; its inputs and outputs keep their names and types.

    Args:
        ranges: from `measure_ranges`.
    """
    ranges = ranges | {name: largest(x) for name, x in graph.constants.items() if x.dtype == "float32"}
    narrowing = Narrowing(graph, inputs)
    for node in graph.nodes:
        narrowing.run(node, ranges)
    graph.nodes = narrowing.nodes
    for x in outputs:
        if narrowing.stored.get(x.name) == "float16":
            narrow = graph.rename(x, f"{x.name}/float16")
            graph.nodes.append(Node("Cast", [narrow.name], [x.name], {"to": "float32"}))
    used = {name for node in graph.nodes for name in node.inputs}
    graph.constants = {name: x for name, x in graph.constants.items() if name in used}


def largest(array):
    return float(np.abs(array).max(initial=0))


class Narrowing:
    """The nodes written so far, and in which of both types each float tensor is stored."""

    def __init__(self, graph, inputs):
        self.graph = graph
        self.nodes = []
        self.stored = {x.name: x.dtype for x in inputs if x.dtype == "float32"}
        self.casts = {}

    def run(self, node, ranges):
        dtype = self.choose_type(node, ranges)
        node.inputs = [self.convert(name, dtype) for name in node.inputs]
        self.nodes.append(node)
        self.stored.update((name, dtype) for name in node.outputs if self.graph.dtypes.get(name) == "float32")

    def choose_type(self, node, ranges):
        """The type in which a node computes."""
        sources = [self.stored[name] for name in node.inputs if name in self.stored]
        if node.op in SUMMING or node.op == "Cast":
            return "float32"
        if any(not ranges.get(name, 0) <= LARGEST for name in (*node.inputs, *node.outputs)):
            return "float32"
        return "float32" if node.op in MOVING and set(sources) == {"float32"} else "float16"

    def convert(self, name, dtype):
        """The name of the same float tensor in this type; of other tensors their own."""
        constant = self.graph.constants.get(name)
        is_float = name in self.stored or (constant is not None and constant.dtype == "float32")
        if not is_float or self.stored.get(name, "float32") == dtype:
            return name
        if (name, dtype) not in self.casts:
            narrow = self.casts[name, dtype] = self.graph.unique(f"{name}/{dtype}")
            if constant is not None:
                self.graph.constants[narrow] = constant.astype(dtype)
            else:
                self.nodes.append(Node("Cast", [name], [narrow], {"to": dtype}))
        return self.casts[name, dtype]

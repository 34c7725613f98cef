"""ONNX files from elsewhere, without Keras; see `formats`.

A file may be opened if it has only standard operators, and its data in its own files.
"""

import functools
import math
from pathlib import Path

from keras_vit.export.description import from_properties
from keras_vit.export.formats import data_files, refuse

STANDARD = ("", "ai.onnx")


def load_onnx(path, names=None):
    """A function from a list of arrays to the list of outputs; the inputs' order is the file's own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    beside = [x.name for x in Path(path).parent.iterdir() if x.name.startswith(f"{Path(path).stem}-")]
    if any(name.endswith(".onnx.data") for name in beside):
        # Weights in a second file are large; prepacking would copy them in memory.
        options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    own = [x.name for x in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(own, inputs, strict=True)))


load = load_onnx


@functools.cache
def standard_operators():
    import onnx

    return {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain in STANDARD}


def foreign_nodes(graph):
    """The nodes with operators that ONNX does not have, in a graph without its inner graphs."""
    return [n for n in graph.node if n.domain not in STANDARD or n.op_type not in standard_operators()]


def graphs_in(graph):
    """A graph and all graphs in the attributes of its nodes, at any depth."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs


def tensors_in(graph):
    """Every constant of a graph, except those of its inner graphs."""
    sparse = list(graph.sparse_initializer)
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
            sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def check(path):
    import onnx

    proto = onnx.load(path, load_external_data=False)
    if not proto.graph.node:
        raise ValueError("it has no operators")
    if proto.functions or proto.training_info:
        refuse(path, "functions or training steps, which an export does not write")
    for graph in graphs_in(proto.graph):
        for node in foreign_nodes(graph):
            refuse(path, f"the operator {node.domain}:{node.op_type}, which ONNX does not have")
        for tensor in tensors_in(graph):
            for entry in tensor.external_data:
                if entry.key == "location" and not data_files(path).fullmatch(entry.value):
                    refuse(path, f"data in {entry.value}, which is not a file of the bundle")


def read_description(path):
    import onnx

    properties = {x.key: x.value for x in onnx.load(path, load_external_data=False).metadata_props}
    return from_properties(properties) if properties.get("inputs", "").startswith("[{") else None


def weight_bytes(path: Path) -> int:
    """Bytes of the constants that the file holds or refers to."""
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype

    tensors = onnx.load(path, load_external_data=False).graph.initializer
    return sum(math.prod(x.dims) * tensor_dtype_to_np_dtype(x.data_type).itemsize for x in tensors)

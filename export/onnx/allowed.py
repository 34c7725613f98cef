"""Which ONNX files may be opened: those with standard operators alone, and data in their own files; see `formats`."""

import onnx

from keras_vit.export.formats import data_files
from keras_vit.export.proof.allowed import refuse

STANDARD = ("", "ai.onnx")


def check(path):
    proto = onnx.load(path, load_external_data=False)
    if not proto.graph.node:
        refuse(path, "no operators")
    if proto.functions or proto.training_info:
        refuse(path, "functions or training steps, which an export does not write")
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain in STANDARD}
    for graph in graphs_in(proto.graph):
        for node in graph.node:
            if node.domain not in STANDARD or node.op_type not in known:
                refuse(path, f"the operator {node.domain}:{node.op_type}, which ONNX does not have")
        for tensor in tensors_in(graph):
            check_data(path, tensor)


def graphs_in(graph):
    """A graph and those in the attributes of its nodes, however deep."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs


def tensors_in(graph):
    """Every constant of a graph but those of graphs in it."""
    sparse = list(graph.sparse_initializer)
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
            sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def check_data(path, tensor):
    """Data outside the file must be in a file beside it that the manifest can list."""
    for entry in tensor.external_data:
        if entry.key == "location" and not data_files(path.stem).fullmatch(entry.value):
            refuse(path, f"data in {entry.value}, which is not a file of the bundle")

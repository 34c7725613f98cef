"""ONNX files: the graph as protocol buffers; weights of more than INLINE_LIMIT bytes in a file beside it."""

import hashlib
import tempfile
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.description import as_properties
from keras_vit.export.formats import Order
from keras_vit.export.onnx.fallback import convert_with_tf2onnx
from keras_vit.export.onnx.graph import Node
from keras_vit.export.onnx.lowering import Unsupported, lower
from keras_vit.export.onnx.passes import simplify
from keras_vit.export.onnx.quantizing import quantize_layers
from keras_vit.export.staging import seal

__all__ = ["write"]

OPSET = 20
IR_VERSION = 10
INLINE_LIMIT = 1_800_000_000  # bytes; a protocol buffer holds 2 GiB
SMALL = 1024  # bytes; constants up to this stay in the file, where shape inference reads them
FEW = 2048  # elements; in float16 smaller constants gain nothing
ALIGNMENT = 4096  # bytes; lets a runtime map each tensor into memory


def make_node(node):
    from onnx import helper

    attributes = dict(node.attributes)
    if "to" in attributes:
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
    return helper.make_node(node.op, node.inputs, node.outputs, name=node.outputs[0], **attributes)


def make_value(graph, value):
    from onnx import helper

    names = ("batch", "height", "width")
    shape = [
        (names[i] if i < 3 else f"axis_{i}") if graph.is_batch(length) else length
        for i, length in enumerate(value.shape)
    ]
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(value.name, dtype, shape)


def refer_to_data(location, name, shape, dtype, offset, length):
    """A TensorProto with its data in another file. Its path is a bare file name: readers refuse any other."""
    import onnx

    tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(dtype))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write_beside(constants, path):
    """Streams the constants to one file beside `path`, freeing each; returns TensorProtos that refer to it.

    The file's name contains a digest, so that replacing the .onnx file alone switches from one whole model to another.
    """
    from onnx import numpy_helper

    tensors, places, digest = [], [], hashlib.sha256()
    unnamed = path.with_name("weights")
    with open(unnamed, "wb") as file:
        for name in list(constants):
            array = np.asarray(constants.pop(name), order="C")
            if array.nbytes <= SMALL:
                tensors.append(numpy_helper.from_array(array, name))
                continue
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            places.append((name, array.shape, array.dtype, file.tell(), array.nbytes))
            data = array.reshape(-1).data.cast("B")
            digest.update(data)
            file.write(data)
    location = f"{path.stem}-{digest.hexdigest()[:12]}.onnx.data"
    unnamed.rename(path.with_name(location))
    return tensors + [refer_to_data(location, *place) for place in places]


def make_model(graph, inputs, outputs, path):
    """The graph as an onnx.ModelProto with its constants, or with references to their file."""
    from onnx import helper, numpy_helper

    constants = graph.constants
    if sum(array.nbytes for array in constants.values()) > INLINE_LIMIT:
        initializers = write_beside(constants, path)
    else:
        initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    proto = helper.make_graph(
        [make_node(node) for node in graph.nodes],
        "model",
        [make_value(graph, value) for value in inputs],
        [make_value(graph, value) for value in outputs],
        initializers,
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(proto, opset_imports=opset, ir_version=IR_VERSION, producer_name="keras_vit")


def store_in_float16(constants):
    """Stores the large float32 arrays of {name: array} in float16, in place; returns the nodes that widen them."""
    limit, nodes = np.finfo("float16").max, []
    for name in [name for name, x in constants.items() if x.dtype == "float32" and x.size >= FEW]:
        constants[f"{name}_float16"] = np.clip(constants.pop(name), -limit, limit).astype("float16")
        nodes.append(Node("Cast", [f"{name}_float16"], [name], {"to": "float32"}))
    return nodes


def narrow_weights(proto):
    """Stores the large weights of tf2onnx's onnx.ModelProto in float16."""
    from onnx import numpy_helper

    constants = {x.name: numpy_helper.to_array(x) for x in proto.graph.initializer}
    nodes = [*map(make_node, store_in_float16(constants)), *proto.graph.node]
    del proto.graph.initializer[:], proto.graph.node[:]
    proto.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
    proto.graph.node.extend(nodes)


def append_property(path, key, value):
    """Adds an entry to the metadata of an ONNX file without reading it.

    Protocol buffers may be joined end to end: a reader takes the elements of a repeated field from all of them.
    """
    import onnx

    proto = onnx.ModelProto()
    onnx.helper.set_model_props(proto, {key: value})
    with open(path, "ab") as file:
        file.write(proto.SerializeToString())


def write_float(order, path):
    """Writes the model with weights in float32 or float16, and its description as metadata."""
    import onnx

    try:
        graph, inputs, outputs = lower(order.model, order.shapes, order.endpoints)
    except Unsupported as reason:
        if order.endpoints:
            raise ExportError(
                f"ONNX cannot have the endpoint {order.endpoints[0]!r} of {order.model.name!r}: {reason}."
            ) from reason
        proto = convert_with_tf2onnx(order, path.parent, reason)
        if order.quantize == "float16":
            narrow_weights(proto)
    else:
        simplify(graph, outputs)
        if order.quantize == "float16":
            graph.nodes[:0] = store_in_float16(graph.constants)
        proto = make_model(graph, inputs, outputs, path)
    onnx.helper.set_model_props(proto, as_properties(order.description))
    onnx.save_model(proto, path)


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path`; weights over INLINE_LIMIT go to a file beside it, named by their content."""
    import onnx

    finer = {}
    if order.quantize in ("dynamic", "int8"):
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            source = Path(folder) / path.name
            write_float(order, source)
            finer = quantize_layers(source, path, order)
    else:
        write_float(order, path)
    seal(path, append_property)
    onnx.checker.check_model(str(path), full_check=True)
    return finer

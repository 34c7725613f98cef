"""ONNX for models that cannot be traced operation by operation: tf2onnx, then onnxscript's optimizer.

This file is also the script that runs tf2onnx, in a separate process.
"""

import tempfile
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.formats import Order
from keras_vit.export.processes import literal, run_script
from keras_vit.extras import require

OPSET = 18  # the newest that tf2onnx writes

# Operations of TensorFlow that tf2onnx copies unchanged, so that files do not load. Exact GELU has Erfc, CELU Expm1.
# Each function returns the last operator and its inputs; `one` is a constant.
MISSING = {
    "Erfc": lambda ctx, x, one: ("Sub", [one, ctx.make_node("Erf", [x]).output[0]]),
    "Expm1": lambda ctx, x, one: ("Sub", [ctx.make_node("Exp", [x]).output[0], one]),
    "Log1p": lambda ctx, x, one: ("Log", [ctx.make_node("Add", [x, one]).output[0]]),
}


def handler(rewrite):
    """Makes a class for tf2onnx that replaces a node by the operator of `rewrite`."""

    class Handler:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            kind, shape = ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
            one = ctx.make_const(f"{node.name}_one", np.array(1, "float32")).output[0]
            op, inputs = rewrite(ctx, node.input[0], one)
            ctx.remove_node(node.name)
            ctx.make_node(op, inputs, name=node.name, outputs=node.output, dtypes=[kind], shapes=[shape])

    return Handler


def hold_constants(path, function):
    """Stores the function's captured tensors as constants of the file; tf2onnx makes them inputs."""
    import onnx

    held = {inner.name: x.numpy() for x, inner in function.graph.captures if x.dtype != "resource"}
    proto = onnx.load(path)
    inputs = list(proto.graph.input)
    del proto.graph.input[:]
    proto.graph.input.extend(x for x in inputs if x.name not in held)
    found = [onnx.numpy_helper.from_array(held[x.name], x.name) for x in inputs if x.name in held]
    proto.graph.initializer.extend(found)
    onnx.save_model(proto, path)


def main(job):
    """Keys of the job: saved_model (folder), output (file), inputs (list of [name, shape, dtype]), opset."""
    import tensorflow as tf
    import tf2onnx
    from tf2onnx.handler import tf_op

    for name, rewrite in MISSING.items():
        tf_op(name)(handler(rewrite))
    with literal(job["saved_model"]) as folder:
        loaded = tf.saved_model.load(folder)
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, shape, dtype in job["inputs"]]
    function = tf.function(lambda *inputs: loaded.serve(*inputs))
    tf2onnx.convert.from_function(function, signature, opset=job["opset"], output_path=job["output"])
    hold_constants(job["output"], function.get_concrete_function(*signature))


def convert_with_tf2onnx(order, folder, reason):
    """The order's model as an onnx.ModelProto of standard operators; errors repeat why it could not be traced."""
    import onnx
    from onnxscript import optimizer

    from keras_vit.export import saved_model
    from keras_vit.export.onnx.reading import foreign_nodes

    require("tf2onnx", "keras_vit.export")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        output = Path(work) / "model.onnx"
        inputs = [[x.name, shape, x.dtype] for shape, x in zip(order.shapes, order.model.inputs, strict=True)]
        job = {"saved_model": str(Path(work) / "model"), "output": str(output), "inputs": inputs, "opset": OPSET}
        try:
            saved_model.write(Order(model=order.model, shapes=order.shapes), Path(work) / "model")
            run_script(__file__, job)
        except ExportError as error:
            raise ExportError(f"{reason}; and tf2onnx cannot convert it either: {error}") from error
        proto = optimizer.optimize(onnx.load(output))
    foreign = sorted({node.op_type for node in foreign_nodes(proto.graph)})
    if foreign:
        raise ExportError(f"ONNX has no operator for: {', '.join(foreign)} ({reason}). Export a SavedModel instead.")
    return proto

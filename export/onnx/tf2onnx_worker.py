"""Converts one SavedModel to ONNX with tf2onnx; run by `fallback` as a script, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file), inputs (list of [name, shape, dtype]), opset.
"""

import json
import sys

import numpy as np

from keras_vit.export.proof.runtimes import literal


# Operations of TensorFlow that tf2onnx passes through as they are, into files that do not load. Exact GELU has Erfc,
# CELU Expm1. Each function returns the last operator and its inputs; `one` is a constant.
def erfc(ctx, x, one):
    return "Sub", [one, ctx.make_node("Erf", [x]).output[0]]


def expm1(ctx, x, one):
    return "Sub", [ctx.make_node("Exp", [x]).output[0], one]


def log1p(ctx, x, one):
    return "Log", [ctx.make_node("Add", [x, one]).output[0]]


MISSING = {"Erfc": erfc, "Expm1": expm1, "Log1p": log1p}


def register_missing():
    from tf2onnx.handler import tf_op

    for name, rewrite in MISSING.items():
        tf_op(name)(handler(rewrite))


def handler(rewrite):
    """A class as tf2onnx wants it, which puts the operator of `rewrite` in the place of a node."""

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
    """Puts tensors that the function captured, which tf2onnx makes inputs, into the file as constants."""
    import onnx

    held = {inner.name: x.numpy() for x, inner in function.graph.captures if x.dtype != "resource"}
    proto = onnx.load(path)
    inputs = list(proto.graph.input)
    del proto.graph.input[:]
    proto.graph.input.extend(x for x in inputs if x.name not in held)
    found = [onnx.numpy_helper.from_array(held[x.name], x.name) for x in inputs if x.name in held]
    proto.graph.initializer.extend(found)
    onnx.save_model(proto, path)


def main():
    job = json.load(sys.stdin)
    import tensorflow as tf
    import tf2onnx

    register_missing()
    with literal(job["saved_model"]) as folder:
        loaded = tf.saved_model.load(folder)
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, shape, dtype in job["inputs"]]
    function = tf.function(lambda *inputs: loaded.serve(*inputs))
    tf2onnx.convert.from_function(function, signature, opset=job["opset"], output_path=job["output"])
    hold_constants(job["output"], function.get_concrete_function(*signature))


if __name__ == "__main__":
    main()

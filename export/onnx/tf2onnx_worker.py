"""Converts one SavedModel to ONNX with tf2onnx; run by `onnx_fallback` as a script, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file), inputs (list of [name, shape, dtype]), opset.
"""

import json
import sys

import numpy as np

from keras_vit.export.proof.runtimes import literal


def register_erfc():
    """TensorFlow writes exact GELU with Erfc, which tf2onnx passes through as it is, into files that do not load."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            dtype, shape = ctx.get_dtype(node.output[0]), ctx.get_shape(node.output[0])
            one = ctx.make_const(node.name + "_one", np.array(1, "float32"))
            erf = ctx.make_node("Erf", node.input, dtypes=[dtype], shapes=[shape])
            ctx.remove_node(node.name)
            ctx.make_node(
                "Sub",
                [one.output[0], erf.output[0]],
                name=node.name,
                outputs=node.output,
                dtypes=[dtype],
                shapes=[shape],
            )


def hold_constants(path, function):
    """Puts tensors that the function captured into the file, of which tf2onnx makes inputs."""
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

    register_erfc()
    with literal(job["saved_model"]) as folder:
        loaded = tf.saved_model.load(folder)
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, shape, dtype in job["inputs"]]
    function = tf.function(lambda *inputs: loaded.serve(*inputs))
    tf2onnx.convert.from_function(function, signature, opset=job["opset"], output_path=job["output"])
    hold_constants(job["output"], function.get_concrete_function(*signature))


if __name__ == "__main__":
    main()

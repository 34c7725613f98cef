"""Converts one SavedModel to TFLite; run by `tflite` as a script in its own process, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file), quantize (None, "float16", "dynamic" or "int8"), calibration (a
.npz of inputs by name, for "int8"), batch_size (of the file, or 1).
"""

import contextlib
import json
import os
import re
import sys

import flatbuffers
import numpy as np

from keras_vit.export.proof.runtimes import literal

ALIGNMENT = 16  # bytes; TFLite's schema asks it of weights


def convert_saved_model(job):
    """The SavedModel as TFLite's bytes, with built-in operators only."""
    import tensorflow as tf

    if not hasattr(tf, "lite"):
        raise RuntimeError(
            f"TensorFlow {tf.__version__} has no tf.lite, which writes TFLite files. Install one that has it, such as "
            "2.21, or export to .onnx or a SavedModel"
        )
    converter = tf.lite.TFLiteConverter.from_saved_model(job["saved_model"], signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if job["quantize"] == "float16":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def calibrate(quantizer, batches):
    """Smallest and largest value of every tensor over all batches; the quantizer itself would average them."""
    found = {}
    for batch in batches:
        for name, seen in quantizer.calibrate({"serving_default": [batch]}).items():
            known = found.setdefault(name, dict(seen))
            known["min"] = np.minimum(known["min"], seen["min"])
            known["max"] = np.maximum(known["max"], seen["max"])
    return found


def read_inputs(path, batch_size):
    arrays = dict(np.load(path, allow_pickle=False))
    starts = range(0, len(next(iter(arrays.values()))), batch_size)
    return [{name: array[i : i + batch_size] for name, array in arrays.items()} for i in starts]


def last_dense(path):
    """The name of what the last dense layer of a TFLite file computes; None where it has none."""
    from ai_edge_litert import schema_py_generated as schema

    with open(path, "rb") as file:
        model = schema.ModelT.InitFromPackedBuf(file.read(), 0)
    codes = [code.builtinCode for code in model.operatorCodes]
    graph = model.subgraphs[0]
    dense = [op for op in graph.operators if codes[op.opcodeIndex] == schema.BuiltinOperator.FULLY_CONNECTED]
    return graph.tensors[dense[-1].outputs[0]].name.decode() if dense else None


def quantizer_modules():
    """(qtyping, quantizer) of LiteRT's quantizer, which was called ai-edge-quantizer up to 0.10."""
    try:
        from litert_quantizer import qtyping, quantizer
    except ModuleNotFoundError:
        from ai_edge_quantizer import qtyping, quantizer
    return qtyping, quantizer


def quantize_tflite(job):
    """Dense layers and convolutions in int8, a scale per channel; norms, softmax, GELU and sums stay in float.

    Calibrated ranges serve dense layers but the last, whose logits lie close to each other. It and the convolutions,
    which gain no speed by them (benchmarks/export_speed.py), take each input's own. Depthwise kernels, slower in int8,
    are widened.
    """
    qtyping, quantizer = quantizer_modules()
    quantizing = quantizer.Quantizer(job["output"])
    operations = qtyping.TFLOperationName
    quantizing.add_weight_only_config(".*", operations.DEPTHWISE_CONV_2D, num_bits=8)
    quantizing.add_dynamic_config(".*", operations.CONV_2D, num_bits=8)
    last = last_dense(job["output"])
    if job["quantize"] == "dynamic" or last is None:
        quantizing.add_dynamic_config(".*", operations.FULLY_CONNECTED, num_bits=8)
        result = quantizing.quantize()
    else:
        quantizing.add_static_config(".*", operations.FULLY_CONNECTED, activation_num_bits=8, weight_num_bits=8)
        quantizing.add_dynamic_config(re.escape(last), operations.FULLY_CONNECTED, num_bits=8)
        result = quantizing.quantize(calibrate(quantizing, read_inputs(job["calibration"], job["batch_size"])))
    os.remove(job["output"])
    result.export_model(job["output"])


class Sharing(flatbuffers.Builder):
    """Writes equal vectors once: the zero points of weights are a vector of zeros each."""

    def __init__(self, size):
        super().__init__(size)
        self.written = {}

    def CreateNumpyVector(self, x):
        key = (x.dtype.str, x.tobytes())
        if key not in self.written:
            self.StartVector(x.itemsize, x.size, ALIGNMENT)
            self.head -= x.nbytes
            self.Bytes[self.head : self.head + x.nbytes] = key[1]
            self.vectorNumElems = x.size
            self.written[key] = self.EndVector()
        return self.written[key]


def share_equal_vectors(path):
    """The file again, equal vectors shared."""
    from ai_edge_litert import schema_py_generated as schema

    with open(path, "rb") as file:
        data = file.read()
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    for buffer in model.buffers:
        if buffer.offset:  # the quantizer puts the weights of larger models behind the flatbuffer
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    builder = Sharing(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    os.remove(path)  # the quantizer's file may be executed
    with open(path, "wb") as file:
        file.write(builder.Output())


def main():
    job = json.load(sys.stdin)
    with open(job["output"], "wb") as file, literal(job["saved_model"]) as folder:
        file.write(convert_saved_model({**job, "saved_model": folder}))
    if job["quantize"] in ("dynamic", "int8"):
        with contextlib.redirect_stdout(sys.stderr):
            quantize_tflite(job)
        share_equal_vectors(job["output"])


if __name__ == "__main__":
    main()

"""Converts one SavedModel to TFLite; run by `tflite` as a script in its own process, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file), quantize (None, "float16", "dynamic" or "int8"); for the last two
also goal and reading (see `proof.mixture`).
"""

import json
import os
import runpy
import sys
from pathlib import Path

import flatbuffers
import numpy as np

from keras_vit.export.proof.mixture import Goal, quantize_to_goal
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
    quantizes = job["quantize"] in ("dynamic", "int8")
    converted = f"{job['saved_model']}.tflite" if quantizes else job["output"]
    with open(converted, "wb") as file, literal(job["saved_model"]) as folder:
        file.write(convert_saved_model({**job, "saved_model": folder}))
    if quantizes:
        # By its path: importing the format's package would import Keras.
        quantizer_class = runpy.run_path(str(Path(__file__).with_name("quantize.py")))["TFLiteQuantizer"]
        quantizer = quantizer_class(converted, job["quantize"], Goal.read(job["goal"]))
        quantize_to_goal(job, quantizer)
        share_equal_vectors(job["output"])


if __name__ == "__main__":
    main()

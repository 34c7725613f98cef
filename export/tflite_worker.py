"""Converts one SavedModel to TFLite; run by `tflite` as a script in its own process, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file), quantize (None, "float16", "dynamic" or "int8"), calibration (a
.npz of inputs by name, for "int8").
"""

import contextlib
import json
import os
import sys

import numpy as np


def converted(job):
    """The SavedModel as TFLite's bytes, with built-in operators only."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(job["saved_model"], signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if job["quantize"] in ("float16", "dynamic"):
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if job["quantize"] == "float16":
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def ranges(quantizer, pictures):
    """Smallest and largest value of every tensor over all pictures; the quantizer itself would average them."""
    found = {}
    for picture in pictures:
        for name, seen in quantizer.calibrate({"serving_default": [picture]}).items():
            known = found.setdefault(name, dict(seen))
            known["min"] = np.minimum(known["min"], seen["min"])
            known["max"] = np.maximum(known["max"], seen["max"])
    return found


def in_int8(job):
    """Dense layers and convolutions in int8 with calibrated ranges; norms, softmax, GELU and sums stay in float."""
    from ai_edge_quantizer import qtyping, quantizer

    quantizing = quantizer.Quantizer(job["output"])
    operations = qtyping.TFLOperationName
    for operation in (operations.FULLY_CONNECTED, operations.CONV_2D, operations.DEPTHWISE_CONV_2D):
        quantizing.add_static_config(".*", operation, activation_num_bits=8, weight_num_bits=8)
    arrays = np.load(job["calibration"], allow_pickle=False)
    count = len(arrays[arrays.files[0]])
    pictures = [{name: arrays[name][i : i + 1] for name in arrays.files} for i in range(count)]
    result = quantizing.quantize(ranges(quantizing, pictures))
    os.remove(job["output"])
    result.export_model(job["output"])


def main():
    job = json.load(sys.stdin)
    with open(job["output"], "wb") as file:
        file.write(converted(job))
    if job["quantize"] == "int8":
        with contextlib.redirect_stdout(sys.stderr):
            in_int8(job)


if __name__ == "__main__":
    main()

"""Converts one SavedModel to TFLite; run by `tflite` as a script in its own process, with a job as JSON on stdin.

Keys of the job: saved_model (folder), output (file).
"""

import json
import sys


def main():
    job = json.load(sys.stdin)
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(job["saved_model"], signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    with open(job["output"], "wb") as file:
        file.write(converter.convert())


if __name__ == "__main__":
    main()

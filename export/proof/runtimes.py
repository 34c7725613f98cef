"""Each artefact in its own runtime; also a script that runs one, which `verification` starts in a process of its own.

The script reads a job as JSON on stdin, with the keys format, path, names (of the inputs), batches (their sizes in
turn), inputs and outputs (.npz files).
"""

import contextlib
import json
import os
import re
import sys
import tempfile

import numpy as np


def load_onnx(path, names=None):
    """A function from a list of arrays to the list of outputs, run by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if has_data_beside(path):
        # Prepacked weights are a second copy.
        options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]

    def run(inputs):
        return session.run(None, dict(zip(names, inputs, strict=True)))

    return run


def has_data_beside(path):
    stem = os.path.splitext(os.path.basename(path))[0]
    return any(x.startswith(f"{stem}-") and x.endswith(".onnx.data") for x in os.listdir(os.path.dirname(path) or "."))


def load_tflite(path, names=None):
    """A function from a list of arrays to the list of outputs, run by LiteRT on every core but at most 8.

    Args:
        names: of the inputs, in the order of the arrays; may be left out for a single input.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=min(os.cpu_count() or 1, 8))
    runner = interpreter.get_signature_runner()
    names = names or list(runner.get_input_details())

    def run(inputs):
        outputs = runner(**dict(zip(names, inputs, strict=True)))
        return [outputs[name] for name in sorted(outputs, key=number_in)]

    return run


def number_in(name):
    """Outputs are called output_0, output_1, ..."""
    return int(re.sub(r"\D", "", name) or 0)


@contextlib.contextmanager
def literal(path):
    """The path, or a link to it where TensorFlow would take a character in it for a pattern's."""
    if not re.search(r"[*?\[]", str(path)):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "model")
        os.symlink(os.path.abspath(path), link)
        yield link


def load_saved_model(path, names=None):
    """A function from a list of arrays to the list of outputs, run by TensorFlow."""
    import tensorflow as tf

    with literal(path) as place:
        loaded = tf.saved_model.load(place)

    def run(inputs):
        return [np.asarray(x) for x in tf.nest.flatten(loaded.serve(*inputs))]

    return run


LOADERS = {"onnx": load_onnx, "tflite": load_tflite, "saved_model": load_saved_model}


def in_batches(run, inputs, sizes):
    """Runs `run` over all pictures in batches of these sizes in turn; a list of whole outputs.

    `run` takes and gives a list of arrays.
    """
    count, start, turn, results = len(inputs[0]), 0, 0, []
    while start < count:
        size = sizes[turn % len(sizes)]
        results.append(run([x[start : start + size] for x in inputs]))
        start, turn = start + size, turn + 1
    return [np.concatenate(column) for column in zip(*results, strict=True)]


def be_ended_first():
    """Where memory runs out, Linux ends this process, not the one that waits for it."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def main():
    be_ended_first()
    job = json.load(sys.stdin)
    with np.load(job["inputs"], allow_pickle=False) as arrays:
        inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    outputs = in_batches(LOADERS[job["format"]](job["path"], job["names"]), inputs, job["batches"])
    np.savez(job["outputs"], *outputs, allow_pickle=False)


if __name__ == "__main__":
    main()

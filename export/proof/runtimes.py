"""Runs an artefact on examples; also the script that does so for `verification`, in a separate process.

The script reads a job as JSON on stdin, with the keys reading (a format's reading.py), path, names (of the inputs),
batches (their sizes in turn), inputs and outputs (.npz files).
"""

import contextlib
import ctypes
import json
import os
import re
import runpy
import signal
import sys
import tempfile

import numpy as np


@contextlib.contextmanager
def literal(path):
    """The path, or a link to it if TensorFlow would read characters in it as a pattern."""
    if not re.search(r"[*?\[]", str(path)):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "model")
        os.symlink(os.path.abspath(path), link)
        yield link


def run_in_batches(run, inputs, sizes):
    """Runs `run`, a function from a list of arrays to another, on all images, in batches of these sizes in turn."""
    count, start, turn, results = len(inputs[0]), 0, 0, []
    while start < count:
        size = sizes[turn % len(sizes)]
        results.append(run([x[start : start + size] for x in inputs]))
        start, turn = start + size, turn + 1
    return [np.concatenate(column) for column in zip(*results, strict=True)]


def prefer_to_be_killed():
    """Makes Linux kill this process when its parent is gone, and before its parent when memory runs out."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, prctl(2)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def main():
    prefer_to_be_killed()
    job = json.load(sys.stdin)
    # By its path: importing the format's package would import Keras.
    load = runpy.run_path(job["reading"])["load"]
    with np.load(job["inputs"], allow_pickle=False) as arrays:
        inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    outputs = run_in_batches(load(job["path"], job["names"]), inputs, job["batches"])
    np.savez(job["outputs"], *outputs, allow_pickle=False)


if __name__ == "__main__":
    main()

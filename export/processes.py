"""Runs converters and artefacts in separate processes: their memory is freed, and their crashes become errors.

A converter's module is also its script: a function passes the job to it by `run_script(__file__, job)`, and the
script's `main` does the job, read as JSON on stdin. This file is the script that runs an artefact on examples.
"""

import contextlib
import ctypes
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}


def run_script(script, job, explain=None, time_limit=None, tell=None):
    """Runs a script, a path that is absolute or below this folder, with `job` as JSON on its stdin.

    Args:
        explain: turns the output of a failed script into one sentence; by default its last line.
        time_limit: seconds after which the script is killed; None for no limit.
        tell: takes the lines of text that the script writes to stdout as JSON strings; or None.

    Returns:
        The last other JSON value that the script writes to stdout; None if there is none.
    """
    command = [sys.executable, "-P", str(Path(__file__).parent / script)]
    explain, late = explain or last_line, threading.Event()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True, "errors": "replace"}
        with subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, **pipes) as process:
            timer = threading.Timer(time_limit or 0, lambda: (late.set(), process.kill()))
            if time_limit is not None:
                timer.start()
            try:
                result = exchange(process, json.dumps(job), tell or (lambda line: None))
                process.wait()
            except BaseException:
                process.kill()
                raise
            finally:
                timer.cancel()
        if late.is_set():
            raise ExportError(explain(f"it takes longer than {time_limit} seconds"))
        if process.returncode:
            log.seek(0)
            raise ExportError(explain(log.read()))
    return result


def exchange(process, job, tell):
    """Writes the job to the process and reads its output until it closes stdout; see `run_script`."""
    with contextlib.suppress(BrokenPipeError), process.stdin:  # the process may fail before it reads
        process.stdin.write(job)
    result = None
    for line in process.stdout:
        with contextlib.suppress(ValueError):  # libraries may print, too
            value = json.loads(line)
            if isinstance(value, str):
                tell(value)
            else:
                result = value
    return result


def last_line(log):
    """The last line that is not blank, at most 400 characters of it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "its process was killed, perhaps because memory ran out"


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
    """Keys of the job: reading (the file of a format's reader), path, names (of the inputs), batches (their sizes in
    turn), inputs and outputs (.npz files).
    """
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

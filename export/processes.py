"""Runs converters and artefacts in separate processes: their memory is freed, and their crashes become errors.

A converter's module is also its script: a function in it calls `run_script(__file__, job)`, and in the new process its
`main` does the job and returns the result. Both pass as JSON. This file is also the script that runs an artefact.
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

import numpy as np

from keras_vit.errors import ExportError

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}


def exchange(process, job, tell):
    """Writes the job to the process; reads its output until it closes stdout, and returns the last value."""
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


def run_script(script, job, explain=None, time_limit=None, tell=None):
    """Calls `main` of a script with `job` in a separate process, and returns what it returns.

    Args:
        explain: turns the output of a failed script into one sentence; by default its last line.
        time_limit: seconds after which the script is killed; None for no limit.
        tell: takes the lines of text that the script writes to stdout as JSON strings; or None.
    """
    command = [sys.executable, "-P", __file__]
    explain, late, pipe = explain or last_line, threading.Event(), subprocess.PIPE

    def stop():
        late.set()
        process.kill()

    with tempfile.TemporaryFile("w+", errors="replace") as log:
        with subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT}, stdin=pipe, stdout=pipe, stderr=log, text=True, errors="replace"
        ) as process:
            timer = threading.Timer(time_limit or 0, stop)
            if time_limit is not None:
                timer.start()
            try:
                result = exchange(process, json.dumps([script, job]), tell or (lambda line: None))
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


def main(job):
    """Keys of the job: reading (the file of a format's reader), path, names (of the inputs), batches (their sizes in
    turn), inputs and outputs (.npz files).
    """
    load = runpy.run_path(job["reading"])["load"]
    with np.load(job["inputs"], allow_pickle=False) as arrays:
        inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    outputs = run_in_batches(load(job["path"], job["names"]), inputs, job["batches"])
    np.savez(job["outputs"], *outputs, allow_pickle=False)


def do_job():
    """Does a job in the new process, see `run_script`."""
    prefer_to_be_killed()
    script, job = json.load(sys.stdin)
    # By its path: importing the package of a format would import Keras.
    print(json.dumps(runpy.run_path(script)["main"](job)))


if __name__ == "__main__":
    do_job()

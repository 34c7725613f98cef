"""Runs a converter in a separate process: its memory is freed, and its crashes become errors.

A converter's module is also its script: a function passes the job to it by `run_script(__file__, job)`, and the
script's `main` does the job.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from keras_vit.errors import ExportError

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def run_script(script, job, explain=None, time_limit=None, tell=None):
    """Runs a script, a path that is absolute or below this folder, with `job` as JSON on its stdin.

    Args:
        explain: turns the output of a failed script into one sentence; by default its last line.
        time_limit: seconds after which the script is killed; None for no limit.
        tell: takes the lines of text that the script writes to stdout as JSON strings; or None.

    Returns:
        The last other JSON value that the script writes to stdout; None if there is none.

    Raises:
        ExportError: if the script fails, or exceeds the time limit.
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

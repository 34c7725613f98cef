"""Running a converter in a process of its own, so that its memory is given back and its crashes are only errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.text import printable

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def run_apart(script, job, explained=None, time_limit=None):
    """Runs a script of this folder with `job` as JSON on its stdin.

    Args:
        explained: makes one sentence of what a failing script wrote; by default its last line.
        time_limit: seconds after which it is ended; None for none.

    Raises:
        ExportError: when the script fails, or takes longer than it may.
    """
    command = [sys.executable, "-P", str(Path(__file__).parent / script)]
    environment = {**os.environ, **ENVIRONMENT}
    settings = {"env": environment, "capture_output": True, "text": True, "errors": "replace", "timeout": time_limit}
    try:
        result = subprocess.run(command, input=json.dumps(job), **settings)
    except subprocess.TimeoutExpired as error:
        raise ExportError((explained or last_line)(f"it takes longer than {time_limit} seconds")) from error
    if result.returncode:
        raise ExportError((explained or last_line)(result.stderr))


def last_line(log):
    """The last line that says something, without what a terminal would obey, cut to a length that can be read."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return printable(lines[-1])[:400] if lines else "its process was ended from outside, perhaps for want of memory"

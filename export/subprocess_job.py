"""Running a converter in a process of its own, which frees its memory and turns its crashes into errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.text import printable

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def run_script(script, job, explain=None, time_limit=None):
    """Runs a script of this folder with `job` as JSON on its stdin.

    Args:
        explain: turns what a failing script wrote into one sentence; by default its last line.
        time_limit: seconds after which the script is killed; None for no limit.

    Raises:
        ExportError: if the script fails, or exceeds the time limit.
    """
    command = [sys.executable, "-P", str(Path(__file__).parent / script)]
    environment = {**os.environ, **ENVIRONMENT}
    settings = {"env": environment, "capture_output": True, "text": True, "errors": "replace", "timeout": time_limit}
    try:
        result = subprocess.run(command, input=json.dumps(job), **settings)
    except subprocess.TimeoutExpired as error:
        raise ExportError((explain or last_line)(f"it takes longer than {time_limit} seconds")) from error
    if result.returncode:
        raise ExportError((explain or last_line)(result.stderr))


def last_line(log):
    """The last line that is not blank, without control characters, at most 400 characters."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return printable(lines[-1])[:400] if lines else "its process was killed, perhaps because memory ran out"

"""Running a converter in a process of its own, so that its memory is given back and its crashes are only errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

from keras_vit.errors import ExportError

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def run_apart(script, job, explained=None):
    """Runs a script of this folder with `job` as JSON on its stdin.

    Args:
        explained: makes one sentence of what a failing script wrote; by default its last line.

    Raises:
        ExportError: when the script fails.
    """
    command = [sys.executable, "-P", str(Path(__file__).with_name(script))]
    environment = {**os.environ, **ENVIRONMENT}
    result = subprocess.run(command, input=json.dumps(job), env=environment, capture_output=True, text=True)
    if result.returncode:
        raise ExportError((explained or last_line)(result.stderr))


def last_line(log):
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "the converter was ended from outside, perhaps for want of memory"

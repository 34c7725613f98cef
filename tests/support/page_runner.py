"""Runs the code of a page of docs/ as a reader does: its shell and Python blocks in order, in one folder."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CTRL_C = re.compile(r"\s+# Ctrl-C after epoch (\d+)$")


class Block(NamedTuple):
    """A block that runs, and what the page shows of its output ("" where it shows nothing)."""

    language: str
    code: str
    shown: str


def read_blocks(text):
    """The sh and python blocks of a page, each with the text block that follows before the next of them."""
    blocks = []
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        if language == "text":
            blocks[-1] = blocks[-1]._replace(shown=body)
        else:
            blocks.append(Block(language, body.strip(), ""))
    return blocks


def heed_ctrl_c():
    """A shell's background jobs, as a test may be, ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_block(block: Block, folder: Path) -> str:
    """Runs a block in the folder, pressing Ctrl-C where the page says so; returns what it printed.

    Raises:
        AssertionError: if it fails, or if Ctrl-C does not end it with 130.
    """
    stop = CTRL_C.search(block.code)
    command = [sys.executable, "-c", block.code]
    if block.language == "sh":
        command = ["bash", "-c", "exec " + CTRL_C.sub("", block.code)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,
        "COLUMNS": "80",
        "PYTHONUNBUFFERED": "1",
        "KERAS_VIT_OFFLINE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with open(folder / ".stderr", "w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=heed_ctrl_c,
        )
        lines = []
        for line in process.stdout:
            lines.append(line)
            if stop and re.match(rf"\s+{stop[1]}/", line):
                process.send_signal(signal.SIGINT)
        errors.seek(0)
        assert process.wait() == (130 if stop else 0), f"{block.code}\n{''.join(lines)}{errors.read()}"
    return "".join(lines)

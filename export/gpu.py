"""Asks LiteRT which operations of a file a GPU can run; also the script for that, for a separate process."""

import contextlib
import ctypes
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from keras_vit.errors import ExportError
from keras_vit.export.subprocess_job import run_script

TIME_LIMIT = 120  # seconds
SPLIT = re.compile(r"^(\d+|No) operations will run on the GPU", re.MULTILINE)
REFUSED = re.compile(r"Following operations are not supported by GPU delegate:\n((?:[A-Z0-9_]+: .*\n)+)")
FAILED = re.compile(r"Failed to create \S+DelegateKernel\w*: (.*)")
DYNAMIC = "Attempting to use a delegate that only supports static-sized tensors"
ADVICE = "It takes no tensor whose size depends on the batch: export with batch_size=1."
ADAPTER = re.compile(r"Selected adapter: ([^,\n]+)")


def has_vulkan() -> bool:
    """Whether LiteRT could find a GPU; outside of Linux, the system always has such a library."""
    try:
        return sys.platform != "linux" or bool(ctypes.CDLL("libvulkan.so.1"))
    except OSError:
        return False


def ask_gpu(path: Path) -> dict[str, Any] | None:
    """Asks LiteRT's GPU delegate, which phones also have, about a TFLite file; None if it finds no GPU here.

    Returns:
        "adapter": the GPU that was found; "operations": their number in the file; "taken": the number that the GPU
        runs, the others run on the processor; "refused": a line for each kind that the GPU does not run.
    """
    if not has_vulkan():
        return None
    try:
        return run_script("gpu.py", {"path": str(path.resolve())}, time_limit=TIME_LIMIT)
    except ExportError:
        return None


def read_log(log: str, operations: int) -> dict[str, Any] | None:
    """Derives the answer from the delegate's log, for a file with so many operations."""
    adapter, split, refused, failed = (x.search(log) for x in (ADAPTER, SPLIT, REFUSED, FAILED))
    if adapter is None:
        return None
    answer = {"adapter": adapter[1], "operations": operations}
    if failed or DYNAMIC in log:
        return {**answer, "taken": 0, "refused": [failed[1] if failed else ADVICE]}
    taken = operations if split is None else 0 if split[1] == "No" else int(split[1])
    lines = refused[1].splitlines() if refused else []
    return {**answer, "taken": taken, "refused": lines}


def main():
    path = json.load(sys.stdin)["path"]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        os.dup2(log.fileno(), 2)
        from ai_edge_litert import schema_py_generated as schema
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator

        with contextlib.suppress(RuntimeError):  # the log says why
            CompiledModel.from_file(path, hardware_accel=HardwareAccelerator.GPU | HardwareAccelerator.CPU)
        graph = schema.Model.GetRootAs(Path(path).read_bytes()).Subgraphs(0)
        log.seek(0)
        print(json.dumps(read_log(log.read(), graph.OperatorsLength())))


if __name__ == "__main__":
    main()

"""TFLite files from elsewhere, without Keras; see `formats`.

A file may be opened if it has only built-in operators, and needs no other file. This file is also the script that asks
LiteRT, in a separate process, which operations of a file a GPU can run.
"""

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from keras_vit.errors import ExportError
from keras_vit.export.description import read_description
from keras_vit.export.formats import refuse
from keras_vit.export.processes import run_script

__all__ = ["ask_gpu", "check", "load", "load_tflite", "read_description", "weight_bytes"]

REFUSED = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "STABLEHLO_CUSTOM_CALL")
MOST = 1 << 20  # entries of a vector
TIME_LIMIT = 120  # seconds
SPLIT = re.compile(r"^(\d+|No) operations will run on the GPU", re.MULTILINE)
ON_PROCESSOR = re.compile(r"Following operations are not supported by GPU delegate:\n((?:[A-Z0-9_]+: .*\n)+)")
FAILED = re.compile(r"Failed to create \S+DelegateKernel\w*: (.*)")
DYNAMIC = "Attempting to use a delegate that only supports static-sized tensors"
ADVICE = "It takes no tensor whose size depends on the batch: export with batch_size=1."
ADAPTER = re.compile(r"Selected adapter: ([^,\n]+)")


def load_tflite(path, names=None):
    """A function from a list of arrays to the list of outputs; without `names`, the inputs' order is the file's own."""
    import os

    from ai_edge_litert.interpreter import Interpreter

    # LiteRT prints "Created TensorFlow Lite XNNPACK delegate for CPU", and has no option against it.
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        interpreter = Interpreter(model_path=str(path), num_threads=min(os.cpu_count() or 1, 8))
        interpreter.allocate_tensors()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)
    runner = interpreter.get_signature_runner()
    lengths = {name: details["shape_signature"].tolist() for name, details in runner.get_input_details().items()}
    names = names or list(lengths)

    def position(name):
        """The sorting key of an output: the number for TensorFlow's output_0, output_1, ..., otherwise the name."""
        number = name.removeprefix("output_")
        return (int(number), "") if number != name and number.isdecimal() else (0, name)

    def run(inputs):
        for name, x in zip(names, inputs, strict=True):  # LiteRT would take any shape, and regroup the numbers
            own = lengths[name]
            if x.ndim != len(own) or any(n not in (-1, m) for n, m in zip(own[1:], x.shape[1:], strict=True)):
                raise ValueError(f"the input {name} takes the shape {own}. Received: {list(x.shape)}")
        outputs = runner(**dict(zip(names, inputs, strict=True)))
        return [outputs[name] for name in sorted(outputs, key=position)]

    return run


load = load_tflite


def check(path):
    from ai_edge_litert import schema_py_generated as schema

    data = path.read_bytes()
    if not schema.Model.ModelBufferHasIdentifier(data, 0):
        raise ValueError("it has no identifier of TFLite")
    model = schema.Model.GetRootAs(data)
    lengths = (model.OperatorCodesLength(), model.SubgraphsLength(), model.BuffersLength())
    if max(lengths) > min(MOST, len(data)):
        refuse(path, "a list that is longer than the file")
    if model.ExternalBufferGroupsLength() or model.ExternalBuffersLength():
        refuse(path, "data in other files")
    refused = {getattr(schema.BuiltinOperator, name): name for name in REFUSED}
    for code in map(model.OperatorCodes, range(model.OperatorCodesLength())):
        name = code.CustomCode()
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if name or number in refused:
            refuse(
                path, f"the operator {(name or b'').decode(errors='replace') or refused[number]}, not a built-in one"
            )


def weight_bytes(path: Path) -> int:
    """Bytes of the constants in the file and of their scales."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes())
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    tensors = [graph.Tensors(i) for graph in graphs for i in range(graph.TensorsLength())]
    constants = {x.Buffer(): x for x in tensors if model.Buffers(x.Buffer()).DataLength()}
    scales = sum(4 * x.Quantization().ScaleLength() for x in constants.values() if x.Quantization())
    return scales + sum(model.Buffers(place).DataLength() for place in constants)


def ask_gpu(path: Path) -> dict[str, Any] | None:
    """Asks LiteRT's GPU delegate, which phones also have, about a TFLite file; None if it finds no GPU here.

    Returns:
        "adapter": the GPU that was found; "operations": their number in the file; "taken": the number that the GPU
        runs, the others run on the processor; "refused": a line for each kind that the GPU does not run.
    """
    try:
        if sys.platform == "linux":
            ctypes.CDLL("libvulkan.so.1")  # without it LiteRT finds no GPU; other systems always have such a library
        return run_script(__file__, str(path.resolve()), time_limit=TIME_LIMIT)
    except (ExportError, OSError):
        return None


def read_log(log: str, operations: int) -> dict[str, Any] | None:
    """Derives the answer from the delegate's log, for a file with so many operations."""
    adapter, split, refused, failed = (x.search(log) for x in (ADAPTER, SPLIT, ON_PROCESSOR, FAILED))
    if adapter is None:
        return None
    answer = {"adapter": adapter[1], "operations": operations}
    if failed or DYNAMIC in log:
        return {**answer, "taken": 0, "refused": [failed[1] if failed else ADVICE]}
    taken = operations if split is None else 0 if split[1] == "No" else int(split[1])
    lines = refused[1].splitlines() if refused else []
    return {**answer, "taken": taken, "refused": lines}


def main(path):
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        os.dup2(log.fileno(), 2)  # where the delegate logs
        from ai_edge_litert import schema_py_generated as schema
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator

        with contextlib.suppress(RuntimeError):  # the log says why
            CompiledModel.from_file(path, hardware_accel=HardwareAccelerator.GPU | HardwareAccelerator.CPU)
        graph = schema.Model.GetRootAs(Path(path).read_bytes()).Subgraphs(0)
        log.seek(0)
        return read_log(log.read(), graph.OperatorsLength())

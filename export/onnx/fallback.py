"""ONNX for models that cannot be traced operation by operation: tf2onnx, then onnxscript's optimizer."""

import tempfile
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export import saved_model
from keras_vit.export.onnx.reading import foreign_nodes
from keras_vit.export.subprocess_job import run_script

OPSET = 18  # the newest that tf2onnx writes


def convert_with_tf2onnx(model, shapes, folder, reason):
    """The model as an onnx.ModelProto of standard operators.

    Args:
        reason: why the model was not traced; part of the error.

    Raises:
        ExportError: when tf2onnx fails too, or leaves operators that ONNX does not have.
    """
    import onnx
    from onnxscript import optimizer

    with tempfile.TemporaryDirectory(dir=folder) as work:
        saved_model.write(model, shapes, Path(work) / "model")
        output = Path(work) / "model.onnx"
        inputs = [[x.name, shape, x.dtype] for shape, x in zip(shapes, model.inputs, strict=True)]
        job = {"saved_model": str(Path(work) / "model"), "output": str(output), "inputs": inputs, "opset": OPSET}
        try:
            run_script("onnx/tf2onnx_worker.py", job)
        except ExportError as error:
            raise ExportError(f"{reason}; and tf2onnx cannot convert it either: {error}") from error
        proto = optimizer.optimize(onnx.load(output))
    require_standard(proto, reason)
    return proto


def require_standard(proto, reason):
    foreign = sorted({node.op_type for node in foreign_nodes(proto.graph)})
    if foreign:
        raise ExportError(f"ONNX has no operator for: {', '.join(foreign)} ({reason}). Export a SavedModel instead.")

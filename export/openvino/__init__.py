"""OpenVINO IR: our ONNX file, read by OpenVINO and saved as its own graph (.xml) and weights (.bin)."""

import dataclasses
import json
import tempfile
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export import onnx
from keras_vit.export.formats import Order
from keras_vit.export.openvino.reading import DESCRIPTION, GRAPH, load

__all__ = ["write"]


def require_compiled(path):
    """Raises unless OpenVINO compiles a calibrated model: 2026.4 fails for most ViTs with a free batch."""
    try:
        load(path)
    except RuntimeError as error:
        raise ExportError(
            'OpenVINO cannot compile this model in "int8". Fix the batch by batch_size=1, or use quantize="dynamic".'
        ) from error


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the folder `path`; see `formats` for the result. The weights have the types of the ONNX file.

    Raises:
        ExportError: as for the ONNX export, or when OpenVINO cannot compile a calibrated model.
    """
    import openvino

    path.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path) as folder:
        source = Path(folder) / "model.onnx"
        finer = onnx.write(dataclasses.replace(order, description={}), source)
        model = openvino.Core().read_model(str(source))
        model.set_rt_info(json.dumps(order.description, default=str), list(DESCRIPTION))
        openvino.save_model(model, str(path / GRAPH), compress_to_fp16=False)
        del model  # it has the file open
    if order.quantize == "int8":
        require_compiled(path)
    return finer

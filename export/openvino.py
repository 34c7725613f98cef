"""OpenVINO IR: our ONNX file, read by OpenVINO and saved as its own graph (.xml) and weights (.bin).

A folder from elsewhere may be opened if it has only operations of OpenVINO's own sets; those of extensions are code.
"""

import dataclasses
import functools
import json
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from keras_vit.errors import ExportError
from keras_vit.export.description import require_short
from keras_vit.export.formats import Order, refuse

GRAPH, WEIGHTS = "openvino_model.xml", "openvino_model.bin"
DESCRIPTION = ("keras_vit", "description")  # its path in the rt_info of the graph
MOST_BYTES = 1 << 26  # of the graph; the largest models' have a thirtieth


@functools.cache
def open_core():
    """OpenVINO's `Core`, one for the process: signals end a process in which OpenVINO closed and opened its engine."""
    import openvino

    return openvino.Core()


def load_openvino(path, names=None):
    """A function from a list of arrays to the list of outputs; the inputs' order is the file's own."""
    core = open_core()
    # By default OpenVINO computes in bfloat16 if the processor supports it.
    compiled = core.compile_model(str(Path(path) / "openvino_model.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: list(compiled(list(inputs)).to_tuple())


load = load_openvino


def read_graph(path):
    """The graph's XML as an element."""
    text = (path / GRAPH).read_bytes() if (path / GRAPH).stat().st_size <= MOST_BYTES else b""
    # OpenVINO ignores namespaces; another encoding would hide definitions.
    if not text or b"<!" in text or b"xmlns" in text:
        refuse(path, f"no graph of less than {MOST_BYTES:,} bytes, or one with definitions of XML or namespaces")
    return ElementTree.fromstring(text.decode("utf-8"))


def check(path):
    layers = list(read_graph(path).iter("layer"))
    if not layers or not (path / WEIGHTS).is_file():
        refuse(path, "no operations, or no weights")
    for layer in layers:
        if not re.fullmatch(r"opset\d+", layer.get("version", ""), re.ASCII):
            refuse(path, f"the operation {layer.get('type')} of {layer.get('version')}, not of OpenVINO's own sets")


def read_description(path):
    entry = read_graph(path).find("/".join(("rt_info", *DESCRIPTION)))
    if entry is None:
        return None
    require_short(len(entry.get("value", "")))
    return json.loads(entry.get("value", ""))


def weight_bytes(path: Path) -> int:
    """Bytes of the constants in the folder."""
    return (path / WEIGHTS).stat().st_size


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the folder `path`; the weights have the types of the ONNX file."""
    import openvino

    from keras_vit.export import onnx

    path.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path) as folder:
        source = Path(folder) / "model.onnx"
        finer = onnx.write(dataclasses.replace(order, description={}), source)
        model = open_core().read_model(str(source))
        model.set_rt_info(json.dumps(order.description, default=str), list(DESCRIPTION))
        openvino.save_model(model, str(path / GRAPH), compress_to_fp16=False)
        del model  # it has the file open
    if order.quantize == "int8":
        try:
            load(path)
        except RuntimeError as error:  # from OpenVINO 2026.4, for most ViTs with a free batch
            raise ExportError(
                'OpenVINO cannot compile this model in "int8". Fix the batch by batch_size=1, or use '
                'quantize="dynamic".'
            ) from error
    return finer

"""TFLite files with built-in operators only, converted in a separate process so that its memory is freed.

TensorFlow's models are converted from a SavedModel, JAX's from StableHLO.
"""

import tempfile
from pathlib import Path
from typing import Any

from keras_vit.errors import ExportError, require_backend
from keras_vit.export import saved_model, stablehlo
from keras_vit.export.description import append_comment, append_description
from keras_vit.export.formats import Order
from keras_vit.export.preparation import follow_export_calls
from keras_vit.export.staging import seal
from keras_vit.export.tflite.converter import convert
from keras_vit.export.tflite.operators import builtin_operators, composite_gelu
from keras_vit.export.tflite.rewriting import SIZES
from keras_vit.extras import require

__all__ = ["write"]


def emit_saved_model(order, folder):
    with builtin_operators():
        saved = Order(model=order.model, shapes=order.shapes)
        saved_model.write(saved, folder / "model", further_outputs=order.endpoints)
    return {"saved_model": str(folder / "model")}


def emit_stablehlo(order, folder):
    """Writes StableHLO at one batch size, or at the two for `rewriting.free_batch`."""
    require("litert_converter", "TFLite from JAX")
    files = []
    for size in SIZES if order.shapes[0][0] is None else order.shapes[0][:1]:
        fixed = Order(
            model=order.model, shapes=[(size, *shape[1:]) for shape in order.shapes], endpoints=order.endpoints
        )
        with composite_gelu():
            traced = stablehlo.trace(fixed, ["cpu"])
        files.append(folder / f"{size}.mlir")
        files[-1].write_bytes(traced.mlir_module_serialized)
    outputs = [f"output_{i}" for i in range(len(order.model.outputs))]
    names = {"inputs": [x.name for x in order.model.inputs], "outputs": [*outputs, *order.endpoints]}
    return {"stablehlo": [str(file) for file in files], **names}


EMITTERS: dict[str, Any] = {"tensorflow": emit_saved_model, "jax": emit_stablehlo}


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path`; the labels in its description also become a file of their own.

    See `formats` for the result. In TFLite only the batch can be free.

    Raises:
        ExportError: when an operator (named in the message) is not built into TFLite, the converter fails, or Keras
            runs on another backend.
    """
    import keras

    require_backend("Writing TFLite", *EMITTERS, error=ExportError)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with follow_export_calls(order.model):
            job = EMITTERS[keras.backend.backend()](order, Path(folder))
        require("litert_quantizer", "TFLite")
        finer = convert(job, Path(folder), path, order)
    append_description(path, order.description)
    seal(path, append_comment)
    return finer

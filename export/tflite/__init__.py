"""TFLite files with built-in operators only, converted in a process of their own so that its memory is given back."""

import json
import tempfile
import zipfile
from pathlib import Path

from keras_vit.export import saved_model
from keras_vit.export.formats import Order
from keras_vit.export.preparation import follow_export_calls
from keras_vit.export.staging import seal
from keras_vit.export.tflite.converter import convert_saved_model
from keras_vit.export.tflite.operators import builtin_operators
from keras_vit.text import printable

__all__ = ["write"]


def append_description(path, description):
    """Appends a zip archive with the metadata and the labels, where readers of TFLite files look for them.

    labels.txt has one line for each class: line breaks in a label are escaped there, not in the metadata.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metadata.json", json.dumps(description, indent=2, default=str))
        if description.get("labels"):
            archive.writestr("labels.txt", "".join(f"{printable(name)}\n" for name in description["labels"]))


def append_comment(path, key, text):
    """Puts the entry into the comment of the zip archive, at the end of the file."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = f"{key} {text}".encode()


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path`; the labels in its description also become a file of their own.

    `formats` says what is returned. TFLite has no free length but the batch.

    Raises:
        ExportError: when an operator is not among TFLite's built-in ones (named), or the converter fails.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        saved = Path(folder) / "model"
        with follow_export_calls(order.model), builtin_operators():
            saved_model.write(Order(model=order.model, shapes=order.shapes), saved, further_outputs=order.endpoints)
        finer = convert_saved_model(saved, path, order)
    append_description(path, order.description)
    seal(path, append_comment)
    return finer

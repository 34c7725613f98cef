"""The description stored in an artefact: its origin, its input, and the names of its classes."""

import contextlib
import dataclasses
import json
import re
import zipfile
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from keras_vit._version import __version__
from keras_vit.errors import printable, without_secrets

LOCAL = re.compile(r"(?:~|/|[A-Za-z]:[\\/]|\\\\).*[\\/](?P<name>[^\\/]+)[\\/]?", re.DOTALL)

LONGEST = 1 << 22  # bytes of a description; Python's lists of 60 MB of brackets would take 2 GB
# Entries to read from an artefact outside of a bundle.
DESCRIBED = ("inputs", "outputs", "preprocessing", "labels", "probabilities")
TEXTS = ("probabilities",)  # those that are plain texts

PREPROCESSING = ("image_size", "mean", "std", "interpolation", "crop", "crop_mode")


def describe_preprocessing(preprocessing):
    """The fields of a preprocessing as plain values; None for a callable that lacks one."""
    fields = {name: getattr(preprocessing, name, None) for name in PREPROCESSING}
    if any(value is None for name, value in fields.items() if name != "crop"):
        return None
    numbers = {name: np.asarray(fields[name]).tolist() for name in ("image_size", "mean", "std")}
    return {**fields, **numbers}


def remove_secrets(value):
    """Removes secrets from a value: passwords and queries of addresses, and folders of this machine.

    >>> remove_secrets({"source": "https://alice:secret@host/m.keras?signature=1"})
    {'source': 'https://host/m.keras'}
    """
    if isinstance(value, dict):
        return {name: remove_secrets(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [remove_secrets(entry) for entry in value]
    if not isinstance(value, str | PurePath):
        return value
    text = str(value).encode(errors="backslashreplace").decode()  # file names that are not UTF-8
    local = LOCAL.fullmatch(text)
    return local["name"] if local else without_secrets(text)


def find_probabilities(model, outputs=None):
    """How a model's first output becomes probabilities: "softmax", "sigmoid", or "output" if it is probabilities.

    Its configuration, or that of the model that ends it, says so, or else its last layer or operation, also inside a
    subclassed model, whose `outputs` are traced.
    """
    import keras

    from keras_vit.export.onnx.lowering import node_behind, unrecorded
    from keras_vit.export.preparation import TRACING

    outputs = outputs or getattr(model, "outputs", None)
    config: Any = getattr(model, "config", None)
    if hasattr(config, "probabilities"):
        return config.probabilities
    node = node_behind(outputs[0]) if outputs else None
    if node is not None:
        last, called = node.operation, node.arguments
        if not isinstance(last, keras.Model) or getattr(last, "outputs", None):
            return find_probabilities(last)
        with TRACING, unrecorded(last):
            inner = None
            with contextlib.suppress(Exception):  # code without keras.ops may raise anything
                inner = keras.tree.flatten(last.call(*called.args, **called.kwargs))
            return find_probabilities(last, inner)
    activation = getattr(model, "activation", model)
    name = getattr(activation, "__name__", type(activation).__name__)
    return "output" if name.lower() in ("softmax", "sigmoid") else "softmax"


def describe_model(model, source, shapes, preprocessing, extra=None, further_outputs=()) -> dict[str, Any]:
    """A dictionary of plain values for a model's metadata; unknown values are None, as are the "probabilities" of a
    model whose output is a vector.

    Args:
        model: the user's model; its labels and config are described if it has them.
        source: its functional float32 form.
        shapes: shapes of the artefact's inputs, None for a free length.
        preprocessing: the artefact's, or None.
        extra: entries to add or replace, such as {"source": ..., "licence": ...}; secrets in them are left out, see
            `remove_secrets`.
        further_outputs: dictionaries like those of "outputs", with a "name".
    """
    import keras

    config = getattr(model, "config", None)
    labels = getattr(model, "labels", None)
    fields = None
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        fields = dataclasses.asdict(config)
    probabilities = None if getattr(model, "gives_vectors", False) else find_probabilities(source)
    if fields is None and probabilities == "softmax" and source.outputs[0].shape[-1] == 1:
        probabilities = "sigmoid"  # of two classes by one logit, whose softmax is always 1
    return {
        "name": model.name,
        "inputs": [
            {"name": x.name, "shape": list(shape), "dtype": x.dtype}
            for x, shape in zip(source.inputs, shapes, strict=True)
        ],
        "outputs": [{"shape": list(x.shape), "dtype": x.dtype} for x in source.outputs],
        "further_outputs": list(further_outputs),
        "preprocessing": describe_preprocessing(preprocessing),
        "labels": None if labels is None else list(labels),
        "probabilities": probabilities,
        "config": fields,
        "source": None,
        "licence": None,
        "versions": {"keras_vit": __version__, "keras": keras.__version__},
        **remove_secrets(extra or {}),
    }


def describe_outputs(names, outputs):
    """Further outputs (n, ...), by their names, as entries of a model's metadata."""
    return [
        {"name": name, "shape": [None, *x.shape[1:]], "dtype": x.dtype.name}
        for name, x in zip(names, outputs, strict=True)
    ]


def as_properties(description):
    """The description as {name: string}; values that are not strings are in JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in description.items()
        if value is not None
    }


def from_properties(properties):
    """The entries DESCRIBED of a description, from the strings of `as_properties`."""
    texts = {name: properties[name] for name in DESCRIBED if name in properties}
    require_short(sum(map(len, texts.values())))
    return {name: text if name in TEXTS else json.loads(text) for name, text in texts.items()}


def require_short(length):
    """Raises ValueError for a length beyond any description's."""
    if length > LONGEST:
        raise ValueError(f"its description has more than {LONGEST:,} bytes")


def append_description(path: Path, description: dict[str, Any]) -> None:
    """Appends a zip archive with metadata and labels, where readers of TFLite files expect them.

    labels.txt has one line for each class: line breaks in a label are escaped there, not in the metadata.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metadata.json", json.dumps(description, indent=2, default=str))
        if description.get("labels"):
            archive.writestr("labels.txt", "".join(f"{printable(name)}\n" for name in description["labels"]))


def append_comment(path: Path, key: str, text: str) -> None:
    """Puts the entry into the comment of the zip archive, at the end of the file."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = f"{key} {text}".encode()


def read_description(path: Path) -> dict[str, Any] | None:
    """Reads what `append_description` appended, or returns None."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if "metadata.json" not in archive.namelist():
            return None
        entry = archive.getinfo("metadata.json")
        if entry.compress_type != zipfile.ZIP_STORED:  # zipfile would unpack more than the stated length
            raise ValueError("its metadata.json is compressed, as no export writes it")
        require_short(entry.file_size)
        return json.loads(archive.read(entry))

"""What an artefact says about itself: where it comes from, how to feed it, what its classes are called."""

import dataclasses
import json
import re
from pathlib import PurePath

import numpy as np

from keras_vit._version import __version__
from keras_vit.text import without_secrets

LOCAL = re.compile(r"(?:~|/|[A-Za-z]:[\\/]|\\\\).*[\\/](?P<name>[^\\/]+)[\\/]?", re.DOTALL)

PREPROCESSING = ("image_size", "mean", "std", "interpolation", "crop", "crop_mode")


def described(model, source, shapes, extra=None):
    """A dictionary of plain values for a model's metadata; what is not known is None.

    Args:
        model: what the user gave, with what it may know of itself.
        source: its functional float32 form.
        shapes: of the artefact's inputs, None for a free length.
        extra: entries to add or replace, such as {"source": ..., "licence": ...}. What is published must tell no
            secrets: of an address in them the password and what follows "?" is left out, of a path of this machine all
            but its last name.
    """
    import keras

    config = getattr(model, "config", None)
    labels = getattr(model, "labels", None)
    return {
        "name": model.name,
        "inputs": [
            {"name": x.name, "shape": list(shape), "dtype": x.dtype}
            for x, shape in zip(source.inputs, shapes, strict=True)
        ],
        "outputs": [{"shape": list(x.shape), "dtype": x.dtype} for x in source.outputs],
        "preprocessing": described_preprocessing(getattr(model, "preprocessing", None)),
        "labels": None if labels is None else list(labels),
        "config": dataclasses.asdict(config) if dataclasses.is_dataclass(config) else None,
        "source": None,
        "licence": None,
        "versions": {"keras_vit": __version__, "keras": keras.__version__},
        **public(extra or {}),
    }


def described_preprocessing(preprocessing):
    """Its fields as plain values; None for a callable that lacks one."""
    fields = {name: getattr(preprocessing, name, None) for name in PREPROCESSING}
    if any(value is None for name, value in fields.items() if name != "crop"):
        return None
    numbers = {name: np.asarray(fields[name]).tolist() for name in ("image_size", "mean", "std")}
    return {**fields, **numbers}


def public(value):
    """Entries for a description without the secrets that addresses and paths hold.

    >>> public({"source": "https://alice:secret@host/m.keras?signature=1"})
    {'source': 'https://host/m.keras'}
    """
    if isinstance(value, dict):
        return {name: public(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [public(entry) for entry in value]
    if not isinstance(value, str | PurePath):
        return value
    text = str(value).encode(errors="backslashreplace").decode()  # file names that are not UTF-8
    local = LOCAL.fullmatch(text)
    return local["name"] if local else without_secrets(text)


def as_properties(description):
    """The description as strings by name, values in JSON unless they are strings."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in description.items()
        if value is not None
    }

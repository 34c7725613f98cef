"""What an artefact says about itself: where it comes from, how to feed it, what its classes are called."""

import dataclasses
import json

from keras_vit._version import __version__

PREPROCESSING = ("image_size", "mean", "std", "interpolation", "crop", "crop_mode")


def described(model, source, shapes, extra=None):
    """A dictionary of plain values for a model's metadata; what is not known is None.

    Args:
        model: what the user gave, with what it may know of itself.
        source: its functional float32 form.
        shapes: of the artefact's inputs, None for a free length.
        extra: entries to add or replace, such as {"source": ..., "licence": ...}.
    """
    import keras

    preprocessing = getattr(model, "preprocessing", None)
    config = getattr(model, "config", None)
    labels = getattr(model, "labels", None)
    return {
        "name": model.name,
        "inputs": [
            {"name": x.name, "shape": list(shape), "dtype": x.dtype}
            for x, shape in zip(source.inputs, shapes, strict=True)
        ],
        "outputs": [{"shape": list(x.shape), "dtype": x.dtype} for x in source.outputs],
        "preprocessing": preprocessing and {name: getattr(preprocessing, name, None) for name in PREPROCESSING},
        "labels": None if labels is None else list(labels),
        "config": dataclasses.asdict(config) if dataclasses.is_dataclass(config) else None,
        "source": None,
        "licence": None,
        "versions": {"keras_vit": __version__, "keras": keras.__version__},
        **(extra or {}),
    }


def as_properties(description):
    """The description as strings by name, values in JSON unless they are strings."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in description.items()
        if value is not None
    }

"""Reads model.json of a bundle, and checks every field before it is used."""

from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.description import LONGEST, PREPROCESSING
from keras_vit.export.formats import FORMATS, NAMES, QUANTIZE, format_named
from keras_vit.export.proof.examples import MOST_EXAMPLES
from keras_vit.export.proof.mixture import WAYS
from keras_vit.files import find_misfit, read_record

LENGTHS = 1 << 31
DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "bool")
FURTHER = {name for row in FORMATS for name in row.further_outputs}


def fits(value, kind):
    """Whether a value is of a kind; see `files.read_record` for kinds."""
    return find_misfit(value, kind) is None


def whole(least=0, most=1 << 62):
    """The kind of whole numbers from `least` to `most`."""
    return lambda x: fits(x, int) and least <= x <= most


def between(least, most):
    return lambda x: fits(x, float) and least <= x <= most


def some(kind, least=1, most=64):
    """The kind of lists of `least` to `most` values of a kind."""
    return lambda x: fits(x, [kind]) and least <= len(x) <= most


def is_positive(x):
    return fits(x, float) and x > 0


def is_preprocessing(x):
    """Whether these are exactly the arguments of predict.py and `Preprocessing`, with valid values."""
    return fits(x, FIELDS_OF_PREPROCESSING) and set(x) == set(PREPROCESSING)


def are_further_outputs(x):
    """Whether the outputs have names of endpoints in formats, since exports call the model's methods by these names."""
    return fits(x, [INPUT]) and len({y["name"] for y in x} & FURTHER) == len(x)


TENSOR = {"dtype": DTYPES, "shape": some((None, whole(0, LENGTHS)), 1, 8)}
INPUT = {**TENSOR, "name": str}
FIELDS_OF_PREPROCESSING = {
    "image_size": some(whole(1, 1 << 16), 2, 2),
    "mean": (float, some(float)),
    "std": (is_positive, some(is_positive)),
    "interpolation": ("bilinear", "bicubic", "lanczos3", "nearest"),
    "crop_mode": ("center", "squash"),
    "crop": (None, lambda x: is_positive(x) and x <= 1),
}
ARTEFACT = {
    "format": NAMES,
    "file": str,
    "quantize": (None, *QUANTIZE),
    "bytes": whole(),
    "weight_bytes": whole(),
    "model_weight_bytes": whole(),
    "max_abs_diff": float,
    "max_rel_diff": float,
    "cosine": float,
    "top1_agreement": (None, between(0, 1)),
    "top5_agreement": (None, between(0, 1)),
    "top1_regret": (None, between(0, 1)),
    "images": whole(),
    "batches": some(whole(1, MOST_EXAMPLES)),
    "tolerance": (None, float),
    "finer": {str: tuple(WAYS)},
    "latency_ms": {str: float},
    "model_latency_ms": {str: float},
    "further_outputs": {str: float},
    "gpu": (None, {"adapter": str, "operations": whole(), "taken": whole(), "refused": [str]}),
}
FIELDS = {
    "name": str,
    "inputs": some(INPUT),
    "outputs": some(TENSOR),
    "further_outputs": are_further_outputs,
    "preprocessing": (None, is_preprocessing),
    "labels": (None, some(str, 0, LENGTHS)),
    "probabilities": ("softmax", "sigmoid"),
    "config": (None, dict),
    "versions": {str: str},
    "artefacts": [ARTEFACT],
}


def read_model_json(folder):
    """The contents of `folder`/model.json.

    Raises:
        ExportError: if it is missing, damaged, or a field has a value that no export writes.
    """
    path, what = Path(folder, "model.json"), "the description of a bundle"
    about = read_record(path, FIELDS, what=what, error=ExportError, most_bytes=LONGEST, follow_links=True)
    further = {x["name"] for x in about["further_outputs"]}
    formats = [entry["format"] for entry in about["artefacts"]]
    right = 0 < len(formats) == len(set(formats))
    for entry in about["artefacts"]:
        right &= entry["file"] == format_named(entry["format"]).bundled and further.issuperset(entry["further_outputs"])
    if not right:
        raise ExportError(f"{path} is not {what}: its artefacts are not one per format, each at its place.")
    return about

"""model.json and examples.npz of a bundle: its description, and a few inputs with the model's outputs.

Both are read without trusting whoever wrote them: every field and array is checked before it is used.
"""

import zipfile
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.description import LONGEST, PREPROCESSING
from keras_vit.export.formats import FORMATS, NAMES, QUANTIZE, format_named
from keras_vit.export.proof.mixture import WAYS
from keras_vit.files import find_misfit, read_record

EXAMPLES = 4
MOST_EXAMPLES = 1024
MOST_BYTES = 1 << 29  # of all arrays
LENGTHS = 1 << 31
DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "bool")
FURTHER = {name for row in FORMATS for name in row.further_outputs}


def fits(value, kind):
    """Whether a value is of a kind; see `files.read_record` for kinds."""
    return find_misfit(value, kind) is None


def between(least, most, kind=float):
    """The kind of numbers from `least` to `most`."""
    return lambda x: fits(x, kind) and least <= x <= most


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


SIZE, SHARE = between(0, 1 << 62, int), (None, between(0, 1))
TENSOR = {"dtype": DTYPES, "shape": some((None, between(0, LENGTHS, int)), 1, 8)}
INPUT = {**TENSOR, "name": str}
FIELDS_OF_PREPROCESSING = {
    "image_size": some(between(1, 1 << 16, int), 2, 2),
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
    "bytes": SIZE,
    "weight_bytes": SIZE,
    "model_weight_bytes": SIZE,
    "max_abs_diff": float,
    "max_rel_diff": float,
    "cosine": float,
    "top1_agreement": SHARE,
    "top5_agreement": SHARE,
    "top1_regret": SHARE,
    "images": SIZE,
    "batches": some(between(1, MOST_EXAMPLES, int)),
    "tolerance": (None, float),
    "finer": {str: tuple(WAYS)},
    "latency_ms": {str: float},
    "model_latency_ms": {str: float},
    "further_outputs": {str: float},
    "gpu": (None, {"adapter": str, "operations": SIZE, "taken": SIZE, "refused": [str]}),
}
FIELDS = {
    "name": str,
    "inputs": some(INPUT),
    "outputs": some(TENSOR),
    "further_outputs": are_further_outputs,
    "preprocessing": (None, is_preprocessing),
    "labels": (None, some(str, 0, LENGTHS)),
    "probabilities": (None, "softmax", "sigmoid", "output"),
    "config": (None, dict),
    "versions": {str: str},
    "artefacts": [ARTEFACT],
}


def read_model_json(folder):
    """The contents of `folder`/model.json."""
    path, what = Path(folder, "model.json"), "the description of a bundle"
    about = read_record(path, FIELDS, what=what, error=ExportError, most_bytes=LONGEST, follow_links=True)
    further = {x["name"] for x in about["further_outputs"]}
    formats = [entry["format"] for entry in about["artefacts"]]
    right = 0 < len(formats) == len(set(formats))
    for entry in about["artefacts"]:
        right &= entry["file"] == format_named(entry["format"]).bundled and further.issuperset(entry["further_outputs"])
    if not right:
        raise ExportError(f"{path} is not {what}: artefacts are repeated or misplaced. Export again.")
    return about


def has_shape(array, shape):
    """Whether an array has the shape of a model's input or output: (n, ...) with None for a free length."""
    return array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape[1:], array.shape[1:], strict=True))


def by_name(inputs, outputs):
    """Two lists as a dictionary: {"input_0": ..., "output_0": ...}."""
    return {f"input_{i}": x for i, x in enumerate(inputs)} | {f"output_{i}": x for i, x in enumerate(outputs)}


def write_examples(path, inputs, outputs):
    """Writes lists of arrays (n, ...), one per input and output of the model."""
    arrays = by_name(inputs, outputs)
    if sum(x.nbytes for x in arrays.values()) > MOST_BYTES:
        raise ExportError(f"{len(inputs[0])} examples of this model take more than {MOST_BYTES:,} bytes in a bundle.")
    np.savez_compressed(path, **arrays)


def read_examples(path, inputs, outputs):
    """Reads the two lists of arrays that `write_examples` wrote, by their descriptions in model.json."""
    wanted = by_name(inputs, outputs)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()]
            # zipfile unpacks other compressions whole, without regard to the stated length.
            if not {info.compress_type for info in archive.infolist()} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise ValueError("it is not compressed as in an export")
            if sorted(names) != sorted(f"{name}.npy" for name in wanted):
                raise ValueError("its arrays are not one per input and output of the model")
            if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_BYTES:,} bytes")
            arrays = {name: read_array(archive, f"{name}.npy") for name in wanted}
        for name, entry in wanted.items():
            require_described(name, arrays[name], entry)
        if len({len(x) for x in arrays.values()}) != 1:
            raise ValueError("its arrays differ in their number of examples")
    except Exception as error:  # zipfile, zlib and NumPy raise many errors for damaged files
        raise ExportError(f"{path} does not contain the model's examples: {error}.") from error
    values = list(arrays.values())
    return values[: len(inputs)], values[len(inputs) :]


def read_array(archive, name):
    """One array, never a pickle. A length that is not there costs no memory: the system gives it as it is filled."""
    with archive.open(name) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):
            raise ValueError(f"{name} has bytes after its array")
    return array


def require_described(name, array, entry):
    shape, dtype = entry["shape"], entry["dtype"]
    if not has_shape(array, shape) or array.dtype != dtype:
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, but model.json says {shape} of {dtype}")
    if not 1 <= len(array) <= MOST_EXAMPLES:
        raise ValueError(f"{name} has {len(array)} examples, expected 1 to {MOST_EXAMPLES}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} has numbers that are not finite")

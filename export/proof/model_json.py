"""model.json of a bundle, read with every field checked before it is used."""

import json
import sys
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.description import LONGEST, PREPROCESSING
from keras_vit.export.formats import FORMATS, NAMES, QUANTIZE, format_named
from keras_vit.export.proof.examples import MOST_EXAMPLES
from keras_vit.export.proof.mixture import WAYS

MOST = 64  # inputs, outputs, batch sizes
LENGTHS = 1 << 31
DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "bool")


def read_model_json(folder):
    """The contents of `folder`/model.json.

    Raises:
        ExportError: if it is missing, damaged, or a field has a value that no export writes.
    """
    path = Path(folder, "model.json")
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"it has more than {LONGEST:,} bytes")
        about = json.loads(path.read_text("utf-8"), parse_constant=refuse_constant)
        require_field(isinstance(about, dict), "", about)
        for name, is_right in FIELDS.items():
            require_field(name in about and is_right(about[name]), name, about.get(name))
        for entry in about["artefacts"]:
            for name, is_right in ARTEFACT.items():
                require_field(name in entry and is_right(entry[name]), f"artefacts, {name}", entry.get(name))
            require_field(entry["file"] == format_named(entry["format"]).bundled, "artefacts, file", entry["file"])
        further = {x["name"] for x in about["further_outputs"]}
        for names in (entry["further_outputs"] for entry in about["artefacts"]):
            require_field(further.issuperset(names), "artefacts, further_outputs", names)
        formats = [entry["format"] for entry in about["artefacts"]]
        require_field(len(set(formats)) == len(formats), "artefacts, format", formats)
    except (OSError, ValueError, RecursionError) as error:
        raise ExportError(f"{path} does not describe a bundle: {error}.") from error
    return about


def refuse_constant(name):
    raise ValueError(f"it has the number {name}")


def require_field(right, name, value):
    if not right:
        where = f"its field {name!r}" if name else "it"
        raise ValueError(f"{where} cannot be {json.dumps(value)[:80]}")


def is_text(x):
    return isinstance(x, str)


def is_count(x, least=0, most=1 << 62):
    return isinstance(x, int) and not isinstance(x, bool) and least <= x <= most


def is_number(x):
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) <= sys.float_info.max


def is_list(x, is_right, least=0, most=MOST):
    return isinstance(x, list) and least <= len(x) <= most and all(is_right(y) for y in x)


def is_tensor(x):
    return isinstance(x, dict) and x.get("dtype") in DTYPES and is_list(x.get("shape"), is_length, 1, 8)


def is_length(x):
    return x is None or is_count(x, 0, LENGTHS)


def is_input(x):
    return is_tensor(x) and is_text(x.get("name"))


def is_further(x):
    """Outputs with the names of some that a format can have: these are methods of the model, which exports call."""
    known = {name for row in FORMATS for name in row.further_outputs}
    return is_list(x, is_input) and len({y["name"] for y in x} & known) == len(x)


def is_labels(x):
    return x is None or is_list(x, is_text, most=LENGTHS)


def is_preprocessing(x):
    """None, or what predict.py needs: sizes, a part of the image, finite means, deviations above 0."""
    if x is None:
        return True
    return (
        isinstance(x, dict)
        and set(x) == set(PREPROCESSING)
        and is_list(x["image_size"], lambda n: is_count(n, 1, 1 << 16), 2, 2)
        and all(is_number(x[name]) or is_list(x[name], is_number, 1) for name in ("mean", "std"))
        and all(n > 0 for n in (x["std"] if isinstance(x["std"], list) else [x["std"]]))
        and x["interpolation"] in ("bilinear", "bicubic", "lanczos3", "nearest")
        and x["crop_mode"] in ("center", "squash")
        and (x["crop"] is None or (is_number(x["crop"]) and 0 < x["crop"] <= 1))
    )


def is_agreement(x):
    return x is None or (is_number(x) and 0 <= x <= 1)


def is_times(x):
    return isinstance(x, dict) and all(is_number(y) for y in x.values())


FIELDS = {
    "name": is_text,
    "inputs": lambda x: is_list(x, is_input, 1),
    "outputs": lambda x: is_list(x, is_tensor, 1),
    "further_outputs": is_further,
    "preprocessing": is_preprocessing,
    "labels": is_labels,
    "probabilities": lambda x: x in ("softmax", "sigmoid"),
    "config": lambda x: x is None or isinstance(x, dict),
    "versions": lambda x: isinstance(x, dict) and all(is_text(y) for y in x.values()),
    "artefacts": lambda x: is_list(x, lambda entry: isinstance(entry, dict), 1),
}
ARTEFACT = {
    "format": lambda x: is_text(x) and x in NAMES,
    "file": is_text,
    "quantize": lambda x: x in (None, *QUANTIZE),
    "bytes": is_count,
    "weight_bytes": is_count,
    "model_weight_bytes": is_count,
    "max_abs_diff": is_number,
    "max_rel_diff": is_number,
    "cosine": is_number,
    "top1_agreement": is_agreement,
    "top5_agreement": is_agreement,
    "top1_regret": is_agreement,
    "images": is_count,
    "batches": lambda x: is_list(x, lambda n: is_count(n, 1, MOST_EXAMPLES), 1),
    "tolerance": lambda x: x is None or is_number(x),
    "finer": lambda x: isinstance(x, dict) and all(is_text(way) and way in WAYS for way in x.values()),
    "latency_ms": is_times,
    "model_latency_ms": is_times,
    "further_outputs": is_times,
}

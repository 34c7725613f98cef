"""*.safetensors: state dicts of timm and transformers. Files from `write` describe their model in the header."""

import json
import math
import struct
import weakref
from dataclasses import asdict, replace

import numpy as np

from keras_vit.console import log
from keras_vit.zoo.formats.architecture import may_lack_biases, read_config
from keras_vit.zoo.formats.checkpoint import (
    MOST_MISSING,
    Fault,
    OpenCheckpoint,
    Tensor,
    blame_file,
    count_numbers,
    parse_json,
    read_description,
    require_few,
    require_plausible,
    serialize_model,
)
from keras_vit.zoo.formats.torch.layouts import (
    complete_activation,
    find_layout,
    fold_register_positions,
    heads_by_size,
    require_ours,
    sizes_of,
    strip_model_prefix,
    to_official,
    with_numerics,
)
from keras_vit.zoo.formats.torch.stated import (
    SEVERAL_CLASSES,
    read_companions,
    require_own_config,
    stated_labels,
    stated_preprocessing,
)
from keras_vit.zoo.formats.torch.timm_config import warn_of_quick_gelu
from keras_vit.zoo.formats.torch.timm_files import make_timm_state
from keras_vit.zoo.formats.torch.transformers_files import make_transformers_state

COMPLAINT = "cannot be read as .safetensors"
# Bytes; a tensor needs some 100, and the library uses some 12 times as much memory.
MOST_HEADER = 2**22
# The format's names of dtypes, and numpy's: bfloat16 is read as the upper half of a float32.
DTYPES = {"BF16": "<u2"} | {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
DTYPES |= {f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)}


class HeldFile:
    """A file that stays open as long as a tensor refers to it."""

    def __init__(self, path):
        self.stream = open(path, "rb")
        weakref.finalize(self, self.stream.close)


def require_distinct(pairs):
    """Makes a dict of a JSON object; refuses repeated names."""
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("two entries of its header have one name")
    return names


def read_tensor(stream, name, dtype, shape, start):
    """Reads the values that begin at byte `start`."""
    with blame_file(f"cannot be read: {name} is damaged"), np.errstate(over="ignore"):
        stream.seek(start)
        values = np.fromfile(stream, DTYPES[dtype], math.prod(shape)).reshape(shape)
        if dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype("float32", copy=False)


def describe_tensor(file, name, entry, start):
    """The Tensor for an entry of the header; the file's data begin at byte `start`."""
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if dtype not in DTYPES:
        raise Fault(f"holds {name} of dtype {dtype}; expected an array of numbers.")
    start += entry["data_offsets"][0]
    return Tensor(name, shape, lambda: read_tensor(file.stream, name, dtype, shape, start))


def read_length(stream):
    """Reads the length of the header at the file's beginning, and limits it: the header is parsed whole."""
    start = stream.read(8)
    if len(start) < 8:
        raise EOFError(f"it ends after {len(start)} bytes")
    (length,) = struct.unpack("<Q", start)
    if length > MOST_HEADER:
        raise Fault(f"has a header of {length:,} bytes; at most {MOST_HEADER:,} are read.")
    return length


def open_safetensors(path):
    """({name: Tensor}, {name: text}): the tensors of a .safetensors file and its metadata. Only the header is read.

    The library only checks the file. It could not read the values well: it maps the whole file, so that its pages count
    as this process' memory, and numpy has no bfloat16.
    """
    from safetensors import safe_open

    with blame_file(COMPLAINT):
        file = HeldFile(path)
        length = read_length(file.stream)
        with safe_open(path, "np") as checked:  # checks the header against the file
            require_few(len(checked.keys()))
        header = json.loads(file.stream.read(length), object_pairs_hook=require_distinct)
    metadata = header.pop("__metadata__", None) or {}
    tensors = {name: describe_tensor(file, name, entry, 8 + length) for name, entry in header.items()}
    return tensors, metadata


def read_with_companions(path, tensors, layout, hints):
    """Opens a state dict from a library; the heads come from the call, JSON files beside it, the variant or Table 1."""
    config_json, processor_json = read_companions(path)
    stated = layout.states(config_json, tensors)
    if stated.unknown_architecture is not None:
        log.warning(
            "By its config.json, %s has timm's architecture %r, unknown to this package. For what the file does not "
            "state, timm's defaults are assumed, such as exact GELU.",
            *(path, stated.unknown_architecture),
        )
    if layout.library == "timm" and "activation" not in hints.fields:
        warn_of_quick_gelu(config_json)
    fields = {**layout.numerics, **stated.fields, **hints.fields}
    require_ours(tensors, layout.rows, may_lack_biases(fields))
    require_own_config(sizes_of(tensors), stated)
    fields = complete_activation(tensors, fields) if layout.numerics else {}
    heads = hints.num_heads or stated.num_heads or hints.variant_heads
    heads = heads or (heads_by_size(tensors) if stated.assume_heads else None)
    tensors = to_official(tensors, layout, heads)
    if stated.register_positions:
        tensors = fold_register_positions(tensors)
    if "Transformer/pre_norm/scale" in tensors and "head/bias" in tensors and not tensors["head/bias"].read().any():
        tensors.pop("head/bias")  # timm's projection of CLIP, which has none
    hints = replace(hints, own_size=stated.image_size or hints.own_size, fields=fields)
    config = with_numerics(read_config(tensors, hints))
    if config_json.get("problem_type") == SEVERAL_CLASSES:
        config = replace(config, probabilities="sigmoid")
    require_own_config(vars(config), stated)
    require_plausible(config, count_numbers(tensors), MOST_MISSING)
    preprocessing = stated_preprocessing(path.name, config_json, processor_json, config)
    return OpenCheckpoint(path, config, tensors, preprocessing, stated_labels(config_json, config.num_classes))


def read(path, hints):
    tensors, metadata = open_safetensors(path)
    layout, tensors = find_layout(strip_model_prefix(tensors))
    text = metadata.get("keras_vit")
    if text is None:
        return read_with_companions(path, tensors, layout, hints)
    config, preprocessing, labels = read_description(parse_json(text))
    distilled = "embeddings.distillation_token" in tensors
    tensors = to_official(tensors, layout, getattr(config, "num_heads", None))
    if distilled:
        tensors = fold_register_positions(tensors)
    if not getattr(config, "head_bias", True):
        tensors.pop("head/bias", None)  # zeros that `make_timm_state` added
    require_plausible(config, count_numbers(tensors), MOST_MISSING)
    return OpenCheckpoint(path, config, tensors, preprocessing, labels)


STATES = {"timm": make_timm_state, "transformers": make_transformers_state}


def write(model, path, layout="timm"):
    """Writes a state dict of timm or transformers, with the model's description in the header."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    config, state = STATES[layout](model)
    description = serialize_model(model)
    description["config"].update(asdict(config))
    metadata = {"format": "pt", "keras_vit": json.dumps(description)}
    try:
        save_file(state, path, metadata)
    except SafetensorError as error:  # also for a full disk
        raise OSError(str(error)) from error

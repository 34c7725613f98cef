"""*.npz: numpy archives in the authors' layouts, converted to that of the first release, before Linen.

Archives from `write` describe their model in the comment, or, if that is too long for it, in the member `MEMBER`.
"""

import io
import json
import math
import re
import zipfile

import numpy as np
from numpy.lib import format as npy

from keras_vit.zoo.formats.architecture import POSITIONS, ROW_POSITIONS, read_config
from keras_vit.zoo.formats.checkpoint import (
    MOST_JSON,
    MOST_MISSING,
    MOST_TENSORS,
    Fault,
    OpenCheckpoint,
    Tensor,
    blame_file,
    count_numbers,
    gather,
    open_archive,
    parse_json,
    read_description,
    require_plausible,
    serialize_model,
)
from keras_vit.zoo.formats.variables import official_arrays

COMPLAINT = "cannot be read as a numpy archive (.npz)"
MOST_HEADER = 10_000  # bytes of an array's header, as in numpy
MOST_COMMENT = 2**16 - 1  # bytes, the limit of a zip archive's comment
MEMBER = "keras_vit.json"

# {prefix of the model's tensors: prefixes to leave out}: optimizer slots, the text tower of a two-tower model.
PREFIXES = (
    ("opt/target/", ("opt/state/",)),
    ("params/img/", ("params/txt/", "params/t", "params/b", "opt/")),
    ("params/", ("opt/",)),
)

# Linen numbers the layers of a block by kind, pre-Linen all together.
LINEN = (
    (r"(encoderblock[_0-9]*)/LayerNorm_1/", r"\1/LayerNorm_2/"),
    (r"(encoderblock[_0-9]*)/MultiHeadDotProductAttention_0/", r"\1/MultiHeadDotProductAttention_1/"),
    (r"(encoderblock[_0-9]*)/MlpBlock_0/", r"\1/MlpBlock_3/"),
)
# models/bit_paper.py to the names of big_transfer: the inverse of its maybe_convert_big_transfer_format. A kernel of
# the head becomes one of a 1x1 convolution; norms' parameters lose their leading axes (1, 1, 1, c).
BIT_NAMES = (
    (r"root_block/conv_root/kernel", r"resnet/root_block/standardized_conv2d/kernel"),
    (r"(block\d+/unit\d+)/conv_proj/kernel", r"resnet/\1/a/proj/standardized_conv2d/kernel"),
    *(
        (rf"(block\d+/unit\d+)/{part}", rf"resnet/\1/{letter}/{name}")
        for i, letter in enumerate("abc", start=1)
        for part, name in (
            (f"conv{i}/kernel", "standardized_conv2d/kernel"),
            (f"gn{i}/scale", "group_norm/gamma"),
            (f"gn{i}/bias", "group_norm/beta"),
        )
    ),
    (r"norm-pre-head/scale", r"resnet/group_norm/gamma"),
    (r"norm-pre-head/bias", r"resnet/group_norm/beta"),
    (r"head/(kernel|bias)", r"resnet/head/conv2d/\1"),
)


def read_member(archive, member):
    """Reads the values of one member as numbers; numpy writes bfloat16 as two void bytes, which become float32."""
    with blame_file(f"cannot be read: {member.filename} is damaged"), archive.open(member) as stream:
        values = npy.read_array(stream, allow_pickle=False)
    if values.dtype.kind == "V":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values


def read_header(stream):
    """(shape, dtype, place of the values) of a numpy array; a header of over MOST_HEADER bytes seems to end early."""
    head = io.BytesIO(stream.read(MOST_HEADER))
    read = npy.read_array_header_1_0 if npy.read_magic(head) == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(head)
    return shape, dtype, head.tell()


def describe_member(archive, member):
    """The Tensor of one member, from the header that numpy wrote."""
    name = member.filename.removesuffix(".npy")
    if not name or name.startswith(("/", "\\")) or ".." in name or "\\" in name or ":" in name:
        raise Fault(f"holds a tensor named like a path outside: {member.filename!r}.")
    with blame_file(f"cannot be read: {member.filename} is not a numpy array"), archive.open(member) as stream:
        shape, dtype, start = read_header(stream)
    if dtype.kind not in "fiu" and dtype != np.dtype("V2"):
        raise Fault(f"holds {member.filename} of dtype {dtype}; expected an array of numbers.")
    if min(shape, default=0) < 0 or start + math.prod(shape) * dtype.itemsize != member.file_size:
        raise Fault(f"declares shape {shape} for {member.filename}, which its {member.file_size} bytes cannot hold.")
    return Tensor(name, shape, lambda: read_member(archive, member))


def list_tensors(archive):
    """The tensors of a numpy archive: {name: Tensor}. Nothing is unpickled, and only headers are read."""
    tensors = [describe_member(archive, member) for member in archive.infolist() if member.filename != MEMBER]
    return gather((tensor.source, tensor) for tensor in tensors)


def strip_prefix(tensors):
    """Strips the prefix from the model's tensors; others in the file stay, to be reported as left over."""
    for prefix, beside in PREFIXES:
        if any(name.startswith(prefix) for name in tensors):
            return gather(
                (name.removeprefix(prefix), tensor)
                for name, tensor in tensors.items()
                if name.startswith(prefix) or not name.startswith(beside)
            )
    return tensors


def require_transformer(tensors):
    """Refuses tensors that do not belong to a ViT or hybrid of the paper."""
    if "conv_root/kernel" in tensors and "embedding/kernel" not in tensors:
        raise Fault(
            "is of big_vision's models/bit.py, a ResNet with a norm after each convolution; this package has "
            "BiT's, models/bit_paper.py, with the norm before it."
        )
    if "embedding/kernel" not in tensors or not any(name.startswith("Transformer/") for name in tensors):
        raise Fault(
            "is in none of the official layouts (ViT and hybrid: embedding/kernel and Transformer/...; "
            f"BiT: resnet/... or root_block/...). It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
        )


def rename_pooling(tensors):
    """Adds MAPHead_0/ to attention pooling, whose parts are at the top in big_vision's old files."""
    if "probe" not in tensors:
        return tensors
    parts = ("probe", "MlpBlock_0/", "MultiHeadDotProductAttention_0/", "LayerNorm_0/")
    renamed = ((f"MAPHead_0/{name}" if name.startswith(parts) else name, tensor) for name, tensor in tensors.items())
    return gather(renamed)


def split_stacks(tensors, stacked, count):
    """(name, tensor) pairs, in which each tensor under the prefix `stacked` is split into `count`."""
    for name, tensor in tensors.items():
        if not name.startswith(stacked):
            yield name, tensor
            continue
        whole = tensor.share(count)
        for i in range(count):
            block = whole.map(tensor.shape[1:], lambda values, i=i: values[i])
            yield f"Transformer/encoderblock_{i}/{name.removeprefix(stacked)}", block


def unstack_blocks(tensors):
    """Splits big_vision's stacked blocks: encoderblock/... (layers, ...) to encoderblock_i/..."""
    stacked = "Transformer/encoderblock/"
    layers = [tensor.shape[:1] for name, tensor in tensors.items() if name.startswith(stacked)]
    if not layers:
        return tensors
    if len(set(layers)) > 1 or () in layers:
        raise Fault(f"stacks different numbers of blocks in its tensors. Received: {sorted(set(layers))}.")
    (count,) = layers[0]
    if not 0 < count * len(layers) <= MOST_TENSORS:
        raise Fault(f"stacks {len(layers):,} tensors of {count:,} blocks each; expected 1 to {MOST_TENSORS:,} in all.")
    return gather(split_stacks(tensors, stacked, count))


def rename_linen(tensors):
    """Renames Linen's names to pre-Linen ones, if the file has Linen's."""
    if not any("/MlpBlock_0/" in name for name in tensors):
        return tensors
    for pattern, replacement in LINEN:
        tensors = gather((re.sub(pattern, replacement, name), tensor) for name, tensor in tensors.items())
    return tensors


def prepend_zero(positions):
    """Puts zeros, the class token's embedding, before position embeddings (1, l, d) of patches."""
    return positions.with_length(1, 1 + positions.shape[1], lambda values: np.insert(values, 0, 0, axis=1))


def join_position_embedding(tensors):
    """Adds the class token's embedding, 0 in big_vision, where the class token follows the position embeddings."""
    grid = tensors.get("pos_embedding")
    if grid is None:
        return tensors
    rest = [(name, tensor) for name, tensor in tensors.items() if name != "pos_embedding"]
    if "cls" in tensors and len(grid.shape) == 3:
        grid = prepend_zero(grid)
    return gather([(POSITIONS, grid), *rest])


def is_hybrid_norm(name):
    """Whether it names a parameter of a group norm under a hybrid: gn_root/scale, block1/unit1/gn_proj/bias."""
    return re.search(r"(^|/)gn\w+/", name) is not None


def squeeze_norms(tensors):
    """Reshapes the hybrids' group norms from (1, 1, 1, c), as in pre-Linen files, to (c,), as in Linen's."""
    return {
        name: tensor.reshape(tensor.shape[3:]) if is_hybrid_norm(name) and tensor.shape[:3] == (1, 1, 1) else tensor
        for name, tensor in tensors.items()
    }


def expand_norms(arrays):
    """The inverse of `squeeze_norms`, for writing: {name: array} in pre-Linen shapes."""
    return {name: values.reshape(1, 1, 1, -1) if is_hybrid_norm(name) else values for name, values in arrays.items()}


def reshape_bit(name, tensor):
    if name == "head/kernel":
        return tensor.reshape((1, 1, *tensor.shape))
    return tensor.reshape(tensor.shape[3:]) if tensor.shape[:3] == (1, 1, 1) and len(tensor.shape) == 4 else tensor


def rename_bit(tensors):
    """(name, tensor) pairs of big_vision's BiT with big_transfer's names and shapes; others unchanged.

    The model is big_transfer's, too: it pads the root's max-pool with zeros, while bit_paper.py pads with -inf.
    """
    for name, tensor in tensors.items():
        new = next((re.sub(*row, name) for row in BIT_NAMES if re.fullmatch(row[0], name)), None)
        yield (new, reshape_bit(name, tensor)) if new else (name, tensor)


def to_first_layout(tensors):
    """Renames the tensors of an official file to pre-Linen names; those of ResNets begin with `resnet/`."""
    tensors = strip_prefix(tensors)
    if any(name.startswith("root_block/") for name in tensors):
        return gather(rename_bit(tensors))
    if any(name.startswith("resnet/") for name in tensors):
        unnumbered = r"standardized_conv2d_\d+", "standardized_conv2d"
        return gather((re.sub(*unnumbered, name), tensor) for name, tensor in tensors.items())
    if ROW_POSITIONS in tensors:
        return squeeze_norms(tensors)
    require_transformer(tensors)
    return squeeze_norms(join_position_embedding(rename_linen(unstack_blocks(rename_pooling(tensors)))))


def read_text(archive):
    """The text that describes the model, if `write` made the archive."""
    if MEMBER not in archive.namelist():
        return archive.comment
    with blame_file(COMPLAINT), archive.open(MEMBER) as stream:
        return stream.read(MOST_JSON + 1)


def read(path, hints):
    archive = open_archive(path, COMPLAINT)  # the tensors keep it open until the last of them is dropped
    tensors, text = to_first_layout(list_tensors(archive)), read_text(archive)
    if text.startswith(b"{"):
        config, preprocessing, labels = read_description(parse_json(text))
    else:
        config, preprocessing, labels = read_config(tensors, hints), None, None
    require_plausible(config, count_numbers(tensors), MOST_MISSING)
    return OpenCheckpoint(path, config, tensors, preprocessing, labels)


def write(model, path):
    """Writes the pre-Linen layout or BiT's, and the model's description."""
    np.savez(path, **expand_norms(official_arrays(model)))
    description = serialize_model(model)
    text = comment = json.dumps(description, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with zipfile.ZipFile(path, "a") as archive:
        if len(text) > MOST_COMMENT:
            archive.writestr(MEMBER, text)
            comment = json.dumps({**description, "config": {**description["config"], "labels": None}}).encode()
        archive.comment = comment

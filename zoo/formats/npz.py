"""*.npz: numpy archives in the authors' layouts. An archive that `write` wrote describes its model in its comment."""

import json
import math
import struct
import zipfile

import numpy as np
from numpy.lib import format as npy

from keras_vit.zoo.formats.architecture import read_config
from keras_vit.zoo.formats.bounds import MOST_MISSING, open_archive, parse_json, require_plausible
from keras_vit.zoo.formats.checkpoint import (
    Fault,
    OpenCheckpoint,
    Tensor,
    blame_file,
    count_numbers,
    gather,
    read_description,
    serialize_model,
)
from keras_vit.zoo.formats.official import expand_norms, to_first_layout
from keras_vit.zoo.formats.variables import official_arrays

COMPLAINT = "cannot be read as a numpy archive (.npz)"
MOST_HEADER = 10_000  # bytes of an array's header: numpy reads no longer ones
MOST_COMMENT = 2**16 - 1  # bytes: a zip archive's comment holds no more


def read_member(archive, member):
    """The values of one member as numbers: bfloat16, which numpy writes as two void bytes, becomes float32."""
    with blame_file(f"cannot be read: {member.filename} is damaged"), archive.open(member) as stream:
        values = npy.read_array(stream, allow_pickle=False)
    if values.dtype.kind == "V":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values


def read_header(stream):
    """(shape, dtype) of a numpy array; the header states its own length first, so that it can be limited."""
    version, width = npy.read_magic(stream), "<H"
    header = npy.read_array_header_1_0
    if version != (1, 0):
        header, width = npy.read_array_header_2_0, "<I"
    (length,) = struct.unpack(width, stream.read(struct.calcsize(width)))
    if length > MOST_HEADER:
        raise ValueError(f"its header of {length:,} bytes is too long")
    stream.seek(npy.MAGIC_LEN)
    shape, _, dtype = header(stream)
    return shape, dtype


def describe_member(archive, member):
    """The Tensor of one member, from the header that numpy wrote."""
    name = member.filename.removesuffix(".npy")
    if not name or name.startswith(("/", "\\")) or ".." in name or "\\" in name or ":" in name:
        raise Fault(f"holds a tensor named like a path outside: {member.filename!r}.")
    with blame_file(f"cannot be read: {member.filename} is not a numpy array"), archive.open(member) as stream:
        shape, dtype = read_header(stream)
        start = stream.tell()
    if dtype.kind not in "fiu" and dtype != np.dtype("V2"):
        raise Fault(f"holds {member.filename} of dtype {dtype}; expected an array of numbers.")
    if min(shape, default=0) < 0 or start + math.prod(shape) * dtype.itemsize != member.file_size:
        raise Fault(f"declares shape {shape} for {member.filename}, whose {member.file_size} bytes do not hold that.")
    return Tensor(name, shape, lambda: read_member(archive, member))


def open_npz(path):
    """The tensors of a numpy archive: {name: Tensor}. Nothing is unpickled, and only headers are read.

    Raises:
        Fault: for a file that is not such an archive, or holds anything but plain arrays of numbers.
    """
    archive = open_archive(path, COMPLAINT)
    # The tensors keep the archive open; it closes with the last of them.
    tensors = [describe_member(archive, member) for member in archive.infolist()]
    return gather((tensor.source, tensor) for tensor in tensors)


def read(path, hints):
    """The file as an `OpenCheckpoint`."""
    tensors = to_first_layout(open_npz(path))
    with open_archive(path, COMPLAINT) as archive:
        comment = archive.comment
    if comment.startswith(b"{"):
        config, preprocessing, labels = read_description(parse_json(comment))
    else:
        config, preprocessing, labels = read_config(tensors, hints, stated=hints.fields), None, None
    require_plausible(config, count_numbers(tensors), MOST_MISSING)
    return OpenCheckpoint(path, config, tensors, preprocessing, labels)


def write(model, path):
    """Writes the pre-Linen layout or BiT's, with the model's description in the archive's comment."""
    np.savez(path, **expand_norms(official_arrays(model)))
    description = serialize_model(model)
    comment = json.dumps(description).encode()
    if len(comment) > MOST_COMMENT:
        comment = json.dumps({**description, "config": {**description["config"], "labels": None}}).encode()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment

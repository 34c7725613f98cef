"""A checkpoint as named tensors, described before any is read."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib import format as npy

from keras_vit.errors import CheckpointError
from keras_vit.zoo.formats.bounds import foreign, open_archive, require_few

# Bytes of headers: numpy reads no longer ones of arrays; a .safetensors file takes some 100 for a tensor, and its
# library some 12 times the header's bytes of memory.
MOST_NPY_HEADER = 10_000
MOST_SAFETENSORS_HEADER = 2**22


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its name there, its shape, and `read()`, which fetches its values."""

    source: str
    shape: tuple
    read: Callable

    def map(self, shape, function):
        """The tensor that `function` makes of this one's values, of the given shape."""
        return replace(self, shape=tuple(shape), read=lambda: function(self.read()))

    def reshape(self, shape):
        return self.map(shape, lambda values: values.reshape(shape))

    def shared(self, uses):
        """This tensor for `uses` others made of it: its values are read for the first and dropped after the last."""
        return replace(self, read=Shared(self.read, uses))


class Shared:
    def __init__(self, read, uses):
        self.read, self.uses, self.left, self.values = read, uses, 0, None

    def __call__(self):
        if not self.left:
            self.left, self.values = self.uses, self.read()
        self.left -= 1
        values = self.values
        if not self.left:
            self.values = None
        return values


def gathered(path, named):
    """{name: Tensor} of (name, tensor) pairs, if no two have one name."""
    tensors = {}
    for name, tensor in named:
        if name in tensors:
            raise CheckpointError(
                f"{path} holds two tensors of one name, {name}. Fetch the file again from its source."
            )
        tensors[name] = tensor
    return tensors


def open_npz(path):
    """The tensors of a numpy archive: {name: Tensor}. Nothing is unpickled, and only headers are read.

    Raises:
        CheckpointError: for a file that is no such archive, or holds anything but plain arrays of numbers.
    """
    archive = open_archive(path, "cannot be read as a numpy archive (.npz)")
    # The tensors keep the archive open, which closes with the last of them.
    return gathered(path, ((name_of(path, member), describe(path, archive, member)) for member in archive.infolist()))


def name_of(path, member):
    name = member.filename.removesuffix(".npy")
    if not name or name.startswith(("/", "\\")) or ".." in name or "\\" in name or ":" in name:
        raise CheckpointError(f"{path} holds a tensor named like a path outside: {member.filename!r}.")
    return name


def describe(path, archive, member):
    """The Tensor of one member, from the header that numpy wrote."""
    with foreign(path, f"cannot be read: {member.filename} is not a numpy array"), archive.open(member) as stream:
        shape, dtype = read_header(stream)
        start = stream.tell()
    if dtype.kind not in "fiu" and dtype != np.dtype("V2"):
        raise CheckpointError(f"{path}: {member.filename} has dtype {dtype}; expected an array of numbers.")
    if min(shape, default=0) < 0 or start + math.prod(shape) * dtype.itemsize != member.file_size:
        raise CheckpointError(
            f"{path}: {member.filename} declares shape {shape}, which its {member.file_size} bytes do not hold."
        )
    return Tensor(member.filename.removesuffix(".npy"), shape, lambda: read_member(path, archive, member))


def read_header(stream):
    """(shape, dtype) of a numpy array, whose header says its own length before anything of it is read."""
    version, width = npy.read_magic(stream), "<H"
    header = npy.read_array_header_1_0
    if version != (1, 0):
        header, width = npy.read_array_header_2_0, "<I"
    (length,) = struct.unpack(width, stream.read(struct.calcsize(width)))
    if length > MOST_NPY_HEADER:
        raise ValueError(f"its header of {length:,} bytes is too long")
    stream.seek(npy.MAGIC_LEN)
    shape, _, dtype = header(stream)
    return shape, dtype


def read_member(path, archive, member):
    """The values of one member as numbers: bfloat16, which numpy writes as two void bytes, becomes float32."""
    with foreign(path, f"cannot be read: {member.filename} is damaged"), archive.open(member) as stream:
        values = npy.read_array(stream, allow_pickle=False)
    if values.dtype.kind == "V":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values


def open_safetensors(path):
    """The tensors of a .safetensors file: {name: Tensor}.

    Raises:
        CheckpointError: for a file that is none, or holds anything but numbers.
    """
    from safetensors import safe_open

    with foreign(path, "cannot be read as .safetensors"):
        require_short_header(path)
        file = safe_open(path, "np")
        names = file.keys()
        require_few(path, len(names))
        slices = {name: file.get_slice(name) for name in names}
        facts = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    for name, (_, dtype) in facts.items():
        if not dtype.startswith(("F16", "F32", "F64", "BF16", "I", "U")):
            raise CheckpointError(f"{path}: {name} has dtype {dtype}; expected an array of numbers.")
    return {
        name: Tensor(name, shape, lambda name=name: read_slice(path, file, name)) for name, (shape, _) in facts.items()
    }


def safetensors_metadata(path):
    """The strings in a .safetensors file's header, {} for none."""
    from safetensors import safe_open

    with foreign(path, "cannot be read as .safetensors"):
        require_short_header(path)
        with safe_open(path, "np") as file:
            return file.metadata() or {}


def require_short_header(path):
    """The file starts with the length of its header, which is parsed whole."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
    if length > MOST_SAFETENSORS_HEADER:
        raise CheckpointError(f"{path} has a header of {length:,} bytes; at most {MOST_SAFETENSORS_HEADER:,} are read.")


def read_slice(path, file, name):
    with foreign(path, f"cannot be read: {name} is damaged"), np.errstate(over="ignore"):
        return np.asarray(file.get_tensor(name), "float32")


def shapes(tensors: Mapping):
    """{name: shape}, for messages and for reading an architecture off a file."""
    return {name: tensor.shape for name, tensor in tensors.items()}

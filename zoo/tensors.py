"""A checkpoint as named tensors, described before any is read."""

import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib import format as npy

from keras_vit.errors import CheckpointError

# What zipfile, zlib and numpy raise on damaged archives.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    SyntaxError,
    MemoryError,
    OverflowError,
    UnicodeError,
    zipfile.BadZipFile,
    zlib.error,
)
# Bytes that any archive may promise, however small: a head of zeros compresses to nothing.
SLACK = 2**28


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


def open_npz(path):
    """The tensors of a numpy archive: {name: Tensor}. Nothing is unpickled, and only headers are read.

    Raises:
        CheckpointError: for a file that is no such archive, or holds anything but plain arrays of numbers.
    """
    try:
        archive = zipfile.ZipFile(path)
    except UNREADABLE as error:
        raise CheckpointError(f"{path} cannot be read as a numpy archive (.npz): {error}.") from error
    members = archive.infolist()
    require_honest_sizes(path, members)
    # The tensors keep the archive open, which closes with the last of them.
    tensors = {name_of(path, member): describe(path, archive, member) for member in members}
    if len(tensors) < len(members):
        raise CheckpointError(f"{path} holds two tensors of one name. Fetch the file again from its source.")
    return tensors


def require_honest_sizes(path, members):
    """Trained weights hardly compress: an archive that promises many times its size is a trap."""
    promised, held = sum(member.file_size for member in members), path.stat().st_size
    if promised > 8 * held + SLACK:
        raise CheckpointError(
            f"{path} of {held:,} bytes promises {promised:,} bytes of tensors, which are not weights."
        )


def name_of(path, member):
    name = member.filename.removesuffix(".npy")
    if not name or name.startswith(("/", "\\")) or ".." in name or "\\" in name or ":" in name:
        raise CheckpointError(f"{path} holds a tensor named like a path outside: {member.filename!r}.")
    return name


def describe(path, archive, member):
    """The Tensor of one member, from the header that numpy wrote."""
    try:
        with archive.open(member) as stream:
            version = npy.read_magic(stream)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = header(stream)
            start = stream.tell()
    except UNREADABLE as error:
        raise CheckpointError(f"{path}: {member.filename} is not a numpy array: {error}.") from error
    if dtype.kind not in "fiuV" or dtype.hasobject or (dtype.kind == "V" and dtype.itemsize != 2):
        raise CheckpointError(f"{path}: {member.filename} has dtype {dtype}; expected an array of numbers.")
    if start + math.prod(shape) * dtype.itemsize != member.file_size:
        raise CheckpointError(
            f"{path}: {member.filename} declares shape {shape}, which its {member.file_size} bytes do not hold."
        )
    return Tensor(member.filename.removesuffix(".npy"), shape, lambda: read_member(path, archive, member))


def read_member(path, archive, member):
    """The values of one member as numbers: bfloat16, which numpy writes as two void bytes, becomes float32."""
    try:
        with archive.open(member) as stream:
            values = npy.read_array(stream, allow_pickle=False)
    except UNREADABLE as error:
        raise CheckpointError(
            f"{path}: {member.filename} is damaged: {error}. Fetch the file again from its source."
        ) from error
    if values.dtype.kind == "V":
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values


def open_safetensors(path):
    """The tensors of a .safetensors file: {name: Tensor}.

    Raises:
        CheckpointError: for a file that is none, or holds anything but numbers.
    """
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "np")
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, a handle without iteration
        facts = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as .safetensors: {error}.") from error
    for name, (_, dtype) in facts.items():
        if not dtype.startswith(("F16", "F32", "F64", "BF16", "I", "U")):
            raise CheckpointError(f"{path}: {name} has dtype {dtype}; expected an array of numbers.")
    return {name: Tensor(name, shape, lambda name=name: read_slice(file, name)) for name, (shape, _) in facts.items()}


def safetensors_metadata(path):
    """The strings in a .safetensors file's header, {} for none; of a file that `open_safetensors` cannot read too."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return file.metadata() or {}
    except (OSError, ValueError, SafetensorError):
        return {}


def read_slice(file, name):
    return np.asarray(file.get_tensor(name), "float32")


def shapes(tensors: Mapping):
    """{name: shape}, for messages and for reading an architecture off a file."""
    return {name: tensor.shape for name, tensor in tensors.items()}

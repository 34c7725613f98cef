"""examples.npz of a bundle: a few inputs with the model's outputs."""

import math
import zipfile

import numpy as np

from keras_vit.errors import ExportError

EXAMPLES = 4
MOST_EXAMPLES = 1024
MOST_BYTES = 1 << 29  # of all arrays
READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def has_shape(array, shape):
    """Whether an array has the shape of a model's input or output: (n, ...) with None for a free length."""
    return array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape[1:], array.shape[1:], strict=True))


def by_name(inputs, outputs):
    """Two lists as a dictionary: {"input_0": ..., "output_0": ...}."""
    return {f"input_{i}": x for i, x in enumerate(inputs)} | {f"output_{i}": x for i, x in enumerate(outputs)}


def write_examples(path, inputs, outputs):
    """Writes lists of arrays (n, ...), one per input and output of the model.

    Raises:
        ExportError: if they take more than 512 MiB: `read_examples` would refuse them.
    """
    arrays = by_name(inputs, outputs)
    if sum(x.nbytes for x in arrays.values()) > MOST_BYTES:
        raise ExportError(f"{len(inputs[0])} examples of this model take more than {MOST_BYTES:,} bytes in a bundle.")
    np.savez_compressed(path, **arrays)


def read_examples(path, inputs, outputs):
    """Reads what `write_examples` wrote; allocates memory for an array only if the file has its bytes.

    Args:
        inputs, outputs: descriptions of the arrays: lists of {"shape": [...], "dtype": name}, None for a free length.

    Returns:
        Two lists of arrays (n, ...), n in 1 to 1024.

    Raises:
        ExportError: if the file is damaged, or contains anything else.
    """
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
    """One array of numbers; its header is trusted only if the file has as many bytes."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version not in READERS:
            raise ValueError(f"{name} has the unknown version {version}")
        shape, transposed, dtype = READERS[version](file)
        if dtype.kind not in "fiub" or not all(0 <= length < MOST_BYTES for length in shape):
            raise ValueError(f"{name} does not contain numbers")
        data = file.read(MOST_BYTES)  # deflate unpacks no more than this, whatever length is stated
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(data):,} bytes, which do not match its shape {shape}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if transposed else "C")


def require_described(name, array, entry):
    shape, dtype = entry["shape"], entry["dtype"]
    if not has_shape(array, shape) or array.dtype != dtype:
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, but model.json says {shape} of {dtype}")
    if not 1 <= len(array) <= MOST_EXAMPLES:
        raise ValueError(f"{name} has {len(array)} examples, expected 1 to {MOST_EXAMPLES}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} has numbers that are not finite")

"""Files with the vectors of images: .npz for numpy, .parquet for other programs."""

import json
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.extras import require
from keras_vit.files import find_misfit
from keras_vit.owned import is_digest

ADVICE = "`keras-vit embed FOLDER --model M --out vectors.npz` writes one."
COLUMNS = "vectors", "paths", "labels", "digests"
BLOCK = 4096  # vectors to write at a time


@dataclass(frozen=True)
class Origin:
    """The origin of vectors."""

    model: str  # its name or path, as it was given
    digest: str  # of the model, by `embedding.digest_of_model`
    vector: str
    normalized: bool  # whether each was divided by its length


FIELDS: Any = {"model": str, "digest": is_digest, "vector": str, "normalized": bool}


@dataclass(frozen=True)
class Vectors:
    """Vectors of image files, one row each.

    Args:
        vectors: float32 (n, d).
        paths: paths of the images, as they were given.
        labels: subfolders of the images in the given folder; "" for images in the folder itself.
        digests: SHA-256 of the files, in hexadecimal.
        origin: the origin of the vectors.
    """

    vectors: np.ndarray
    paths: Sequence[str]
    labels: Sequence[str]
    digests: Sequence[str]
    origin: Origin


def write_npz(path, blocks, shape, columns, about):
    """Writes the arrays "vectors" (n, d), "paths", "labels" and "digests" (n,), and "about", a text of JSON.

    numpy's savez would need all vectors in memory.
    """
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                file.write(block.tobytes())
        for name, values in {**columns, "about": about}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.array(values, str), allow_pickle=False)


def read_npz(path, names):
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names}, str(arrays["about"])


def write_parquet(path, blocks, shape, columns, about):
    """Writes a table of path, label, digest and vector, a list of d numbers; the metadata "keras_vit" has `about`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.list_(pa.float32(), shape[1])
    fields = [("path", pa.string()), ("label", pa.string()), ("digest", pa.string()), ("vector", kind)]
    schema, start = pa.schema(fields, metadata={"keras_vit": about}), 0
    with pq.ParquetWriter(path, schema) as writer:
        for block in blocks:
            rows = slice(start, start + len(block))
            texts = [[os.fsencode(x).decode(errors="replace") for x in values[rows]] for values in columns.values()]
            numbers = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), shape[1])
            writer.write_table(pa.table([*map(pa.array, texts), numbers], schema=schema))
            start += len(block)


def read_parquet(path, names):
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=[name.removesuffix("s") for name in names])
    columns = {f"{name}s": np.array(table[name].to_pylist(), str) for name in table.column_names if name != "vector"}
    if "vectors" in names:
        numbers = table["vector"].combine_chunks()
        columns["vectors"] = numbers.flatten().to_numpy().reshape(len(numbers), -1)
    return columns, table.schema.metadata[b"keras_vit"].decode()


FORMATS = {".npz": (read_npz, write_npz), ".parquet": (read_parquet, write_parquet)}


def require_format(path: str | os.PathLike) -> str:
    """The ending of a file of vectors; refuses any other."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise ConfigError(f"A file of vectors ends in {' or '.join(FORMATS)}. Received: {path}.")
    if ending == ".parquet":
        require("pyarrow", "A file .parquet")
    return ending


def read_columns(path: str | os.PathLike, names: Sequence[str]) -> tuple[dict[str, Any], Origin]:
    """Reads some of the fields of `Vectors`, by name, and the origin; raises the errors of `read_vectors`."""
    read, _ = FORMATS[require_format(path)]
    try:
        columns, about = read(os.path.expanduser(path), names)
        stated = json.loads(about)
        sound = find_misfit(stated, FIELDS) is None
        origin = Origin(**{name: stated[name] for name in FIELDS})
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}. {ADVICE}") from error
    except Exception as error:  # zipfile, numpy and Arrow raise many errors for other files
        raise ConfigError(f"{path} is not a file of vectors: {error!s:.200}. {ADVICE}") from error
    kinds = {(name, x.ndim, x.dtype.str if name == "vectors" else x.dtype.kind) for name, x in columns.items()}
    fitting = {(name, 2, "<f4") if name == "vectors" else (name, 1, "U") for name in names}
    if not sound or kinds != fitting or len({len(x) for x in columns.values()}) > 1:
        raise ConfigError(f"{path} is not a file of vectors: its columns do not fit together. {ADVICE}")
    return columns, origin


def read_vectors(path: str | os.PathLike) -> Vectors:
    """Reads a file of vectors that `embed_files` or `keras-vit embed` wrote.

    Raises:
        ConfigError: when it is missing, damaged or something else.

    >>> read_vectors("vectors.npz").vectors.shape  # doctest: +SKIP
    (1200, 768)
    """
    columns, origin = read_columns(path, COLUMNS)
    return Vectors(**columns, origin=origin)


def write_vectors(
    path: str | os.PathLike,
    blocks: Iterable[np.ndarray],
    shape: tuple[int, int],
    columns: dict[str, list[str]],
    origin: Origin,
) -> None:
    """Writes vectors, given in blocks (m, d) of rows, with their "paths", "labels" and "digests"."""
    _, write = FORMATS[require_format(path)]
    write(path, blocks, shape, columns, json.dumps(asdict(origin)))

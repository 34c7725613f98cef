"""Mutations of checkpoints that know their formats: what they declare is changed, and the rest stays whole."""

import io
import json
import struct
import zipfile

import h5py
import numpy as np

ODD = (
    None, True, False, -1, 0, 1, 3, 10**9, 2**31, 2**63, 10**400, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"),
    "", "x", "é\x1b[31m\n", "9" * 5000, "relu", [], [[]], [0], [1, 2], [10**9, 0], [None], {}, {"a": 1},
)  # fmt: skip
HEADERS = (
    "'descr': '<f8'", "'descr': '>f4'", "'descr': '|O'", "'descr': ()", "'descr': [('a', '<f4')]", "'descr': '<c8'",
    "'descr': '<M8[s]'", "'descr': '|V2'", "'fortran_order': True", "'fortran_order': 3", "'shape': ()", "'shape': 3",
    "'shape': (0,)", "'shape': (-1,)", "'shape': (1000000000, 0)", "'shape': (3L,)", "'shape': (2**9,)", "[]: 1",
    "1: 2", "'shape': (((", "'''", "'shape': (1e3,)", "'shape': (True,)", "'shape': ['a']",
)  # fmt: skip
NAMES = ("", "/x", "../x", "a\\b", "x\x1b\n", "cls", "Transformer/encoderblock/x", "opt/target/cls", "block1/unit1/x")


def chosen(rng, options):
    return options[int(rng.integers(len(options)))]


def places(value, path=()):
    """The paths of all parts of a JSON value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(value, path, new):
    """The JSON value with `new` at that path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def mutated_json(text, rng):
    """A description with one of its parts replaced, or one too many."""
    value = json.loads(text)
    path = chosen(rng, list(places(value)))
    value = changed(value, path, chosen(rng, ODD))
    if isinstance(value, dict) and rng.integers(8) == 0:
        value[chosen(rng, ("labels", "unknown", "config"))] = chosen(rng, ODD)
    return json.dumps(value).encode()


def mutated_npz(data, rng):
    """Other names, other headers, other members, another way of packing, another description."""
    stream = io.BytesIO()
    how = chosen(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", how) as new:
        names = old.namelist()
        victim, kind = chosen(rng, names), int(rng.integers(5))
        new.comment = mutated_json(old.comment, rng) if kind == 0 else old.comment
        for name in names:
            if name == victim and kind == 1:
                continue
            member = old.read(name)
            if name == victim and kind == 2:
                member = with_header(member, rng)
            if name == victim and kind == 3:
                member = b"".join(sorted((member, old.read(chosen(rng, names))), key=len)[:1])
            if name == victim and kind == 4:
                name = f"{chosen(rng, NAMES)}.npy"
            if name not in new.namelist():
                new.writestr(name, member)
    return stream.getvalue()


def with_header(member, rng):
    """A numpy array whose header has one more field, which overrides the one before."""
    (length,) = struct.unpack("<H", member[8:10])
    text = member[10 : 10 + length].decode("latin1").rstrip().rstrip("}")
    text = f"{text}, {chosen(rng, HEADERS)}}}".encode("latin1")
    return member[:8] + struct.pack("<H", len(text)) + text + member[10 + length :]


def mutated_safetensors(data, rng):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    if rng.integers(4) == 0:
        name = chosen(rng, list(header))
        renamed = chosen(
            rng, (name + "x", "blocks." + "7" * 5000, "\x1b]0;x\x07", "blocks.99999999.norm1.weight", "cls")
        )
        text = json.dumps({renamed if key == name else key: value for key, value in header.items()}).encode()
    else:
        text = mutated_json(json.dumps(header), rng)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def mutated_hdf5(data, rng):
    """Another description, or another array, link or group in the place of one."""
    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as file:
        if "keras_vit" in file.attrs and rng.integers(3) == 0:
            file.attrs["keras_vit"] = mutated_json(file.attrs["keras_vit"], rng).decode()
            return closed(file, stream)
        names = []
        file.visititems(lambda name, item: names.append(name))
        name = chosen(rng, names)
        shape = getattr(file[name], "shape", (3,))
        del file[name]
        chosen(rng, REPLACEMENTS)(file, name, shape)
        return closed(file, stream)


def closed(file, stream):
    file.close()
    return stream.getvalue()


REPLACEMENTS = (
    lambda file, name, shape: None,
    lambda file, name, shape: file.create_group(name),
    lambda file, name, shape: file.create_dataset(name, data=np.zeros(shape, "float64")),
    lambda file, name, shape: file.create_dataset(name, data=np.full(shape, 1e300)),
    lambda file, name, shape: file.create_dataset(name, data=np.full(shape, np.nan, "float16")),
    lambda file, name, shape: file.create_dataset(name, data=np.zeros(shape, "complex64")),
    lambda file, name, shape: file.create_dataset(name, data=np.zeros(shape[::-1] + (1,), "float32")),
    lambda file, name, shape: file.create_dataset(name, (10**9, 9), "float32", chunks=(1, 9), compression="gzip"),
    lambda file, name, shape: file.create_dataset(name, data=[b"text"]),
    lambda file, name, shape: file.create_dataset(name, data=h5py.Empty("float32")),
    lambda file, name, shape: file.create_dataset(name, (2,), h5py.vlen_dtype("float32")),
    lambda file, name, shape: file.update({name: h5py.SoftLink("/")}),
    lambda file, name, shape: file.update({name: h5py.ExternalLink("/dev/zero", "/x")}),
    lambda file, name, shape: file.update({name: file["/"]}),
    lambda file, name, shape: file.update({name: np.dtype("int8")}),
)  # fmt: skip


def mutated_keras(data, rng):
    stream = io.BytesIO()
    how = chosen(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    kind = int(rng.integers(3))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", how) as new:
        for name in old.namelist():
            member = old.read(name)
            if name == "config.json" and kind == 0:
                member = mutated_json(member, rng)
            if name == "model.weights.h5" and kind == 1:
                member = mutated_hdf5(member, rng)
            if kind < 2 or rng.integers(3):
                new.writestr(name, member)
    return stream.getvalue()


MUTATIONS = {
    ".npz": mutated_npz,
    ".safetensors": mutated_safetensors,
    ".weights.h5": mutated_hdf5,
    ".keras": mutated_keras,
}

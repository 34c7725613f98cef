"""Hostile checkpoints, made by hand. As a program, it opens those of a folder and measures what that costs.

python attacks.py FOLDER: prints a JSON object: for each file how it ended, how far memory grew, and whether Keras was
imported, as it is before anything is built.
"""

import dataclasses
import io
import json
import pathlib
import re
import struct
import sys
import unicodedata
import warnings
import zipfile
import zlib

import h5py
import layouts
import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.zoo.formats import open_checkpoint
from keras_vit.zoo.formats.checkpoint import Hints

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
SMALL = {"image_size": 8, "patch_size": 4, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8}
VIT = dataclasses.asdict(ViTConfig(**SMALL, num_classes=2))
RESNET = dataclasses.asdict(ResNetConfig(depths=(1,), width_factor=0.5, num_classes=2))
PREPROCESSING = {"image_size": (8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3}
MILLION = 1_000_000
BIDI = ("LR", "RL", "PD", "FS")  # the classes of marks that embed, override or isolate


def described(config=VIT, kind="VisionTransformer", **changes):
    return {"class_name": kind, "registered_name": f"keras_vit>{kind}", "config": {**config, **changes}}


# .npz


def npy(values):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(values))
    return stream.getvalue()


def header(text, version=1):
    """A numpy array of no bytes under a header of that text."""
    text = text if isinstance(text, bytes) else text.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def archive(members, comment=b"", **how):
    """A zip archive of {name: bytes}; pairs may repeat a name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **how) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names that come twice
        for name, data in getattr(members, "items", lambda: members)():
            file.writestr(name, data)
        file.comment = comment
    return stream.getvalue()


def official(layout=dict, **added):
    """The golden ViT's archive in a layout, with more tensors or raw members."""
    tensors = {**layout(layouts.read(GOLDEN / "vit_token.npz")), **added}
    return archive({f"{name}.npy": v if isinstance(v, bytes) else npy(v) for name, v in tensors.items()})


def with_header(text, version=1):
    return official(cls=header(text, version))


def with_comment(description):
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    tensors = layouts.read(GOLDEN / "vit_token.npz")
    return archive({f"{name}.npy": npy(value) for name, value in tensors.items()}, text)


def with_preprocessing(**changes):
    return with_comment(described(preprocessing={**PREPROCESSING, **changes}))


def packed(data, how):
    return archive({"embedding/kernel.npy": data}, compression=how)


def encrypted():
    data = bytearray(archive({"embedding/kernel.npy": npy([1.0])}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    return bytes(data)


def entries(count):
    """A directory of a great many members, none of which is there."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 7) + bytes(16)
    directory = b"".join(entry + f"{i:07x}".encode() for i in range(count))
    return directory + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0, 0, len(directory), 0, 0)


NPZ = {
    "a stack of 10^9 empty blocks": lambda: official(**{"Transformer/encoderblock/x": np.zeros((10**9, 0), "float32")}),
    "a stack of 10^6 blocks": lambda: official(**{"Transformer/encoderblock/x": np.zeros((MILLION, 1), "int8")}),
    "a thousand stacks of a thousand": lambda: official(
        **{f"Transformer/encoderblock/{i}": np.zeros((1000, 0), "int8") for i in range(1000)}
    ),
    "no blocks in a stack": lambda: official(**{"Transformer/encoderblock/x": np.zeros((0, 3), "float32")}),
    "a scalar stack": lambda: official(**{"Transformer/encoderblock/x": np.float32(1)}),
    "a stack beside its own blocks": lambda: official(
        **{"Transformer/encoderblock/LayerNorm_0/scale": np.zeros((2, 64), "float32")}
    ),
    "two layouts in one": lambda: official(**{"opt/target/cls": np.zeros(3)}),
    "two convolutions of one number": lambda: archive(
        {f"resnet/root_block/standardized_conv2d{i}/kernel.npy": npy(np.zeros((7, 7, 3, 32))) for i in ("", "_1")}
    ),
    "two tensors of one name": lambda: archive([("cls.npy", npy([1.0])), ("cls", npy([1.0]))]),
    "positions on an enormous grid, of width 0": lambda: official(
        **{"Transformer/posembed_input/pos_embedding": np.zeros((1, 2**40 + 1, 0), "float32")}
    ),
    "10,000 stages": lambda: official(
        **{"conv_root/kernel": np.zeros((7, 7, 3, 64), "int8")},
        **{f"block{i}/unit1/x": np.zeros(0, "int8") for i in range(1, 10_000)},
    ),
    "598 layers of nothing": lambda: official(
        **{f"Transformer/encoderblock_{i}/x": np.zeros(100_000 // 600, "int8") for i in range(2, 600)}
    ),
    "a directory of 300,000 members": lambda: entries(300_000),
    "a directory of 60,000 members": lambda: entries(60_000),
    "two towers of one name": lambda: official(layouts.two_towers, **{"cls": np.zeros(3)}),
    "descr of no fields": lambda: with_header("{'descr': (), 'fortran_order': False, 'shape': ()}"),
    "a list for a key": lambda: with_header("{[]: 1}"),
    "keys of two kinds": lambda: with_header("{1: 2, 'x': 3, 'descr': '<f4'}"),
    "half a token": lambda: with_header("{'descr': '<f4', 'shape': (1L, '''"),
    "parentheses in parentheses": lambda: with_header("(" * 5000 + ")" * 5000),
    "minus of minus": lambda: with_header("-" * 9000 + "1"),
    "a size of 5,000 digits": lambda: with_header(f"{{'descr':'<f4','fortran_order':False,'shape':({'1' * 5000},)}}"),
    "negative sizes": lambda: official(
        cls=header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}") + bytes(24)
    ),
    "a structure of two bytes": lambda: official(cls=np.zeros(3, [("a", "u1"), ("b", "u1")])),
    "a header of blanks": lambda: archive(
        {"cls.npy": header(b" " * 12 * MILLION, 2)}, compression=zipfile.ZIP_DEFLATED
    ),
    "a header longer than its file": lambda: official(cls=b"\x93NUMPY\x02\x00\xff\xff\xff\xff"),
    "zeros packed by deflate": lambda: packed(npy(np.zeros(10 * MILLION)), zipfile.ZIP_DEFLATED),
    "zeros packed by bzip2": lambda: packed(npy(np.zeros(MILLION)), zipfile.ZIP_BZIP2),
    "zeros packed by lzma": lambda: packed(npy(np.zeros(1000)), zipfile.ZIP_LZMA),
    "an encrypted member": encrypted,
    "a name of a path": lambda: official(**{"../x": np.ones(1)}),
    "a description of text": lambda: with_comment(b"{" + b"x" * 100),
    "a description of brackets": lambda: with_comment(b'{"a":' + b"[" * 60_000),
    "a description of another class": lambda: with_comment(described(kind=["Lambda"])),
    "backbone depths of 10^9": lambda: with_comment(described(backbone={"depths": [10**9]}, image_size=64)),
    "depths of 10^9": lambda: with_comment(described(RESNET, "ResNet", depths=[10**9])),
    "depths of 10^9 in 4 stages": lambda: with_comment(described(RESNET, "ResNet", depths=[10**9] * 4)),
    "20,000 stages": lambda: with_comment(described(RESNET, "ResNet", depths=[1] * 20_000)),
    "a width of 4,001 digits": lambda: with_comment(described(hidden_size=10**4000)),
    "a width of 5,000 digits": lambda: with_comment(b'{"config":{"hidden_size":' + b"1" * 5000 + b"}}"),
    "10^9 layers": lambda: with_comment(described(num_layers=10**9)),
    "600 layers of width 1": lambda: with_comment(described(hidden_size=1, num_heads=1, mlp_dim=1, num_layers=600)),
    "10^9 classes": lambda: with_comment(described(num_classes=10**9)),
    "images of 10^9 pixels a side": lambda: with_comment(described(image_size=10**9, patch_size=10**9)),
    "an activation of text": lambda: with_comment(described(gelu_approximate="yes")),
    "labels of text": lambda: with_comment(described(labels="ab")),
    "too many labels": lambda: with_comment(described(labels=["a"] * 3)),
    "a standard deviation of 0": lambda: with_preprocessing(std=(0, 0.5, 0.5)),
    "a standard deviation of NaN": lambda: with_preprocessing(std=(float("nan"), 0.5, 0.5)),
    "a standard deviation of 1e-300": lambda: with_preprocessing(std=(1e-300, 0.5, 0.5)),
    "a negative standard deviation": lambda: with_preprocessing(std=(-0.5, 0.5, 0.5)),
    "an infinite mean": lambda: with_preprocessing(mean=(float("inf"), 0.5, 0.5)),
    "a mean of text": lambda: with_preprocessing(mean=("0.5", 0.5, 0.5)),
    "a mean of truth": lambda: with_preprocessing(mean=(True, 0.5, 0.5)),
    "a mean of one number": lambda: with_preprocessing(mean=0.5),
    "means of two channels": lambda: with_preprocessing(mean=(0.5, 0.5), std=(0.5, 0.5)),
    "means and deviations of other numbers": lambda: with_preprocessing(mean=(0.5,) * 4),
    "preprocessing to 10^18 pixels": lambda: with_preprocessing(image_size=(10**9, 10**9)),
    "a crop of text": lambda: with_preprocessing(crop="all"),
    "a crop of next to nothing": lambda: with_preprocessing(crop=5e-324),
    "preprocessing of another kind": lambda: with_preprocessing(unknown=1),
}


# .safetensors


def safetensors(about, data=b""):
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape=(0,), dtype="F32", start=0, end=0):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


TIMM = "patch_embed.proj.weight"
SAFETENSORS = {
    "a header that is longer than the file": lambda: struct.pack("<Q", 2**63) + b"{}",
    "a header of half a number": lambda: b"\x01\x02",
    "a header of blanks": lambda: safetensors(b"{}" + b" " * 60 * MILLION),
    "a header of brackets": lambda: safetensors(b'{"a":' + b"[" * 100_000),
    "70,000 tensors": lambda: safetensors({f"x{i}": tensor() for i in range(70_000)}),
    "50,000 tensors": lambda: safetensors({f"x{i}": tensor() for i in range(50_000)}),
    "a block of 5,000 digits": lambda: safetensors({TIMM: tensor(), f"blocks.{'1' * 5000}.norm1.weight": tensor()}),
    "a block of other digits": lambda: safetensors({TIMM: tensor(), "blocks.\u0663.norm1.weight": tensor()}),
    "a shape beyond numbers": lambda: safetensors({TIMM: tensor([2**63, 2**63, 0])}),
    "one tensor over another": lambda: safetensors({TIMM: tensor([1], end=4), "x": tensor([1], end=4)}, bytes(4)),
    "a name of control characters": lambda: safetensors({"\x1b]0;t\x07\nall fine\u202e": tensor()}),
    "a name of a million letters": lambda: safetensors({"blocks." * 150_000: tensor()}),
    "numbers of another kind": lambda: safetensors({TIMM: tensor(dtype="F8_E5M2")}),
}


# .keras and .weights.h5


def hdf5(fill):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        fill(file)
    return stream.getvalue()


def weights(fill=None, description=None, numbers=1000):
    """Keras weights with a description of a model that they do not hold."""

    def write(file):
        file.attrs["keras_vit"] = json.dumps(description or described())
        file["layers/embedding/vars/0"] = np.ones(numbers, "float32")
        if fill:
            fill(file)

    return hdf5(write)


def keras_file(description=None, data=None, how=zipfile.ZIP_STORED):
    if not isinstance(description, bytes):
        description = description or described()
        description["config"]["trainable"] = True  # as Keras writes it, and without it nothing else is looked at
        description = json.dumps(description).encode()
    data = weights(numbers=100) if data is None else data
    return archive({"config.json": description, "model.weights.h5": data}, compression=how)


def lying(size):
    """A directory that gives the weights `size` bytes more than they have."""
    data = bytearray(keras_file(described(hidden_size=16384, num_heads=1, mlp_dim=16384)))
    place = data.rindex(b"PK\x01\x02") + 24
    data[place : place + 4] = struct.pack("<L", size)
    return bytes(data)


def spoiled(how):
    data = bytearray(keras_file(how=how))
    place = data.index(b"config.json") + 40
    data[place : place + 20] = b"\xff" * 20
    return bytes(data)


def groups(depth):
    def fill(file):
        group = file
        for _ in range(depth):
            group = group.create_group("g")

    return fill


def loop(file):
    file["layers/again"] = file["layers"]


def unwritten(file):
    file.create_dataset("big", (10**12,), "float32")


def overflowing(file):
    file.create_dataset("big", (2**40, 2**40), "float32", chunks=(1, 1024), compression="gzip")


def chunk_of(data, filters):
    """A dataset of one chunk of 1,000 numbers, stored as `data`."""

    def fill(file):
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((1000,))
        for code in filters:
            plan.set_filter(code, 0, (9,))
        dataset = h5py.h5d.create(file.id, b"big", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((1000,)), dcpl=plan)
        dataset.write_direct_chunk((0,), data)

    return fill


def overlapping():
    """Forty arrays of 100,000 numbers each in the bytes of one."""
    count, numbers = 40, np.ones(100_000, "float32")
    stream = io.BytesIO(weights(lambda file: [file.create_dataset(f"x{i}", data=numbers[:50]) for i in range(count)]))
    with h5py.File(stream, "r+") as file:
        file["whole"] = numbers
        starts = [file[f"x{i}"].id.get_offset() for i in range(count)]
        whole = file["whole"].id.get_offset()
    data = stream.getvalue()
    for start in starts:  # address and bytes of a contiguous layout
        data = data.replace(struct.pack("<QQ", start, 200), struct.pack("<QQ", whole, 400_000))
    return data.replace(struct.pack("<QQ", 50, 50), struct.pack("<QQ", 100_000, 100_000))


def attribute(kind, shape=()):
    """Weights whose description is of an HDF5 type that Python has no match for, or an array."""

    def fill(file):
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file.id, b"keras_vit", kind, space)

    return hdf5(fill)


BOMB = zlib.compress(bytes(60 * MILLION))
HDF5 = {
    "a description of a time": lambda: attribute(h5py.h5t.UNIX_D32LE),
    "a description of many numbers": lambda: attribute(h5py.h5t.IEEE_F32LE, (100,)),
    "no description": lambda: hdf5(groups(1)),
    "depths of 10^9": lambda: weights(description=described(RESNET, "ResNet", depths=[10**9])),
    "a model larger than its weights": lambda: weights(description=described(hidden_size=512)),
    "600 layers": lambda: weights(
        description=described(hidden_size=1, num_heads=1, mlp_dim=1, num_layers=600), numbers=MILLION
    ),
    "bytes that are not numbers": lambda: weights(
        lambda file: file.create_dataset("bytes", data=np.ones(MILLION, "int8")), described(hidden_size=128)
    ),
    "groups 2,000 deep": lambda: weights(groups(2000)),
    "a group in itself": lambda: weights(loop, described(hidden_size=512)),
    "a link to itself": lambda: weights(lambda file: file.update({"x": h5py.SoftLink("/x")})),
    "a link to another file": lambda: weights(lambda file: file.update({"x": h5py.ExternalLink("/dev/zero", "/x")})),
    "a type for an array": lambda: weights(lambda file: file.update({"x": np.dtype("float32")})),
    "references": lambda: weights(lambda file: file.create_dataset("x", (3,), h5py.ref_dtype)),
    "text": lambda: weights(lambda file: file.create_dataset("x", data=["a"])),
    "values that were never written": lambda: weights(unwritten),
    "a shape beyond numbers": lambda: weights(overflowing),
    "a chunk that unpacks to 60 million bytes": lambda: weights(chunk_of(BOMB, [1])),
    "a chunk packed twice": lambda: weights(chunk_of(zlib.compress(BOMB), [1, 1])),
    "arrays over one another": overlapping,
}
KERAS = {
    "a directory that promises 4 GB": lambda: lying(2**32 - 2),
    "a directory that promises 10 MB": lambda: lying(10 * MILLION),
    "a directory that promises less": lambda: lying(100),
    "weights and many zeros": lambda: keras_file(
        described(hidden_size=512), weights() + bytes(60 * MILLION), zipfile.ZIP_DEFLATED
    ),
    "weights and a few zeros": lambda: keras_file(
        described(hidden_size=512), weights() + bytes(15 * MILLION), zipfile.ZIP_DEFLATED
    ),
    "a model larger than its weights": lambda: keras_file(described(hidden_size=512)),
    "depths of 10^9": lambda: keras_file(described(RESNET, "ResNet", depths=[10**9])),
    "a description of blanks": lambda: keras_file(b" " * 15 * MILLION, how=zipfile.ZIP_DEFLATED),
    "a description of brackets": lambda: keras_file(b"[" * 100_000),
    "a description of a list": lambda: keras_file(b"[]"),
    "a damaged description": lambda: spoiled(zipfile.ZIP_DEFLATED),
    "a description with another checksum": lambda: spoiled(zipfile.ZIP_STORED),
    "no weights": lambda: archive({"config.json": json.dumps(described(trainable=True))}),
    "weights that are none": lambda: keras_file(data=b"hello"),
    "nothing": lambda: b"",
}
ATTACKS = {
    f"{name}{ending}": make
    for ending, table in ((".npz", NPZ), (".safetensors", SAFETENSORS), (".weights.h5", HDF5), (".keras", KERAS))
    for name, make in table.items()
}


def acts(text):
    """Whether the text has a character that a terminal or a log obeys, or that turns its direction."""
    return any(
        unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c)[:2] in BIDI for c in text
    )


def outcome(path):
    """How opening the file ended, and the sentence that came."""
    try:
        open_checkpoint(path, Hints(num_heads=2))
    except CheckpointError as error:
        return ["refused", str(error)]
    except BaseException as error:
        return [type(error).__name__, str(error)]
    return ["opened", ""]


def forget_peak():
    """Lets the most memory that this process has had be what it has now (Linux' proc_pid_clear_refs(5))."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak():
    """MiB of the most memory that this process has had. Its ru_maxrss would begin with that of the parent."""
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024


def main(folder):
    results = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        forget_peak()
        before = peak()
        how, sentence = outcome(path)
        results[path.name] = {"how": how, "sentence": sentence, "grown": peak() - before}
    print(json.dumps({"results": results, "keras": "keras" in sys.modules}))


if __name__ == "__main__":
    main(sys.argv[1])

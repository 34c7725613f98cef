"""`verify` on bundles that somebody else made: it says what is wrong in a sentence, and nothing of them acts."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import keras
import numpy as np
import onnx
import psutil
import pytest

from keras_vit import export
from keras_vit.errors import ExportError, ParityError
from keras_vit.export import verification
from keras_vit.export.formats import require_known_operations
from keras_vit.export.proof.bundled import read_examples, read_model_json
from keras_vit.export.staging import MANIFEST, ExportFolder
from keras_vit.files import sha256_of_regular
from keras_vit.models import VisionTransformer
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.owned import files_in

TINY = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle") / "dist"
    keras.utils.set_random_seed(1)
    model = VisionTransformer(
        **TINY, num_classes=3, labels=("cat", "dog", "hen"), preprocessing=Preprocessing((16, 16))
    )
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(16, 3)))
    export.bundle(model, out, ["onnx", "saved_model"], endpoints=("features", "attention"))
    return out


@pytest.fixture
def dist(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "dist"))


def sign(folder):
    """The digests as whoever made the bundle would make them."""
    (folder / MANIFEST).unlink()
    files = {name: sha256_of_regular(folder / name) for name in files_in(folder)}
    (folder / MANIFEST).write_text(json.dumps({"made_by": "keras_vit.export", "format": 1, "files": files}))


def find_fault(folder, words, error=ExportError, check=export.verify):
    """None when a bundle is refused by these words, as text that can be shown; else what was said."""
    try:
        check(folder)
    except error as refusal:
        said = str(refusal)
        return None if re.search(words, said) and said.isprintable() else said
    return "it was not refused"


def refused(folder, words, error=ExportError):
    assert find_fault(folder, words, error) is None


def refused_each(path, contents, words, is_signed=True):
    """Each of {name: content} in place of one file of a bundle, which stays as it was."""
    folder, whole, faults = path.parent, path.read_bytes(), {}
    manifest = (folder / MANIFEST).read_bytes()
    for name, content in contents.items():
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
        if is_signed:
            sign(folder)
        faults[name] = find_fault(folder, words)
        path.write_bytes(whole)
        (folder / MANIFEST).write_bytes(manifest)
    assert {name: fault for name, fault in faults.items() if fault} == {}


@pytest.mark.slow
def test_a_whole_bundle(dist):
    lines = []
    (dist / "Dockerfile").write_text("mine")
    reports = export.verify(dist, progress=lines.append)
    assert [report.format for report in reports] == ["onnx", "saved_model"]
    assert all(report.max_rel_diff < 1e-5 for report in reports)
    assert lines == ["not part of the bundle, and not checked: Dockerfile"]


def test_every_file_is_covered(dist):
    for name in ("README.md", "predict.py", "examples.npz", "model.json", "model.onnx", "saved_model/1/fingerprint.pb"):
        data = (dist / name).read_bytes()
        (dist / name).write_bytes(data.replace(b"cat", b"cow") if b"cat" in data else data + b" ")
        refused(dist, f"{name} was changed")
        (dist / name).unlink()
        refused(dist, f"{name} is missing")
        (dist / name).write_bytes(data)


def test_a_script_of_another_hand_is_named(dist, monkeypatch):
    lines = []
    (dist / "predict.py").write_text("import os")
    sign(dist)
    monkeypatch.setattr(verification, "verify_artefact", lambda *arguments: None)
    export.verify(dist, progress=lines.append)
    assert len(lines) == 1 and "predict.py" in lines[0] and "read it" in lines[0]


MANIFESTS = {
    "nothing": "",
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "TensorFlow.js": '{"format": "layers-model"}',
    "number": "1" * 5000,
    "bytes": b"\xff\xfe\x00",
    "long": " " * 1_100_000,
}


def test_damaged_manifests(dist):
    refused_each(dist / MANIFEST, MANIFESTS, "is not the list of what an export wrote", is_signed=False)


ENTRIES = (
    {"format": 2},
    {"format": "1"},
    {"made_by": None},
    {"format": True},
    {"files": []},
    {"files": {"model.onnx": 5}},
    {"files": {"model.onnx": "x" * 64}},
    *(
        {"files": {name: "0" * 64}}
        for name in ("../model.onnx", "/etc/passwd", "C:\\model.onnx", "a\0b", "", ".", "\n")
    ),
    *({"files": {name: "0" * 64}} for name in (".git/HEAD", "numpy.py", "saved_model/2/saved_model.pb", "model.onnx ")),
    {"files": {"saved_model/1/saved_model.cpb": "0" * 64}},
)


def test_manifests_of_foreign_contents(dist):
    contents = json.loads((dist / MANIFEST).read_text())
    manifests = {ascii(entry): json.dumps({**contents, **entry}) for entry in ENTRIES}
    refused_each(dist / MANIFEST, manifests, "is not the list of what an export wrote", is_signed=False)
    refused_each(dist / MANIFEST, {"no files": json.dumps({**contents, "files": {}})}, "or an empty one", False)


def a_link(folder, name):
    (folder / name).rename(folder.parent / "outside")
    (folder / name).symlink_to("../outside" if "/" not in name else folder.parent / "outside")


def a_pipe(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)


def a_device(folder, name):
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")


def a_folder(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()


def test_what_is_not_a_file(made, tmp_path):
    faults = {}
    for kind in (a_link, a_pipe, a_device, a_folder):
        for name in ("model.onnx", "examples.npz", "model.json", MANIFEST):
            folder = Path(shutil.copytree(made, tmp_path / f"{kind.__name__}/{name}/dist"))
            kind(folder, name)
            faults[kind.__name__, name] = find_fault(folder, "link|regular|cannot be read|Is a directory|symbolic")
    assert {row: fault for row, fault in faults.items() if fault} == {}


def test_a_file_of_a_terabyte_that_is_not_there(dist):
    for name in ("model.onnx", "README.md", "saved_model/1/variables/variables.index"):
        whole = (dist / name).read_bytes()
        os.truncate(dist / name, 1 << 40)
        refused(dist, f"{name} has more than .* no file of a bundle is so large")
        (dist / name).write_bytes(whole)


def test_a_folder_behind_a_link(dist):
    a_link(dist, "saved_model/1/variables")
    refused(dist, "link")


def test_files_that_a_runtime_would_read_and_nobody_listed(dist):
    for name in ("saved_model/1/saved_model.cpb", "saved_model/2/saved_model.pb", "model-0123456789ab.onnx.data"):
        (dist / name).parent.mkdir(exist_ok=True)
        (dist / name).write_text("foreign")
        refused(dist, f"{name} is not listed")
        (dist / name).unlink()


def test_an_artefact_that_model_json_hides(dist):
    edit(dist, lambda about: about["artefacts"].pop())
    refused(dist, "does not belong to an artefact")


def edit(folder, change):
    about = json.loads((folder / "model.json").read_text())
    change(about)
    (folder / "model.json").write_text(json.dumps(about))
    sign(folder)


MISSING = object()
FIELDS = {
    "name": (1, None),
    "inputs": ([], {}, None, [1], [{"name": 1, "shape": [1], "dtype": "float32"}], [{}] * 1000),
    "inputs/0/shape": ([], [-1], [None, 10**12], "x", [1.5], [True], [[1]]),
    "inputs/0/dtype": ("object", "O", 5, [], "<M8"),
    "inputs/0/name": (None, 3, ["x"]),
    "outputs": ([], None, [[]], "x"),
    "labels": ("cat", [1], {"a": 1}, [["cat"]]),
    "config": (1, []),
    "versions": ([], {"keras": 1}),
    "preprocessing": ([], {}, {"image_size": [16, 16]}),
    "preprocessing/run": ("x",),
    "further_outputs": (None, [{"name": "serve", "shape": [1], "dtype": "float32"}]),
    "probabilities": (3, "tanh", ["softmax"]),
    "preprocessing/std": (0, [0.5, 0.5, 0], [-1], "x", None, [], 1e400),
    "preprocessing/mean": ("x", [None], {}, 10**400, [-(10**400)]),
    "preprocessing/image_size": (16, [16], [0, 16], [10**9, 16], [1.5, 2]),
    "preprocessing/crop": (0, 2, "x", -1),
    "preprocessing/interpolation": (None, 3, "__import__('os')"),
    "preprocessing/crop_mode": (None, 3, [], "bicubic"),
    "artefacts": ([], {}, None, "x", [None], [[]], [{}]),
    "artefacts/0": (None, {}, {"format": "onnx"}),
    "artefacts/0/file": ("../model.onnx", "/etc/passwd", "saved_model/1", "", None, 5, ["model.onnx"], "model.onnx/."),
    "artefacts/0/format": ("caffe", None, 5, [], "saved_model", "__class__"),
    "artefacts/0/quantize": ("int3", 5, [], True),
    "artefacts/0/batches": ([0], [-1], [], [10**9], [1.5], "x", None, [True], [[1]], [1] * 1000),
    "artefacts/0/model_weight_bytes": (-1, 1.5, "x", None, 10**30),
    "artefacts/0/cosine": ("x", None, 1e400, 10**400),
    "artefacts/0/latency_ms": ([], {"1": "x"}, {"1": 10**400}, 5),
    "artefacts/0/tolerance": ("x", [], 10**400),
    "artefacts/0/finer": ([], {"head": "x"}, {"head": None}),
    "artefacts/0/further_outputs": ([], {"features": 0.1}, {"attention": None}),
    "artefacts/0/top1_agreement": (-0.1, 1.5, "x"),
    "artefacts/0/gpu": (1, [], {}, {"adapter": "A", "operations": 1, "taken": -1, "refused": []}),
}


def changed(about, path, value):
    """model.json with another value at a path; without the field where the value is `MISSING`."""
    about = field = json.loads(json.dumps(about))
    *parts, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    for part in parts:
        field = field[part]
    if value is MISSING:
        del field[last]
    else:
        field[last] = value
    return json.dumps(about)


def test_fields_of_model_json(dist, monkeypatch):
    monkeypatch.setattr(verification, "verify_artefact", pytest.fail)
    about = json.loads((dist / "model.json").read_text())
    rows = [(path, value) for path, values in FIELDS.items() for value in values]
    rows += [(name, MISSING) for name in FIELDS if "/" not in name]
    rows += [(f"artefacts/0/{name}", MISSING) for name in about["artefacts"][0]]
    rows += [(f"preprocessing/{name}", MISSING) for name in about["preprocessing"]]
    contents = {f"{path}: {ascii(value):.60}": changed(about, path, value) for path, value in rows}
    assert len(contents) == len(rows)
    refused_each(dist / "model.json", contents, "is not the description of a bundle")


def test_a_damaged_model_json(dist):
    texts = ("", "[]", "[" * 100_000, '{"name": NaN}', '{"a": %s}' % ("1" * 5000), "\ud800")
    refused_each(dist / "model.json", {ascii(text)[:40]: text for text in texts}, "is not the description of a bundle")


def test_a_long_model_json(dist, monkeypatch):
    monkeypatch.setattr(verification, "verify_artefact", lambda *arguments: None)
    with open(dist / "model.json", "a") as file:
        file.write(" " * (1 << 22))
    sign(dist)
    refused(dist, "more than 4,194,304 bytes")


def two_artefacts_of_one_format(about):
    about["artefacts"].append(about["artefacts"][0])


def test_one_artefact_twice(dist):
    edit(dist, two_artefacts_of_one_format)
    refused(dist, "artefacts are repeated or misplaced")


def npy(array=None, header=None, data=b""):
    """The bytes of an .npy file; with any header."""
    file = io.BytesIO()
    if header is None:
        np.save(file, array)
    else:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data)
    return file.getvalue()


def header(shape, descr="<f4"):
    return repr({"descr": descr, "fortran_order": False, "shape": shape}) + "\n"


GOOD = np.zeros((4, 3), "float32")
ARRAYS = {
    "text": b"hello",
    "another shape": npy(np.zeros((4, 5), "float32")),
    "another dtype": npy(np.zeros((4, 3), "float64")),
    "another count": npy(np.zeros((5, 3), "float32")),
    "none": npy(np.zeros((0, 3), "float32")),
    "not a number": npy(np.full((4, 3), np.nan, "float32")),
    "pickle": npy(np.array([{}], dtype=object)),
    "pickle in a header": npy(header=header((4, 3), "|O"), data=b"\x80\x04."),
    "huge": npy(header=header((10**6, 10**6)), data=b"x"),
    "wide": npy(header=header((10**30,)), data=b"x"),
    "negative": npy(header=header((-1, 3)), data=b"x"),
    "empty and long": npy(header=header((10**9, 0))),
    "no descr": npy(header=header((4, 3), ())),
    "a list": npy(header="{[]: 1}"),
    "deep": npy(header="(" * 9000),
    "torn": npy(GOOD)[:-1],
    "too long": npy(GOOD) + b"x",
}


def zipped(entries, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_examples(dist, monkeypatch):
    """zipfile unpacks bzip2 whole, whatever length the archive states: 4 kB of such an entry may have gigabytes."""
    monkeypatch.setattr(verification, "verify_artefact", pytest.fail)
    with zipfile.ZipFile(dist / "examples.npz") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    archives = {name: zipped({**entries, "output_0.npy": array}) for name, array in ARRAYS.items()}
    archives["bzip2"] = zipped(entries, zipfile.ZIP_BZIP2)
    archives |= {"empty": b"", "no entry": b"PK\x05\x06" + b"\0" * 18, "torn zip": b"PK\x03\x04" + b"\xff" * 200}
    refused_each(dist / "examples.npz", archives, "does not contain the model's examples")


def saved_model(folder):
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((folder / "saved_model/1/saved_model.pb").read_bytes())
    return proto


def function(graph, part):
    return next(f for f in graph.graph_def.library.function if part in f.signature.name)


def written_in_a_method(graph):
    function(graph, "__inference_serve_bytes").node_def.add(name="act", op="WriteFile")


def read_in_a_branch(graph):
    function(graph, "cond_true").node_def.add(name="act", op="ReadFile")


def read_in_a_function_of_nobody(graph):
    graph.graph_def.library.function.add().signature.name = "act"
    graph.graph_def.library.function[-1].node_def.add(name="act", op="ReadFile")


def python_at_the_top(graph):
    graph.graph_def.node.add(name="act", op="PyFunc")


def saving_in_a_method(graph):
    function(graph, "__inference_serve_").node_def.add(name="act", op="SaveV2")


def saving_at_the_top(graph):
    graph.graph_def.node.add(name="act", op="RestoreV2")


def a_method_that_calls_the_saver(graph):
    node = function(graph, "__inference_serve_").node_def.add(name="act", op="StatefulPartitionedCall")
    node.attr["f"].func.name = function(graph, "traced_save").signature.name


def an_object_with_the_saver(graph):
    name = function(graph, "traced_save").signature.name
    graph.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = name


def a_signature_that_saves(graph):
    graph.signature_def["serving_default"].outputs["output_0"].name = graph.saver_def.save_tensor_name


def a_node_that_waits_for_the_saver(graph):
    graph.graph_def.node.add(name="act", op="NoOp", input=[f"^{graph.saver_def.restore_op_name}"])


def a_saver_that_writes(graph):
    graph.graph_def.node.add(name="act", op="WriteFile")
    graph.saver_def.save_tensor_name = "act:0"


def a_restoring_that_saves(graph):
    function(graph, "traced_restore").node_def.add(name="act", op="SaveV2")


def a_restoring_that_calls_the_saver(graph):
    node = function(graph, "traced_restore").node_def.add(name="act", op="StatefulPartitionedCall")
    node.attr["f"].func.name = function(graph, "traced_save").signature.name


def a_restoring_of_another_file(graph):
    node = next(node for node in function(graph, "traced_restore").node_def if node.op == "RestoreV2")
    node.input[0] = "act:output:0"


def a_restoring_by_another_name(graph):
    node = next(node for node in graph.graph_def.node if node.name == graph.saver_def.restore_op_name)
    node.input[0] = "act"


def an_asset(graph):
    graph.asset_file_def.add(filename="../../../etc/passwd")


def an_asset_object(graph):
    graph.object_graph_def.nodes.add().asset.asset_file_def_index = 0


def a_resource(graph):
    graph.object_graph_def.nodes.add().resource.device = "CPU:0"


def a_class_of_somebody(graph):
    graph.object_graph_def.nodes[0].registered_name = "evil"


def no_objects(graph):
    del graph.object_graph_def.nodes[:]


def a_collection(graph):
    graph.collection_def["table_initializer"].node_list.value.append("act")


def two_functions_of_one_name(graph):
    graph.graph_def.library.function.add().CopyFrom(function(graph, "__inference_serve_"))


CHANGES = (
    written_in_a_method,
    read_in_a_branch,
    read_in_a_function_of_nobody,
    python_at_the_top,
    saving_in_a_method,
    saving_at_the_top,
    a_method_that_calls_the_saver,
    an_object_with_the_saver,
    a_signature_that_saves,
    a_node_that_waits_for_the_saver,
    a_saver_that_writes,
    a_restoring_that_saves,
    a_restoring_that_calls_the_saver,
    a_restoring_of_another_file,
    a_restoring_by_another_name,
    an_asset,
    an_asset_object,
    a_resource,
    a_class_of_somebody,
    no_objects,
    a_collection,
    two_functions_of_one_name,
)


def test_saved_models_that_do_more_than_compute(dist):
    path, whole, faults = dist / "saved_model/1", saved_model(dist), {}
    require_known_operations("saved_model", path)
    for change in CHANGES:
        proto = type(whole)()
        proto.CopyFrom(whole)
        change(proto.meta_graphs[0])
        (path / "saved_model.pb").write_bytes(proto.SerializeToString())
        check = functools.partial(require_known_operations, "saved_model")
        faults[change.__name__] = find_fault(path, "was not opened", check=check)
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_a_saved_model_that_writes_writes_nothing(dist, tmp_path):
    import tensorflow as tf

    class Hostile(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3))])
        def serve(self, images):
            tf.io.write_file(str(tmp_path / "PWNED"), tf.io.read_file("/etc/passwd"))
            return images[:, 0, 0]

    shutil.rmtree(dist / "saved_model/1")
    tf.saved_model.save(Hostile(), str(dist / "saved_model/1"))
    shutil.rmtree(dist / "saved_model/1/assets")
    edit(dist, lambda about: about["artefacts"].pop(0))
    (dist / "model.onnx").unlink()
    sign(dist)
    refused(dist, "was not opened: it has the operation (Read|Write)File")
    assert not (tmp_path / "PWNED").exists()


def test_two_graphs(dist):
    proto = saved_model(dist)
    proto.meta_graphs.add()
    (dist / "saved_model/1/saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(ExportError, match="2 graphs"):
        require_known_operations("saved_model", dist / "saved_model/1")


def read_everything(folder):
    ExportFolder(folder).digests()
    about = read_model_json(folder)
    read_examples(folder / "examples.npz", about["inputs"], about["outputs"])
    for entry in about["artefacts"]:
        require_known_operations(entry["format"], folder / entry["file"])


@pytest.mark.slow
@pytest.mark.parametrize("name", (MANIFEST, "model.json", "examples.npz", "model.onnx", "saved_model/1/saved_model.pb"))
def test_mutated_files_are_refused_or_read(name, dist):
    random = np.random.default_rng(0)
    whole, refusals = (dist / name).read_bytes(), 0
    for _ in range(60):
        data = bytearray(whole)
        for place in random.integers(0, len(data), 8):
            data[place : place + random.integers(2)] = random.bytes(random.integers(3))
        (dist / name).write_bytes(data)
        try:
            read_everything(dist)
        except ExportError as error:
            refusals += 1
            assert str(error).isprintable()
    assert refusals > 20


def test_garbage(tmp_path):
    path = tmp_path / "saved_model.pb"
    for data in (b"", b"\xff" * 100, b"\x08\x01" * 50, bytes(range(256))):
        path.write_bytes(data)
        for name, place in (("saved_model", tmp_path), ("onnx", path), ("tflite", path)):
            with pytest.raises(ExportError):
                require_known_operations(name, place)


def custom_operator(proto):
    proto.graph.node.add(op_type="Act", domain="com.evil", name="act")


def operator_of_nobody(proto):
    proto.graph.node.add(op_type="Act", name="act")


def operator_in_a_branch(proto):
    branch = onnx.helper.make_graph([onnx.helper.make_node("Act", [], [], domain="com.evil")], "g", [], [])
    proto.graph.node.append(onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))


def data_outside(proto):
    tensor = proto.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../etc/passwd")


def data_in_an_attribute(proto):
    tensor = onnx.TensorProto(name="t", data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    proto.graph.node.append(onnx.helper.make_node("Constant", [], ["y"], value=tensor))


def a_function(proto):
    proto.functions.add(name="act")


def test_onnx_that_does_more_than_compute(dist):
    require_known_operations("onnx", dist / "model.onnx")
    contents = {}
    for change in (
        custom_operator,
        operator_of_nobody,
        operator_in_a_branch,
        data_outside,
        data_in_an_attribute,
        a_function,
    ):
        proto = onnx.load(dist / "model.onnx")
        change(proto)
        contents[change.__name__] = proto.SerializeToString()
    refused_each(dist / "model.onnx", contents, "was not opened")


def tflite_file(**fields):
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    code = schema.OperatorCodeT()
    model = schema.ModelT()
    model.operatorCodes, model.subgraphs, model.buffers = [code], [], []
    for name, value in fields.items():
        setattr(model if hasattr(model, name) else code, name, value)
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_tflite_that_does_more_than_compute(tmp_path):
    from ai_edge_litert import schema_py_generated as schema

    group = schema.ExternalBufferGroupT()
    group.name = "/etc/passwd"
    hostile = (
        {"builtinCode": schema.BuiltinOperator.CUSTOM, "customCode": "FlexWriteFile"},
        {"deprecatedBuiltinCode": schema.BuiltinOperator.CUSTOM},
        {"customCode": "act\x1b[31m"},
        {"builtinCode": schema.BuiltinOperator.STABLEHLO_CUSTOM_CALL},
        {"externalBufferGroups": [group]},
    )
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite_file())
    require_known_operations("tflite", path)
    for fields in hostile:
        path.write_bytes(tflite_file(**fields))
        with pytest.raises(ExportError, match="was not opened") as caught:
            require_known_operations("tflite", path)
        assert str(caught.value).isprintable()


def the_model(proto):
    pass


def other_weights(proto):
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("head"):
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array[..., ::-1].copy(), tensor.name))


def no_numbers(proto):
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == "float32":
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(np.nan), tensor.name))


def one_output_more(proto):
    proto.graph.output.append(proto.graph.output[0])
    proto.graph.output[1].name = "twin"
    proto.graph.node.append(onnx.helper.make_node("Identity", [proto.graph.output[0].name], ["twin"]))


def a_missing_input(proto):
    proto.graph.node[0].input[0] = "nothing"


@pytest.mark.parametrize(
    ("change", "words", "error"),
    [
        (the_model, None, None),
        (other_weights, "does not match the model", ParityError),
        (no_numbers, "does not match the model", ParityError),
        (one_output_more, "has outputs of the shapes", ParityError),
        (a_missing_input, "does not run", ExportError),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_right_digests_prove_nothing_alone(change, words, error, dist):
    shutil.rmtree(dist / "saved_model")
    proto = onnx.load(dist / "model.onnx")
    change(proto)
    (dist / "model.onnx").write_bytes(proto.SerializeToString())
    edit(dist, lambda about: about["artefacts"].pop())
    if error is None:
        assert export.verify(dist)[0].max_rel_diff < 1e-5
    else:
        refused(dist, words, error)


def test_an_artefact_that_never_ends(dist, monkeypatch):
    monkeypatch.setattr(verification, "LEAST_TIME", 0.01)
    refused(dist, "takes longer than 0.01 seconds")


def endless_onnx(path):
    """The file with a loop of 2^62 steps in place of its model."""
    helper, names = onnx.helper, [x.name for x in onnx.load(path).graph.input]
    value, flag = (onnx.TensorProto.FLOAT, [None, 16, 16, 3]), (onnx.TensorProto.BOOL, [])
    step = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Sin", ["x"], ["y"])],
        "step",
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [])]
        + [helper.make_tensor_value_info(name, *kind) for name, kind in (("on", flag), ("x", value))],
        [helper.make_tensor_value_info(name, *kind) for name, kind in (("go", flag), ("y", value))],
    )
    constants = [helper.make_tensor("n", onnx.TensorProto.INT64, [], [2**62]), helper.make_tensor("t", 9, [], [True])]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "t", names[0]], ["last"], body=step)],
        "endless",
        [helper.make_tensor_value_info(names[0], *value)],
        [helper.make_tensor_value_info("last", *value)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def has_ended(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # which nobody collected


def has_run(process, seconds):
    with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended since its parent named it
        return process.cpu_times().user >= seconds


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process asks to end with another")
@pytest.mark.parametrize("end", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_nothing_of_an_artefact_outlives_the_one_who_waits(end, dist):
    shutil.rmtree(dist / "saved_model")
    endless_onnx(dist / "model.onnx")
    edit(dist, lambda about: about["artefacts"].pop())
    with subprocess.Popen([sys.executable, "-m", "keras_vit", "verify", dist], stderr=subprocess.DEVNULL) as process:
        children = []
        try:
            while not any(has_run(child, 5) for child in children):  # by then it runs the loop
                assert process.poll() is None
                children = psutil.Process(process.pid).children()
                time.sleep(0.1)
            process.send_signal(end)
            process.wait(60)
            until = time.monotonic() + 60
            while not all(map(has_ended, children)) and time.monotonic() < until:
                time.sleep(0.1)
            assert all(map(has_ended, children))
        finally:
            for child in [*children, process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


def test_the_help_says_what_it_shows():
    from typer.testing import CliRunner

    from keras_vit.cli import app

    words = " ".join(CliRunner().invoke(app, ["verify", "--help"]).output.split())
    assert "cannot show who made the bundle" in words and "are not opened" in words


def test_an_export_that_was_cut_off(dist):
    contents = json.loads((dist / MANIFEST).read_text())
    for known in ([contents["files"]["README.md"], "0" * 64], []):
        contents["files"]["README.md"] = known
        (dist / MANIFEST).write_text(json.dumps(contents))
        refused(dist, "was cut off")

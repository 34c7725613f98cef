"""The rows of the formats, and what follows from them elsewhere."""

import ast
import re
import zipfile
from pathlib import Path

import onnx
import pytest

from keras_vit.commands import export as command
from keras_vit.errors import ExportError
from keras_vit.export import formats, staging
from keras_vit.export.card import predict_source
from keras_vit.export.opening import find_artefact
from keras_vit.export.proof.parity import KINDS

ROWS = pytest.mark.parametrize("row", formats.FORMATS, ids=lambda row: row.name)


@ROWS
def test_the_protocol_of_a_format(row):
    assert callable(row.load_writer().write)
    reading = row.load_reader()
    assert all(callable(getattr(reading, name)) for name in ("load", f"load_{row.name}", "check", "weight_bytes"))
    assert row.is_folder or callable(reading.read_description)


def test_what_other_makers_store_is_no_description(tmp_path):
    """labels.txt at the end of a TFLite file; a property of an ONNX file that has one of our names."""
    with zipfile.ZipFile(tmp_path / "x.tflite", "w") as archive:
        archive.writestr("labels.txt", "cat")
    properties = [onnx.StringStringEntryProto(key="inputs", value="pixels in [0, 1]")]
    (tmp_path / "x.onnx").write_bytes(onnx.ModelProto(metadata_props=properties).SerializeToString())
    assert [find_artefact(path)[2] for path in tmp_path.iterdir()] == [None, None]


@ROWS
def test_an_export_may_write_the_files_of_a_format(row):
    for name in row.bundled_files():
        assert staging.NAMES.fullmatch(name)
        assert not staging.NAMES.fullmatch(f"{name}x") and not staging.NAMES.fullmatch(f"x{name}")
    assert formats.format_named(row.name) is formats.format_of_path(f"vit{row.suffix}") is row


def test_external_data_is_recognised():
    assert formats.data_files(Path("a.b.onnx")).fullmatch("a.b-0123456789ab.onnx.data")
    assert not formats.data_files(Path("a.b.stablehlo")).fullmatch("a.b-0123456789ab.onnx.data")
    for name in ("a.b-0123456789ag.onnx.data", "a.b-0123456789ab.tflite.data", "axb-0123456789ab.onnx.data", "a.b"):
        assert not formats.data_files(Path("a.b.onnx")).fullmatch(name)


def test_the_command_line_offers_the_rows():
    assert list(command.Format) == list(formats.NAMES) and list(command.Quantize) == list(formats.QUANTIZE)
    assert {kind.name for kind in KINDS} == {None, *formats.QUANTIZE}


def test_unknown_names_and_suffixes():
    with pytest.raises(ExportError, match=f"'caffe'. Expected: {', '.join(formats.NAMES)}"):
        formats.format_named("caffe")
    with pytest.raises(ExportError, match=r"ends in .onnx or .*, or, for a SavedModel, one without a suffix"):
        formats.format_of_path("model.pb")


@ROWS
def test_predict_py_has_the_loaders_of_its_bundle_alone(row):
    text = predict_source([row.name])
    tree = ast.parse(text)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [name for name in functions if name in {f"load_{name}" for name in formats.NAMES}] == [f"load_{row.name}"]
    assert "keras" not in {module.split(".")[0] for module in re.findall(r"^ *(?:import|from) (\S+)", text, re.M)}
    assert "keras_vit" not in text

"""Exports of one format into a bundle that has others."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_vit import export
from keras_vit.errors import ExportError
from keras_vit.export.bundling import count_examples, keep_artefacts
from keras_vit.export.staging import ExportFolder
from keras_vit.models import VisionTransformer

pytestmark = pytest.mark.usefixtures("forked_converters")
TINY = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=3)


def vit(seed, labels=("a", "b", "c"), **fields):
    model = VisionTransformer(**TINY | fields, labels=labels)
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    export.bundle(vit(0), out := tmp_path_factory.mktemp("made") / "dist", ["onnx", "saved_model"])
    return out


@pytest.fixture
def dist(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "dist"))


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def formats_in(folder):
    return [entry["format"] for entry in json.loads((folder / "model.json").read_text())["artefacts"]]


@pytest.mark.slow
def test_another_format_of_the_same_model_joins_the_others(dist):
    before, said = contents(dist), []
    reports = export.bundle(vit(0), dist, ["tflite"], "dynamic", progress=said.append)
    assert [report.format for report in reports] == ["tflite"] and formats_in(dist) == ["onnx", "tflite", "saved_model"]
    assert "onnx: kept as it is, of the same model" in said
    after = contents(dist)
    for name in before:
        if name.startswith(("model.onnx", "saved_model/")):
            assert after[name] == before[name]
    assert export.verify(dist)
    script = after["predict.py"].decode()
    assert all(f"def load_{name}(" in script for name in formats_in(dist))


@pytest.mark.parametrize(
    "other",
    [
        lambda: vit(1),
        pytest.param(lambda: vit(0, labels=("a", "b", "x")), marks=pytest.mark.slow),
        pytest.param(lambda: vit(0, image_size=32), marks=pytest.mark.slow),
    ],
)
def test_another_model_does_not_stand_beside_them(dist, other):
    before = contents(dist)
    with pytest.raises(ExportError, match="has onnx and saved_model of another model"):
        export.bundle(other(), dist, ["tflite"])
    assert contents(dist) == before


@pytest.mark.slow
def test_all_formats_at_once_replace_another_model(dist):
    export.bundle(vit(1), dist, ["onnx", "saved_model"])
    assert formats_in(dist) == ["onnx", "saved_model"] and export.verify(dist)


def test_examples_are_whole_batches_of_every_artefact():
    assert count_examples(4, [{"batches": [1, 3]}]) == 4
    assert count_examples(4, [{"batches": [2]}, {"batches": [6]}, {"batches": [1, 3]}]) == 6
    with pytest.raises(ExportError, match="1,024 at most. Batches of 64 and 100 need 1,600. Choose other batch sizes"):
        count_examples(4, [{"batches": [64]}, {"batches": [100]}])


def test_an_artefact_that_a_killed_export_had_begun_to_replace_does_not_stay(tmp_path):
    """It may be of either model: only one that both exports listed alike stays."""
    ExportFolder(tmp_path).save({"model.onnx": ["0" * 64, "1" * 64], "model.tflite": ["0" * 64]})
    (tmp_path / "model.tflite").write_text("whole")
    keep_artefacts(tmp_path, [{"format": "tflite"}], tmp_path / "new")
    assert (tmp_path / "new/model.tflite").read_text() == "whole"
    with pytest.raises(ExportError, match="cut off while it replaced model.onnx. Export to onnx too"):
        keep_artefacts(tmp_path, [{"format": "tflite"}, {"format": "onnx"}], tmp_path / "new")
    (tmp_path / "model.tflite").unlink()
    with pytest.raises(ExportError, match="model.tflite is missing, .* Export to tflite too"):
        keep_artefacts(tmp_path, [{"format": "tflite"}], tmp_path / "new")

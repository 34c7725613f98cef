"""`keras-vit export hf://owner/repo`: from a repository of the Hub to files and a page, in one command."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from file_server import Server, show_repository
from golden import GOLDEN
from PIL import Image
from runtimes import RUN
from slowness import mark_but
from typer.testing import CliRunner

from keras_vit import export, zoo
from keras_vit.cli import app
from keras_vit.models import Preprocessing

FAMILY = GOLDEN / "family"
# {repository: more words}; all take images of 16 x 16.
MODELS = {"hf_deit": (), "hf_siglip_classifier": (), "hf_clip": ("--class-vectors", "texts.npz")}
STATED = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 16},
    "crop_size": {"height": 16, "width": 16},
    **{name: True for name in ("do_resize", "do_center_crop", "do_normalize")},
    "resample": 3,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mark_but(pytest.mark.long, MODELS, "hf_clip"))
def test_one_command(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    shutil.copytree(FAMILY / name, "repository")
    (tmp_path / "repository/preprocessor_config.json").write_text(json.dumps(STATED))
    with np.load(FAMILY / name / "io.npz") as io:
        expected = io["16x16"]
    images = np.load(FAMILY / "images.npz")["16x16"].astype("float32")
    if name == "hf_clip":
        texts = np.random.default_rng(0).normal(size=(4, expected.shape[-1])).astype("float32")
        np.savez("texts.npz", class_vectors=texts, labels=list("abcd"), scale=10.0)
        units = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (expected.astype("float64"), texts)]
        expected = 10 * units[0] @ units[1].T
    with Server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.origin)
        hub.faults = [show_repository(tmp_path / "repository")]
        words = ["export", "hf://owner/repo", *MODELS[name], "--to", "onnx", "tflite", "--web", "--out", "dist"]
        done = CliRunner().invoke(app, words)
        hub.shutdown()
    assert done.exit_code == 0, (done.output, done.exception)
    for file in ("model.onnx", "model.tflite"):
        found = RUN[file](tmp_path / "dist" / file, images)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    page = json.loads((tmp_path / "dist/web/model.json").read_text())
    assert page["probabilities"] == "softmax"
    assert page["labels"] == (list("abcd") if name == "hf_clip" else None)  # LABEL_0 is no name


@pytest.mark.slow
def test_predict_py_prints_the_vectors_of_a_model_without_classes(tmp_path):
    """Of a projection, as CLIP's, and of a model without a head."""
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), "uint8")
    Image.fromarray(image).save(tmp_path / "image.png")
    for name in ("hf_clip", "hf_dinov2"):
        model = zoo.load(FAMILY / name / "model.safetensors", image_size=16)
        model.preprocessing = Preprocessing((16, 16))
        export.bundle(model, tmp_path / name, ["onnx"])
        command = [sys.executable, tmp_path / name / "predict.py", tmp_path / "image.png"]
        path, *numbers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("\t")
        expected = np.asarray(model(model.preprocessing(image[None])))[0]
        assert path == str(tmp_path / "image.png") and len(numbers) == len(expected)
        np.testing.assert_allclose(np.array(numbers, float), expected, atol=1e-4 * np.abs(expected).max())

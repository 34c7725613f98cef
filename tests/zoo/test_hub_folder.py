"""`zoo.save(layout="hub")`: one folder, opened by five libraries where they are installed; and what it leaves out."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
from golden import GOLDEN
from safetensors.numpy import load_file, save_file

from keras_vit import hub_folder, zoo
from keras_vit.errors import CheckpointError, ExportError, PreprocessingError
from keras_vit.models import Preprocessing, VisionTransformer

OPENERS = Path(__file__).parents[1] / "support" / "hub_openers.py"
SIZES = {"image_size": 32, "num_classes": 5, "labels": ["a", "b", "c", "d", "e"]}
# {case: (variant, arguments, the loaders that cannot hold it)}
MODELS = {
    "exact": ("ViT-Ti/16", {**SIZES, "gelu_approximate": False}, ()),
    "tanh": ("ViT-Ti/16", SIZES, ("keras-hub",)),
    "mean": ("ViT-Ti/16", {**SIZES, "classifier": "gap"}, ("keras-hub",)),
    "vector": ("ViT-Ti/16", {"image_size": 32, "num_classes": 0, "gelu_approximate": False}, ("keras-hub",)),
    "dinov2": ("ViT-Ti/16", {"image_size": 32, "num_classes": 0, "layer_scale": 0.1}, ("keras-hub",)),
    "registers": (
        "ViT-Ti/16",
        {**SIZES, "classifier": "gap", "num_registers": 2},
        ("transformers", "keras-hub"),
    ),
    "resnet": ("R50x1", {**SIZES, "image_size": 64}, ("transformers", "keras-hub")),
    "hybrid": ("R26+ViT-S/32", {**SIZES, "image_size": 64}, ("transformers", "keras-hub")),
}
SHORT = ("exact", "mean")
TOLERANCE = {"resnet": 1e-4, "hybrid": 1e-4}  # timm standardizes kernels at an epsilon of its own


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] + [pytest.mark.long] * (name not in SHORT)) for name in MODELS],
)
def saved(request, tmp_path_factory):
    variant, arguments, without = MODELS[request.param]
    keras.utils.set_random_seed(0)
    model, folder = zoo.load(variant, weights=None, **arguments), tmp_path_factory.mktemp("hub") / request.param
    if model.config.num_classes:
        kernel = model.get_layer("head").kernel
        kernel.assign(np.random.default_rng(0).normal(0, 0.05, kernel.shape))
    zoo.save(model, folder, layout="hub", metadata={"licence": "apache-2.0"})
    images = np.random.default_rng(1).uniform(-1, 1, (2, *model.config.own_size, 3)).astype("float32")
    np.savez(folder.with_suffix(".npz"), images=images, outputs=model.predict_on_batch(images))
    return request.param, folder, without


def test_it_is_written_for_those_that_can_hold_it(saved):
    name, folder, without = saved
    card = (folder / "README.md").read_text()
    assert 'license: "apache-2.0"' in card
    lines = {row.split(" | ")[0].lstrip("| "): row for row in card.splitlines() if row.startswith("| ")}
    assert {loader for loader in hub_folder.LINES if "FOLDER" not in lines[loader]} == set(without)
    assert (folder / "model.safetensors").exists() == ("transformers" not in without)
    config, is_vector = json.loads((folder / "config.json").read_text()), name in ("vector", "dinov2")
    assert ("id2label" in config, "image-feature-extraction" in lines["transformers.js"]) == (not is_vector, is_vector)
    with np.load(folder.with_suffix(".npz")) as file:
        images, outputs = file["images"], file["outputs"]
    np.testing.assert_array_equal(zoo.load(folder).predict_on_batch(images), outputs)
    session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
    (found,) = session.run(["logits"], {"pixel_values": np.ascontiguousarray(images.transpose(0, 3, 1, 2))})
    np.testing.assert_allclose(found, outputs, atol=1e-4)


@pytest.mark.parametrize("library", ["transformers", "timm", "keras_hub"])
def test_a_library_opens_it_and_computes_the_same(saved, library):
    name, folder, without = saved
    needed = (library,) if library == "keras_hub" else (library, "torch")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{' and '.join(missing)}: not installed")
    if library.replace("_", "-") in without:
        pytest.skip(f"{library} cannot hold it, as README.md says")
    done = subprocess.run([sys.executable, OPENERS, library, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) < TOLERANCE.get(name, 1e-5)


def test_the_tensors_are_those_that_transformers_wrote(tmp_path):
    with pytest.raises(PreprocessingError, match="Set model.preprocessing"):
        zoo.save(zoo.load(GOLDEN / "hf_vit.safetensors", num_heads=4), tmp_path / "model", layout="hub")
    model = zoo.load(GOLDEN / "hf_vit.safetensors", num_heads=4)
    model.preprocessing = Preprocessing(model.config.image_size)
    zoo.save(model, tmp_path / "model", layout="hub")
    files = (tmp_path / "model/model.safetensors", GOLDEN / "hf_vit.safetensors")
    own, theirs = ({values.tobytes() for values in load_file(file).values()} for file in files)
    assert own == theirs and len(own) > 30  # under older names, which later versions read, too
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert (config["model_type"], config["architecture"]) == ("vit", "vit_base_patch16_224")


def test_several_classes_per_image_are_stated_and_read(tmp_path):
    """transformers' pipelines take the sigmoid of each logit if config.json has this problem_type, else the softmax."""
    arguments = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}
    model = VisionTransformer(**arguments, num_classes=3, probabilities="sigmoid")
    zoo.save(model, tmp_path / "model.safetensors", layout="transformers")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    save_file(load_file(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")  # as a file of others
    assert zoo.load(tmp_path).config.probabilities == "sigmoid"
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "single_label_classification"}))
    assert zoo.load(tmp_path).config.probabilities == "softmax"


def test_a_model_of_grey_pictures_has_a_folder_without_transformers_js(tmp_path):
    arguments = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}
    model = VisionTransformer(**arguments, num_classes=3, num_channels=1)
    model.preprocessing = Preprocessing((32, 32), mean=(0.5,), std=(0.5,))
    zoo.save(model, tmp_path / "model", layout="hub")
    assert "transformers.js feeds RGB images" in (tmp_path / "model/README.md").read_text()
    assert zoo.load(tmp_path / "model").config.num_channels == 1


@pytest.mark.slow
def test_what_it_wrote_is_replaced_and_nothing_else(tmp_path):
    model = zoo.load("ViT-Test/4", weights=None)
    zoo.save(model, tmp_path / "model", layout="hub")
    zoo.save(model, tmp_path / "model", layout="hub", metadata={"licence": "mit"})
    assert 'license: "mit"' in (tmp_path / "model/README.md").read_text()
    (tmp_path / "yours").mkdir()
    (tmp_path / "yours/README.md").write_text("mine")
    with pytest.raises(ExportError, match="README.md"):
        zoo.save(model, tmp_path / "yours", layout="hub")
    assert [path.name for path in (tmp_path / "yours").iterdir()] == ["README.md"]


def test_other_models_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="zoo.save writes models of this package"):
        zoo.save(keras.Sequential([keras.Input((4,))]), tmp_path / "model", layout="hub")

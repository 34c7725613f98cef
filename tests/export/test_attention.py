"""The further output "attention" of ONNX and TFLite files: that of the model, of the same pass as its logits."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from PIL import Image
from shaking import shaken
from slowness import mark_but

from keras_vit import export
from keras_vit.errors import ExportError, ParityError
from keras_vit.export.formats import require_known_operations
from keras_vit.export.staging import MANIFEST, ExportFolder
from keras_vit.models import AxialVisionTransformer, ResNet, VisionTransformer
from keras_vit.owned import files_in

pytestmark = pytest.mark.usefixtures("forked_converters")
TINY = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "mlp_dim": 64}
MODELS = {
    "token": lambda: VisionTransformer(**TINY, num_classes=3),
    "gap": lambda: VisionTransformer(**TINY, num_classes=3, classifier="gap", representation_size=16),
    "hybrid": lambda: VisionTransformer(
        **(TINY | {"patch_size": 1}), num_classes=3, backbone={"depths": (1,), "width_factor": 0.5}
    ),
    "axial": lambda: AxialVisionTransformer(**TINY, num_classes=3),
    "positions": lambda: VisionTransformer(**TINY, num_classes=3, position_embedding_at="every-layer"),
}
IMAGES = np.random.default_rng(1).uniform(-1, 1, (3, 16, 24, 3)).astype("float32")


@pytest.fixture(scope="module")
def model():
    return shaken(MODELS["token"](), deviation=0.2)


def weigh_by_hand(model, images):
    """Eq. 6 in float64, block after block: softmax of the scaled products of queries and keys of the model's tokens."""
    found = []
    for i in range(model.config.num_layers):
        block = model.get_layer(f"encoderblock_{i}")
        z = np.asarray(keras.Model(model.input, block.input)(images), "float64")
        norm, attention = block.attention_norm, block.attention
        z = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + norm.epsilon)
        z = z * np.asarray(norm.gamma) + np.asarray(norm.beta)
        q, k = (z @ np.asarray(dense.kernel) + np.asarray(dense.bias) for dense in (attention.query, attention.key))
        q, k = (x.reshape(*x.shape[:2], attention.num_heads, -1).transpose(0, 2, 1, 3) for x in (q, k))
        a = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]))
        found.append(a / a.sum(-1, keepdims=True))
    return np.stack(found, axis=1)


def run_onnx(path, images):
    return onnxruntime.InferenceSession(path).run(["attention"], {"images": images})[0]


def run_tflite(path, images):
    return Interpreter(str(path)).get_signature_runner()(images=images)["attention"]


@pytest.mark.parametrize("kind", MODELS)
def test_onnx_has_the_attention_of_every_kind_of_model(kind, tmp_path):
    model = shaken(MODELS[kind](), deviation=0.2)
    report = export.convert(model, tmp_path / "m.onnx", endpoints=("attention",))
    require_known_operations("onnx", tmp_path / "m.onnx")
    attention = run_onnx(tmp_path / "m.onnx", IMAGES)
    assert attention.dtype == np.float32 and attention.shape[1:3] == (2, 4)
    np.testing.assert_allclose(attention, np.asarray(model.attention(IMAGES)), atol=1e-5)
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    assert 0 < report.further_outputs["attention"] < 1e-4
    assert [x.name for x in onnx.load(tmp_path / "m.onnx").graph.output][1:] == ["attention"]
    assert model.get_layer("encoderblock_0").output is not None  # no trace of it is left on the layers


def test_it_is_equation_6(model, tmp_path):
    export.convert(model, tmp_path / "m.onnx", endpoints=("attention",))
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", IMAGES), weigh_by_hand(model, IMAGES), atol=1e-5)


RUNTIMES = {"m.onnx": run_onnx, "m.tflite": run_tflite}
CASES = list(itertools.product(RUNTIMES, (None, "float16", "dynamic", "int8")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantize"), mark_but(pytest.mark.long, CASES, ("m.onnx", "dynamic"), ("m.tflite", "int8"))
)
def test_of_a_quantized_file_it_is_the_files_own(model, name, quantize, tmp_path):
    report = export.convert(model, tmp_path / name, quantize=quantize, endpoints=("attention",), batch_size=3)
    require_known_operations(report.format, tmp_path / name)
    attention, expected = RUNTIMES[name](tmp_path / name, IMAGES), np.asarray(model.attention(IMAGES))
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-3)
    difference = np.abs(attention - expected).max()
    low, high = {None: (0, 1e-5), "float16": (1e-5, 1e-2)}.get(quantize, (1e-3, 0.3))
    assert low <= difference < high


class Swapped(VisionTransformer):
    """One whose pass with attention has the blocks in another order."""

    def attention(self, images):
        return super().with_attention(images)[1]

    def with_attention(self, images):
        outputs, attention = super().with_attention(images)
        return outputs, keras.ops.concatenate([attention[:, 1:], attention[:, :1]], axis=1)


def test_another_attention_than_the_models_is_refused(tmp_path):
    with pytest.raises(ParityError, match="largest difference"):
        export.convert(shaken(Swapped(**TINY, num_classes=3)), tmp_path / "m.onnx", endpoints=("attention",))
    assert not list(tmp_path.iterdir())


def test_logits_that_say_nothing_are_still_proved_by_the_layers(tmp_path):
    """Those of a new zero head are the same for every image, whatever the attention is."""
    report = export.convert(MODELS["token"](), tmp_path / "m.onnx", endpoints=("attention",))
    assert report.top1_agreement == 1


@pytest.mark.parametrize("name", ["m.onnx", "m.tflite"])
def test_a_model_without_attention_is_refused(name, tmp_path):
    resnet = ResNet((32, 32), depths=(1,), width_factor=0.5, num_classes=3)
    with pytest.raises(ExportError, match="'res_net.*' has no endpoint 'attention'"):
        export.convert(resnet, tmp_path / name, endpoints=("attention",))
    with pytest.raises(ExportError, match="Only a SavedModel can have the endpoint 'features'.*: 'attention'"):
        export.convert(resnet, tmp_path / name, endpoints=("features",))


@pytest.fixture(scope="module")
def made(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle") / "dist"
    export.bundle(model, out, ["onnx"], endpoints=("attention",))
    return out


def test_a_bundle_tells_of_it(made):
    about = json.loads((made / "model.json").read_text())
    shape = [None, 2, 4, 7, 7]
    assert about["further_outputs"] == [{"name": "attention", "shape": shape, "dtype": "float32"}]
    assert [list(entry["further_outputs"]) for entry in about["artefacts"]] == [["attention"]]
    assert f"- Output `attention`, {shape} float32: model.onnx (largest difference" in (made / "README.md").read_text()


def test_predict_py_still_takes_the_logits(made, tmp_path):
    Image.fromarray(np.zeros((16, 24, 3), "uint8")).save(tmp_path / "image.png")
    done = subprocess.run([sys.executable, made / "predict.py", tmp_path / "image.png"], capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3, done.stderr


def test_verify_compares_it_again(made, tmp_path):
    (report,) = export.verify(made)
    assert 0 < report.further_outputs["attention"] < 1e-4
    dist = Path(shutil.copytree(made, tmp_path / "dist"))
    arrays = dict(np.load(dist / "examples.npz"))
    arrays["output_1"] = np.roll(arrays["output_1"], 1, axis=1)
    np.savez_compressed(dist / "examples.npz", **arrays)
    (dist / MANIFEST).unlink()
    ExportFolder(dist).enter(files_in(dist))
    with pytest.raises(ParityError, match=r"model.onnx does not match the model"):
        export.verify(dist)


@pytest.mark.slow
def test_it_stays_when_another_format_is_exported(made, model, tmp_path):
    dist = Path(shutil.copytree(made, tmp_path / "dist"))
    export.bundle(model, dist, ["saved_model"])
    about = json.loads((dist / "model.json").read_text())
    assert [list(entry["further_outputs"]) for entry in about["artefacts"]] == [["attention"], []]
    assert len(np.load(dist / "examples.npz").files) == 3


def test_a_bundle_cannot_name_other_methods(made, model, tmp_path):
    dist = Path(shutil.copytree(made, tmp_path / "dist"))
    about = json.loads((dist / "model.json").read_text().replace('"attention"', '"save"'))
    (dist / "model.json").write_text(json.dumps(about))
    (dist / MANIFEST).unlink()
    ExportFolder(dist).enter(files_in(dist))
    with pytest.raises(ExportError, match="its field 'further_outputs'"):
        export.bundle(model, dist, ["saved_model"])

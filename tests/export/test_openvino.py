"""OpenVINO IR in OpenVINO, opened as its users would."""

import re
import shutil

import keras
import numpy as np
import pytest
from runtimes import run_onnx
from shaking import shaken

from keras_vit import export, inference
from keras_vit.errors import ExportError
from keras_vit.export.formats import require_known_operations
from keras_vit.export.openvino import open_core
from keras_vit.export.staging import stage
from keras_vit.models import Preprocessing, ResNet, VisionTransformer

pytest.importorskip("openvino")
TINY = {"image_size": 32, "patch_size": 4, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "mlp_dim": 128}
LABELS = ('say "cat"', "<dog>", "hen\x1b é")


def run_openvino(path, x):
    core = open_core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([x])[compiled.output(0)]


@pytest.fixture(scope="module")
def vit():
    keras.utils.set_random_seed(0)
    return shaken(VisionTransformer(**TINY, num_classes=3, labels=LABELS, preprocessing=Preprocessing((32, 32))))


@pytest.fixture(scope="module")
def made(vit, tmp_path_factory):
    out = tmp_path_factory.mktemp("openvino") / "vit.openvino"
    export.convert(vit, out)
    return out


def images(shape, batch):
    return np.random.default_rng(batch).uniform(-1, 1, (batch, *shape)).astype("float32")


def test_the_folder_is_the_model_at_any_batch_size(vit, made):
    for batch in (1, 2, 5):
        x = images((32, 32, 3), batch)
        np.testing.assert_allclose(run_openvino(made / "openvino_model.xml", x), vit(x, training=False), atol=1e-5)
    assert "ViT" not in made.name and str(made.parent) not in (made / "openvino_model.xml").read_text()


def test_the_folder_and_its_graph_are_asked(vit, made):
    for place in (made, made / "openvino_model.xml"):
        asked = inference.open_classifier(place)
        assert asked.labels == LABELS and asked.preprocessing == vit.preprocessing
        x = images((32, 32, 3), 2)
        np.testing.assert_allclose(asked(x), vit(x, training=False), atol=1e-5)


@pytest.mark.slow
def test_quantized_weights_stay_small_and_outputs_near(tmp_path):
    """As near as those of the ONNX file in onnxruntime, by which the layers' ways are chosen."""
    keras.utils.set_random_seed(0)
    resnet = shaken(ResNet(image_size=64, depths=(1, 1), width_factor=0.5, num_classes=7))
    vit = shaken(VisionTransformer(**TINY, num_classes=7))
    for model, kinds in ((vit, ("float16", "dynamic")), (resnet, ("float16", "dynamic", "int8"))):
        x = images(model.input_shape[1:], 3)
        expected = model.predict(x, verbose=0)
        for kind in kinds:
            report = export.convert(model, tmp_path / "m.openvino", quantize=kind)
            export.convert(model, tmp_path / "m.onnx", quantize=kind)
            found = run_openvino(tmp_path / "m.openvino/openvino_model.xml", x)
            other = run_onnx(tmp_path / "m.onnx", x)
            assert report.model_weight_bytes / report.weight_bytes > (1.8 if kind == "float16" else 3)
            assert np.abs(found - expected).max() < 2 * np.abs(other - expected).max() + 1e-3, kind


@pytest.mark.slow
def test_a_bundle_with_a_calibrated_fixed_batch_is_verified(vit, tmp_path):
    with pytest.raises(ExportError, match='cannot compile this model in "int8". Fix the batch by batch_size=1'):
        export.convert(vit, tmp_path / "vit.openvino", quantize="int8")
    export.bundle(vit, tmp_path / "dist", ["openvino"], "int8", batch_size=1, endpoints=("attention",))
    (report,) = export.verify(tmp_path / "dist")
    assert report.batches == (1,) and report.further_outputs["attention"] < 0.1
    assert inference.open_classifier(tmp_path / "dist").labels == LABELS
    text = (tmp_path / "dist/predict.py").read_text()
    assert "def load_openvino" in text and "import openvino" in text


def test_a_later_export_replaces_the_folder_and_nothing_else(vit, made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "vit.openvino")
    export.convert(vit, copy)
    assert sorted(x.name for x in copy.iterdir()) == sorted(x.name for x in made.iterdir())
    (copy / "openvino_model.bin").write_bytes(b"mine")
    with pytest.raises(ExportError, match="openvino_model.bin"), stage(copy, ["openvino_model.bin"], is_folder=True):
        pass


ATTACKS = {
    "of extension, not of OpenVINO's own sets": ('version="opset1"', 'version="extension"'),
    "definitions of XML": ("<net", '<!DOCTYPE net [<!ENTITY a "b">]><net'),
    "is damaged": ("</net>", ""),
    "no operations": (r"(?s)<layers>.*</layers>", "<layers></layers>"),
}


def test_a_graph_that_could_do_more_is_refused(made, tmp_path):
    for i, (message, (old, new)) in enumerate(ATTACKS.items()):
        copy = shutil.copytree(made, tmp_path / str(i))
        text = (copy / "openvino_model.xml").read_text()
        (copy / "openvino_model.xml").write_text(re.sub(old, new, text, count=1))
        with pytest.raises(ExportError, match=message):
            require_known_operations("openvino", copy)
    text = (made / "openvino_model.xml").read_text()
    for content, message in (
        (text.replace("<layers>", '<layers xmlns="u"><layer xmlns="" version="opset1"/>').encode(), "was not opened"),
        (text.encode("utf-16"), "is damaged: 'utf-8' codec"),
    ):
        (copy / "openvino_model.xml").write_bytes(content)
        with pytest.raises(ExportError, match=message):
            require_known_operations("openvino", copy)
    require_known_operations("openvino", made)

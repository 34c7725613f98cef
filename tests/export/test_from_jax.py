"""What is exported from Keras' JAX backend, in the runtimes of its formats; run by tests/test_backends.py."""

import importlib.util
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from shaking import shaken
from slowness import slow_but

from keras_vit import export, inference
from keras_vit.errors import ExportError
from keras_vit.export import stablehlo
from keras_vit.export.formats import require_known_operations
from keras_vit.models import Preprocessing, ResNet, VisionTransformer

if keras.backend.backend() != "jax":
    pytest.skip("Keras runs on another backend", allow_module_level=True)

import jax  # noqa: E402
import jax.export  # noqa: E402

TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "mlp_dim": 64}
KINDS = ("vit", "exact", "resnet", "siglip", "registers", "fresh")
ALONE = """
import sys, jax.export, numpy as np
run = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read())).call
np.save(sys.argv[3], run(np.load(sys.argv[2]))[0])
print(sorted({"keras", "keras_vit", "tensorflow"} & set(sys.modules)))
"""


def make_models():
    vit = VisionTransformer(**TINY, num_classes=3, labels=("cat", "dog", "hen"), preprocessing=Preprocessing((32, 32)))
    exact = VisionTransformer(**TINY, num_classes=7, classifier="gap", gelu_approximate=False)
    resnet = ResNet(image_size=64, depths=(1, 1), width_factor=0.5, num_classes=7)
    siglip = VisionTransformer(**TINY, num_classes=7, classifier="map")
    registers = VisionTransformer(**TINY, num_classes=7, num_registers=2)
    made = {"vit": vit, "exact": exact, "resnet": resnet, "siglip": siglip, "registers": registers}
    fresh = VisionTransformer(**TINY, num_classes=7)  # its class token is zero, and becomes a constant of every image
    fresh.weights[-2].assign(np.random.default_rng(0).normal(size=fresh.weights[-2].shape))
    return {**{kind: shaken(model) for kind, model in made.items()}, "fresh": fresh}


@pytest.fixture(scope="module")
def models():
    keras.utils.set_random_seed(0)
    return make_models()


@pytest.mark.parametrize("kind", ["vit", "exact", "resnet"])
def test_stablehlo_is_the_model_where_jax_is_alone(kind, models, tmp_path):
    model, path = models[kind], tmp_path / "model.stablehlo"
    report = export.convert(model, path)
    assert report.batches == (1, 3) and 0.95 < report.weight_bytes / report.model_weight_bytes < 1.1
    x = np.random.default_rng(1).uniform(-1, 1, (5, *model.input_shape[1:])).astype("float32")
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", ALONE, path, tmp_path / "x.npy", tmp_path / "y.npy"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-5 * np.abs(expected).max())


def operators_of(path):
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    return [names[model.operatorCodes[x.opcodeIndex].builtinCode] for x in model.subgraphs[0].operators]


needs_converter = pytest.mark.skipif(
    importlib.util.find_spec("litert_converter") is None, reason="litert-converter is not installed"
)


@needs_converter
@pytest.mark.parametrize(
    ("kind", "endpoints"),
    slow_but([("vit", ("attention",)), *((kind, ()) for kind in KINDS[1:])], ("vit", ("attention",)), ("resnet", ())),
)
def test_tflite_by_stablehlo_leaves_the_batch_free(kind, endpoints, models, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    model, path = models[kind], tmp_path / "model.tflite"
    report = export.convert(model, path, endpoints=endpoints)
    assert report.batches == (1, 3) and 0.95 < report.weight_bytes / report.model_weight_bytes < 1.1
    assert all(difference < 1e-5 for difference in report.further_outputs.values())
    runner = Interpreter(str(path)).get_signature_runner()
    for count in (1, 5):
        x = np.random.default_rng(1).uniform(-1, 1, (count, *model.input_shape[1:])).astype("float32")
        (name,) = runner.get_input_details()
        found, expected = runner(**{name: x})["output_0"], model.predict(x, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    gelus = 0 if kind == "resnet" else 2 + (kind == "siglip")
    assert operators_of(path).count("GELU") == gelus
    assert export.convert(model, path, batch_size=1).batches == (1,) and "SHAPE" not in operators_of(path)


@needs_converter
@pytest.mark.parametrize("quantize", slow_but(["float16", "dynamic", "int8"], "int8"))
@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_tflite_from_jax_is_quantized(kind, quantize, models, tmp_path):
    images = np.random.default_rng(2).uniform(-1, 1, (16, *models[kind].input_shape[1:])).astype("float32")
    report = export.convert(models[kind], tmp_path / "model.tflite", quantize=quantize, images=images)
    assert report.cosine > 0.999 and report.model_weight_bytes > 1.9 * report.weight_bytes
    assert not any("jit(" in name for name in report.finer)


@needs_converter
def test_a_batch_that_cannot_be_free_is_said_to_be_fixed(tmp_path):
    class Counting(keras.layers.Layer):
        def call(self, x):
            return x * float(x.shape[0])

        def compute_output_shape(self, shape):
            return shape

    x = keras.Input((4,))
    numbered = keras.Model(x, Counting()(x))
    with pytest.raises(ExportError, match="a fixed batch for the operator .*Pass batch_size=1"):
        export.convert(numbered, tmp_path / "model.tflite")
    foreign = keras.Model(x, keras.ops.sum(keras.ops.svd(x[:, None] * x[:, :, None])[1], -1, keepdims=True))
    with pytest.raises(ExportError, match="The TFLite converter failed|TFLite has no built-in operator"):
        export.convert(foreign, tmp_path / "model.tflite", batch_size=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_a_saved_model_is_written_by_a_process_with_tensorflow(models, tmp_path):
    import tensorflow as tf

    model = models["vit"]
    report = export.convert(model, tmp_path / "saved", endpoints=("features",))
    assert report.format == "saved_model" and report.max_rel_diff < 1e-5
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    images = np.random.default_rng(3).integers(0, 256, (2, 50, 40, 3), "uint8")
    served = loaded.signatures["serve_uint8"](images=tf.constant(images))
    expected = model.predict(np.asarray(model.preprocessing(images)), verbose=0)
    np.testing.assert_allclose(served["logits"], expected, atol=1e-3)
    assert set(served["label"].numpy()) <= {b"cat", b"dog", b"hen"} and "features" in loaded.signatures
    x = keras.Input((8, 8, 3))
    plain = keras.Model(x, keras.layers.Dense(5)(keras.layers.Flatten()(keras.layers.Conv2D(4, 3)(x))))
    plain.preprocessing, plain.labels = Preprocessing((8, 8)), tuple("abcde")
    export.convert(plain, tmp_path / "plain")
    assert "serve_bytes" in tf.saved_model.load(str(tmp_path / "plain")).signatures

    class Unknown(keras.layers.Layer):
        def call(self, x):
            return x + 1

    with pytest.raises(ExportError, match="TensorFlow's process could not write .*Unknown"):
        export.convert(keras.Model(x, Unknown()(x)), tmp_path / "unknown")


def test_a_bundle_of_stablehlo_is_verified_and_asked(models, tmp_path):
    reports = export.bundle(models["vit"], tmp_path / "dist", ["onnx", "stablehlo"], endpoints=("attention",))
    assert max(report.further_outputs["attention"] for report in reports) < 1e-5
    assert [report.format for report in export.verify(tmp_path / "dist")] == ["onnx", "stablehlo"]
    asked = inference.open_classifier(tmp_path / "dist/model.stablehlo")
    assert asked.labels == ("cat", "dog", "hen")
    x = np.random.default_rng(1).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_allclose(asked(x), models["vit"](x, training=False), atol=1e-4)
    from PIL import Image

    Image.fromarray(np.zeros((40, 30, 3), "uint8")).save(tmp_path / "black.png")
    command = [sys.executable, "predict.py", tmp_path / "black.png", "--model", "model.stablehlo"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path / "dist")
    expected = keras.ops.softmax(models["vit"](-np.ones((1, 32, 32, 3), "float32"), training=False))[0]
    found = {line.split("\t")[2]: float(line.split("\t")[1]) for line in done.stdout.splitlines()}
    assert found == pytest.approx(dict(zip(models["vit"].labels, map(float, expected), strict=True)), abs=1e-3)
    assert json.loads((tmp_path / "dist/model.json").read_text())["artefacts"][1]["file"] == "model.stablehlo"


def test_a_complex_constant_has_two_numbers(tmp_path):
    path, constant = tmp_path / "model.stablehlo", np.arange(3) * 1j
    exported = jax.export.export(jax.jit(lambda x: abs(x + constant.astype("complex64"))))
    path.write_bytes(exported(jax.ShapeDtypeStruct((3,), "float32")).serialize())
    assert stablehlo.weight_bytes(path) == 24


def test_stablehlo_that_calls_other_code_is_refused(tmp_path):
    def call_foreign(x):
        return jax.ffi.ffi_call("foreign_code", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    allowed = [jax.export.DisabledSafetyCheck.custom_call("foreign_code")]
    exported = jax.export.export(jax.jit(call_foreign), platforms=["cpu"], disabled_checks=allowed)
    path = tmp_path / "model.stablehlo"
    path.write_bytes(exported(jax.ShapeDtypeStruct((1, 3), "float32")).serialize())
    with pytest.raises(ExportError, match="a call of foreign_code, code outside the file"):
        require_known_operations("stablehlo", path)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(ExportError, match="is damaged"):
        require_known_operations("stablehlo", path)

"""`convert` and what it promises: the artefact is the model in its own runtime, or there is none."""

import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import onnxruntime
import pytest
from runtimes import RUN, run_onnx
from shaking import shaken
from slowness import mark_but, slow_but

from keras_vit import export, zoo
from keras_vit.errors import ExportError, ParityError
from keras_vit.export import onnx, saved_model
from keras_vit.export.formats import require_known_operations
from keras_vit.export.onnx.lowering import lower
from keras_vit.export.opening import open_artefact
from keras_vit.export.proof import comparison
from keras_vit.export.staging import seal, stage
from keras_vit.export.tflite.converter import explain_log
from keras_vit.models import AxialResNet, AxialVisionTransformer, ResNet, VisionTransformer
from keras_vit.models.preprocessing import Preprocessing

pytestmark = pytest.mark.usefixtures("forked_converters")
FORMATS = ("model.onnx", "model.tflite", "model")
# TFLite's converter imports TensorFlow in a process of its own; the default tests convert the hybrid alone.
SLOW_TFLITE = pytest.param("model.tflite", marks=pytest.mark.slow)
WITHOUT_SLOW_TFLITE = ("model.onnx", SLOW_TFLITE, "model")
TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}
MODELS = {
    "token": lambda: VisionTransformer(**{**TINY, "num_layers": 2}, num_classes=7, representation_size=16),
    "gap, exact gelu": lambda: VisionTransformer(**TINY, num_classes=7, classifier="gap", gelu_approximate=False),
    "hybrid": lambda: VisionTransformer(
        **{**TINY, "image_size": 64, "patch_size": 1}, num_classes=7, backbone={"depths": (1, 1), "width_factor": 0.5}
    ),
    "resnet": lambda: ResNet(image_size=64, depths=(1, 1), width_factor=0.5, num_classes=7),
    "axial": lambda: AxialVisionTransformer(**{**TINY, "image_size": (32, 48), "num_layers": 2}, num_classes=7),
    "axial gap": lambda: AxialVisionTransformer(**{**TINY, "num_layers": 2}, num_classes=7, classifier="gap"),
    "axial resnet": lambda: AxialResNet(image_size=(32, 64), depths=(1, 2), width_factor=0.5, num_classes=7),
    "features": lambda: VisionTransformer(**TINY, num_classes=0),
    "convolutional": lambda: convolutional(),
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def convolutional():
    x = keras.Input((32, 32, 3), name="pictures")
    y = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="gelu")(keras.layers.Rescaling(2.0, 0.1)(x))
    z = keras.layers.DepthwiseConv2D(3, padding="same")(keras.layers.BatchNormalization()(y))
    y = keras.layers.Concatenate()([keras.layers.MaxPooling2D(3, 1, "same")(y), keras.layers.Add()([y, z])])
    return keras.Model(x, keras.layers.Dense(7, activation="softmax")(keras.layers.GlobalAveragePooling2D()(y)))


IN_TFLITE = ("hybrid", "axial", "axial resnet")  # the model that has everything stands for the others
IN_PARTS = [(kind, "model") for kind in ("token", "resnet", "axial gap")]  # of those and of test_free_image_size
PAIRS = [(kind, name) for kind in MODELS for name in FORMATS if name != "model.tflite" or kind in IN_TFLITE]
PAIRS = [pair for pair in PAIRS if pair not in IN_PARTS]
QUICK = [(kind, "model.onnx") for kind in MODELS]


@pytest.mark.parametrize(
    ("kind", "name"), [*slow_but(PAIRS, *QUICK), *mark_but((pytest.mark.slow, pytest.mark.long), IN_PARTS)]
)
def test_artefact_is_the_model_at_any_batch_size(kind, name, tmp_path):
    model = shaken(MODELS[kind]())
    report = export.convert(model, tmp_path / name)
    for batch in (1, 2, 5):
        x = np.random.default_rng(batch).uniform(-1, 1, (batch, *model.input_shape[1:])).astype("float32")
        expected = np.asarray(model(x, training=False))
        np.testing.assert_allclose(RUN[name](tmp_path / name, x), expected, atol=1e-5 * np.abs(expected).max())
    assert report.top1_agreement in (1.0, None) and report.cosine > 0.99999 and report.batches == (1, 3)
    assert report.weight_bytes < 1.05 * report.model_weight_bytes + 10_000
    require_known_operations(report.format, tmp_path / name)  # what `verify` opens
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["model.onnx", SLOW_TFLITE, pytest.param("model", marks=pytest.mark.slow)])
def test_free_image_size(name, tmp_path):
    model = shaken(ResNet(image_size=None, depths=(1, 1), width_factor=0.5, num_classes=7, labels=tuple("abcdefg")))
    export.convert(model, tmp_path / name, image_size=(48, 64) if name.endswith("tflite") else None)
    if name.endswith("tflite"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert archive.read("labels.txt").split() == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
            assert json.loads(archive.read("metadata.json"))["config"]["width_factor"] == 0.5
    for size in [(48, 64)] if name.endswith("tflite") else [(48, 64), (65, 33)]:
        x = np.random.default_rng(0).uniform(-1, 1, (2, *size, 3)).astype("float32")
        expected = np.asarray(model(x, training=False))
        np.testing.assert_allclose(RUN[name](tmp_path / name, x), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", WITHOUT_SLOW_TFLITE)
def test_outputs_by_name_are_compared_with_those_of_their_name(name, tmp_path):
    x = keras.Input((16, 16, 3))
    stem = keras.layers.Conv2D(4, 3, name="stem")(x)
    stages = [keras.layers.Conv2D(4, 3, name=f"stage{i}")(stem) for i in (1, 2)]
    model = shaken(keras.Model(x, {"stem": stem, "stage1": stages[0], "stage2": stages[1]}))
    assert export.convert(model, tmp_path / name).max_rel_diff < 1e-4


def test_mixed_precision_is_exported_in_float32(tmp_path):
    model = shaken(VisionTransformer(**TINY, num_classes=7, dtype="mixed_bfloat16"))
    plain = VisionTransformer(**TINY, num_classes=7)
    plain.set_weights(model.get_weights())
    export.convert(model, tmp_path / "model.onnx")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", x), plain(x), atol=1e-5)
    assert model.get_layer("encoderblock_0").compute_dtype == "bfloat16"


def test_inputs_of_other_floats_and_outputs_of_other_kinds(tmp_path):
    x = keras.Input((4,), dtype="float64")
    y = keras.layers.Dense(3)(x)
    for outputs, expected in (({"a": {"b": y}, "c": [2 * y]}, lambda z: 2 * z), ([y, y > 0], lambda z: z > 0)):
        export.convert(keras.Model(x, outputs), tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        inputs = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
        first, second = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(first, keras.Model(x, y).predict_on_batch(inputs), atol=1e-5)
        np.testing.assert_allclose(second, expected(first), atol=1e-5)


@pytest.mark.slow
def test_litert_takes_no_image_of_another_size(tmp_path):
    """It would regroup the pixels of one with as many, or as many twice."""
    export.convert(VisionTransformer(**{**TINY, "image_size": (32, 48)}, num_classes=7), tmp_path / "model.tflite")
    opened = open_artefact(tmp_path / "model.tflite")
    assert opened.run(np.zeros((2, 32, 48, 3), "float32")).shape == (2, 7)
    for size in ((48, 32), (64, 48)):
        with pytest.raises(ValueError, match=r"takes the shape \[-1, 32, 48, 3\]"):
            opened.run(np.zeros((2, *size, 3), "float32"))


def test_a_mixed_precision_model_with_a_new_head(tmp_path):
    base = VisionTransformer(**TINY, num_classes=0, dtype="mixed_bfloat16")
    model = shaken(keras.Model(base.input, keras.layers.Dense(3, dtype="float32")(base.output)))
    export.convert(model, tmp_path / "model.onnx")
    plain = VisionTransformer(**TINY, num_classes=3)
    plain.set_weights(model.get_weights())
    x = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", x), plain(x), atol=1e-5)


@keras.saving.register_keras_serializable("test_export")
class TwoFaced(keras.layers.Layer):
    """Says one thing to whoever runs it and another to whoever traces it."""

    def call(self, x):
        import tensorflow as tf

        return x if tf.executing_eagerly() else x * 1.01

    def export_call(self, x):
        return x * 1.01

    def compute_output_shape(self, input_shape):
        return input_shape


def two_faced(zero_head=False):
    x = keras.Input((32, 32, 3))
    y = TwoFaced(name="liar")(keras.layers.Conv2D(4, 3, name="honest")(x))
    y = keras.layers.GlobalAveragePooling2D()(y)
    return keras.Model(x, keras.layers.Dense(5, kernel_initializer="zeros" if zero_head else "ones")(y))


def former_export(path):
    """A file or folder that an export may replace, and the contents of its parent."""
    with stage(path, (), is_folder=not path.suffix) as staging:
        file = staging if path.suffix else staging / "saved_model.pb"
        file.write_bytes(b"old")
        if path.suffix:
            seal(file, onnx.append_property)
    return contents(path.parent)


@pytest.mark.parametrize("name", WITHOUT_SLOW_TFLITE)
def test_parity_error_names_the_layer_and_keeps_what_was_there(name, tmp_path):
    before = former_export(tmp_path / name)
    with pytest.raises(ParityError, match="'liar'"):
        export.convert(two_faced(), tmp_path / name)
    assert contents(tmp_path) == before


def test_parity_error_leaves_nothing_at_a_new_path(tmp_path):
    with pytest.raises(ParityError):
        export.convert(two_faced(), tmp_path / "model.onnx")
    assert not os.listdir(tmp_path)


def test_a_zero_head_does_not_hide_a_difference(tmp_path):
    with pytest.raises(ParityError, match="'liar'"):
        export.convert(two_faced(zero_head=True), tmp_path / "model.onnx")
    export.convert(VisionTransformer(**TINY), tmp_path / "model.onnx")


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ("model.onnx", "model"))
def test_a_killed_export_leaves_the_old_artefact(name, tmp_path):
    export.convert(shaken(convolutional()), tmp_path / name)
    before = contents(tmp_path)
    script = f"""
        import os, signal, keras
        from keras_vit.export import conversion
        conversion.compare = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
        x = keras.Input((8, 8, 3))
        conversion.convert(keras.Model(x, keras.layers.Conv2D(2, 3)(x)), {str(tmp_path / name)!r})
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True)
    assert result.returncode == -signal.SIGKILL
    assert {k: v for k, v in contents(tmp_path).items() if ".keras-vit-export/" not in k} == before
    export.convert(shaken(convolutional()), tmp_path / name)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("compute", (comparison.compute_outputs, lambda model, x: comparison.compiled_runner(model)(x)))
def test_the_model_is_computed_in_full_precision(compute):
    from tensorflow.config.experimental import tensor_float_32_execution_enabled

    seen = []

    class Spy(keras.layers.Layer):
        def call(self, x):
            seen.append(tensor_float_32_execution_enabled())
            return x * 2.0

    x = keras.Input((3,))
    compute(keras.Model(x, Spy()(x)), [np.zeros((1, 3), "float32")])
    assert not seen[-1] and tensor_float_32_execution_enabled()


def test_every_layer_of_a_vit_is_compared():
    """Its last block and norm are also called outside the model's own graph."""
    names = [layer.name for layer, _ in comparison.list_outputs(zoo.load("ViT-Test/4", weights=None))]
    blocks = [f"encoderblock_{i}" for i in range(4)]
    assert [name for name in names if name.startswith("encoder")] == [*blocks, "encoder_norm"]


def test_tracing_leaves_the_model_as_it_was(tmp_path):
    model = shaken(convolutional())
    export.convert(model, tmp_path / "model.onnx")
    assert all(len(layer._inbound_nodes) == 1 for layer in model.layers)
    assert keras.Model(model.input, model.layers[-2].output).output_shape == (None, 16)


def unbuilt():
    return keras.Sequential([keras.layers.Dense(3)])


@keras.saving.register_keras_serializable("test_export")
class SingularValues(keras.layers.Layer):
    def call(self, x):
        import tensorflow as tf

        return tf.linalg.svd(x, compute_uv=False)

    def compute_output_shape(self, input_shape):
        return input_shape[:-1]


def foreign():
    x = keras.Input((8, 8, 3))
    return keras.Model(x, SingularValues()(x))


# Keras warns of every layer that it leaves in float.
LEFT_IN_FLOAT = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")


@functools.cache
def float_and_quantized():
    """A model, and its twin that Keras quantized before it was ever called."""
    model = shaken(VisionTransformer(**TINY, num_classes=7))
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    twin.set_weights(model.get_weights())
    twin.quantize("int8")
    return model, twin


def quantized():
    return float_and_quantized()[1]


@LEFT_IN_FLOAT
@pytest.mark.parametrize(
    ("model", "name", "arguments", "words"),
    [
        (convolutional, "model.pb", {}, "No format"),
        (convolutional, "model.onnx", {"quantize": "int3"}, "int3"),
        (convolutional, "model.onnx", {"image_size": 64}, "takes images of 32x32"),
        (convolutional, "model.onnx", {"images": np.zeros((2, 8, 8, 3), "float32")}, "shape"),
        (convolutional, "model.onnx", {"images": []}, "images is empty"),
        (
            convolutional,
            "model.onnx",
            {"images": np.zeros((2, 32, 32, 3), "float32"), "batch_size": 4},
            "2 images, fewer than one batch of 4",
        ),
        *((convolutional, "model.onnx", {"image_size": x}, "Received: image_size=") for x in ("32", (32, 32, 3), 32.0)),
        *((convolutional, "model.onnx", {"batch_size": x}, "a positive integer.* batch_size=") for x in ("4", 4.0, 0)),
        (unbuilt, "model.onnx", {}, "not built"),
        (lambda: "ViT-B/16", "model.onnx", {}, "Received: str"),
        pytest.param(foreign, "model.onnx", {}, "Svd", marks=pytest.mark.slow),
        pytest.param(foreign, "model.tflite", {}, "Svd", marks=pytest.mark.slow),
        pytest.param(
            quantized, "model.onnx", {}, "quantized by Keras \\(int8\\).* before model.quantize", marks=pytest.mark.slow
        ),
        pytest.param(quantized, "model.tflite", {"quantize": "dynamic"}, "quantized by Keras", marks=pytest.mark.slow),
        (lambda: ResNet(image_size=None, depths=(1,)), "model.onnx", {"image_size": (0, 5)}, "any size.*image_size"),
        (lambda: labelled(("a", "b")), "model.onnx", {}, "model.labels has 2 names for 5 classes. Set model.labels"),
        (
            lambda: labelled(("a", "b"), answering_twice),
            "model.onnx",
            {},
            "7 classes.*, or make the logits the first output",
        ),
        (lambda: prepared_by_hand(), "model.onnx", {}, "does not say its image_size. Pass images="),
        (lambda: of_text(), "model", {}, "takes text, but exported files take numbers"),
        (lambda: of_bytes(), "model.onnx", {}, "takes uint8, but model.preprocessing makes floats"),
        (
            lambda: of_two(),
            "model.onnx",
            {"images": {"a": np.zeros((4, 3)), "b": np.zeros((3, 3))}},
            r"as many rows for every input. Received: \[4, 3\]",
        ),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(model, name, arguments, words, tmp_path):
    with pytest.raises(ExportError, match=words):
        export.convert(model(), tmp_path / name, **arguments)
    assert os.listdir(tmp_path) == []


def zero_headed(batch=None):
    x = keras.Input(batch_shape=(batch, 8, 8, 3))
    y = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(x))
    return keras.Model(x, keras.layers.Dense(5, kernel_initializer="zeros")(y))


def labelled(labels, build=zero_headed):
    model = build()
    model.labels = labels
    return model


def prepared_by_hand():
    model = zero_headed()
    model.preprocessing = lambda images: images / 255
    return model


def of_text():
    x = keras.Input((1,), dtype="string")
    y = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(x)
    return keras.Model(x, keras.layers.Dense(2)(y))


def of_bytes():
    x = keras.Input((8, 8, 3), dtype="uint8")
    model = keras.Model(x, keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(x)))
    model.preprocessing = Preprocessing((8, 8))
    return model


def of_two():
    inputs = {name: keras.Input((3,), name=name) for name in ("a", "b")}
    return keras.Model(inputs, keras.layers.Dense(2)(inputs["b"] - 2 * inputs["a"]))


def answering_twice():
    x = keras.Input((3,))
    return keras.Model(x, [keras.layers.Dense(7)(x), keras.layers.Dense(2)(x)])


def test_images_in_a_dictionary(tmp_path):
    images = {name: np.random.default_rng(i).normal(size=(6, 3)).astype("float32") for i, name in enumerate("ab")}
    datasets = [images, [{name: x[i : i + 2] for name, x in images.items()} for i in (0, 2, 4)]]
    for i, given in enumerate(datasets):
        assert export.convert(of_two(), tmp_path / f"{i}.onnx", images=given).images == 6


def pictures(count):
    return np.random.default_rng(0).uniform(-1, 1, (count, 8, 8, 3)).astype("float32")


@pytest.mark.parametrize(
    ("batch", "arguments", "images"),
    [
        (None, {"batch_size": 16}, 16),
        pytest.param(None, {"batch_size": 3, "quantize": "dynamic", "images": pictures(10)}, 9, marks=pytest.mark.slow),
        (None, {"batch_size": 4, "images": pictures(6)}, 4),
        (3, {}, 6),
    ],
)
def test_images_come_in_whole_batches_of_an_artefact_with_a_fixed_batch(batch, arguments, images, tmp_path):
    """A zero head, so that the outputs of all layers are compared, too."""
    assert export.convert(zero_headed(batch), tmp_path / "model.onnx", **arguments).images == images


def test_latency_of_eight_images_is_that_of_eight(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "median_milliseconds", lambda run, inputs: len(inputs[0]))
    report = export.convert(zero_headed(), tmp_path / "model.onnx", images=pictures(3), latency=True)
    assert report.latency_ms == report.model_latency_ms == {1: 1, 8: 8}


def test_a_bundle_with_a_fixed_batch_is_used_like_any_other(tmp_path, monkeypatch, capsys):
    """Its examples are whole batches, and it takes any number of images, although its artefact does not."""
    model = zero_headed()
    model.preprocessing = Preprocessing((8, 8))
    export.bundle(model, tmp_path, ["onnx"], images=pictures(5), batch_size=3)
    assert export.verify(tmp_path)[0].images == 6
    assert open_artefact(tmp_path).run(pictures(2)).shape == (2, 5)
    keras.utils.save_img(tmp_path / "cat.png", pictures(1)[0])
    monkeypatch.setattr(sys, "argv", ["predict.py", str(tmp_path / "cat.png")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tmp_path / "predict.py"), run_name="__main__")
    assert not ended.value.code and len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.slow
def test_a_model_that_computes_with_its_batch_is_compared_in_it(tmp_path):
    class Pairs(keras.layers.Layer):
        def call(self, x):
            return keras.ops.reshape(keras.ops.reshape(x, (3, 2, 2)), (3, 4))

    x = keras.Input((4,), batch_size=3)
    export.bundle(keras.Model(x, keras.layers.Dense(2)(Pairs()(x))), tmp_path, ["onnx", "saved_model"])
    assert [report.batches for report in export.verify(tmp_path)] == [(3,), (3,)]


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    sizes = {"image_size": np.int64(8), "batch_size": np.int64(2)}
    assert export.convert(zero_headed(), tmp_path / "model.onnx", **sizes).batches == (2,)


def test_an_option_that_is_none_is_a_type_error(tmp_path):
    with pytest.raises(TypeError, match="quantise"):
        export.convert(convolutional(), tmp_path / "model.onnx", quantise="int8")


def test_the_operation_at_fault_is_named_where_no_saved_model_is_written(tmp_path, monkeypatch):
    """As on torch, and on JAX for layers of one's own."""

    def refuse(*arguments):
        raise ExportError("only on TensorFlow.")

    monkeypatch.setattr(saved_model, "write", refuse)
    x = keras.Input((3,))
    with pytest.raises(
        ExportError, match="operation Max outside the layers; and tf2onnx cannot .*: only on TensorFlow"
    ):
        export.convert(keras.Model(x, keras.ops.max(x, -1, keepdims=True)), tmp_path / "model.onnx")


@pytest.mark.slow
@LEFT_IN_FLOAT
def test_a_model_that_keras_quantized(tmp_path):
    """Its answers are close to the float model's, and a SavedModel's to its own."""
    model, twin = float_and_quantized()
    x = np.random.default_rng(0).uniform(-1, 1, (4, 32, 32, 3)).astype("float32")
    before, after = np.asarray(model(x)), np.asarray(twin(x))
    assert 0 < np.abs(after - before).max() < 0.05 * np.abs(before).max()
    assert export.convert(twin, tmp_path / "model").max_rel_diff < 1e-3


@pytest.mark.parametrize("error", [ValueError("zip() argument 2 is longer"), KeyError("x"), RuntimeError()])
def test_what_a_converter_raises_is_an_export_error(error, tmp_path, monkeypatch):
    from keras_vit.export import tflite

    def write(order, path):
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(tflite, "write", write)
    with pytest.raises(
        ExportError, match=rf"exported as tflite: {type(error).__name__}, .*[^.]\. Nothing was written"
    ) as raised:
        export.convert(convolutional(), tmp_path / "model.tflite")
    assert raised.value.__cause__ is error and not os.listdir(tmp_path)


@pytest.mark.slow
def test_a_tensorflow_without_the_converter_is_a_sentence(tmp_path, monkeypatch):
    """TensorFlow has announced to remove tf.lite."""
    monkeypatch.undo()  # the converter's process is a new one
    (tmp_path / "sitecustomize.py").write_text("import tensorflow\ndel tensorflow.lite")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        ExportError, match=r"TensorFlow 2\.\d+\.\d+ has no tf.lite, .* or export to .onnx or a SavedModel"
    ):
        export.convert(convolutional(), tmp_path / "model.tflite")
    assert not (tmp_path / "model.tflite").exists()


def test_paths_that_hold_something_else_stay(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "saved_model.pb").write_text("keep")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").write_text("keep")
    (tmp_path / "mine.onnx").write_text("keep")
    (tmp_path / "mine.tflite").write_text("keep")
    before = contents(tmp_path)
    for name in ("notes", "folder.onnx", "file", "file/model.onnx", "mine.onnx", "mine.tflite"):
        with pytest.raises(ExportError):
            export.convert(convolutional(), tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_is_a_sentence_and_keeps_the_former_export(name, tmp_path):
    mounting = ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(tmp_path)]
    if subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        before = former_export(tmp_path / name)
        with pytest.raises(ExportError, match="No space left"):
            export.convert(shaken(VisionTransformer(**TINY)), tmp_path / name)
        assert contents(tmp_path) == before
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("quantize", "shrinks", "least", "most"),
    [
        pytest.param("float16", 1.9, 1e-6, 2e-3, marks=pytest.mark.slow),
        pytest.param(None, 0.9, 0, 1e-5, marks=pytest.mark.slow),
        pytest.param("dynamic", 3.5, 1e-6, 5e-2, marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_traced_goes_through_tf2onnx(quantize, shrinks, least, most, tmp_path):
    import tensorflow as tf

    class Erfc(keras.layers.Layer):
        scale = tf.linspace(0.5, 1.5, 8)  # a tensor that is not a weight, as in Swins' masks

        def call(self, x):
            return x * tf.math.erfc(x) * self.scale[:, None]

        def compute_output_shape(self, input_shape):
            return input_shape

    x = keras.Input((8, 8, 3))
    y = keras.layers.Conv2D(128, 3, activation="gelu")(Erfc()(x))
    model = shaken(keras.Model(x, keras.layers.Dense(64)(keras.layers.GlobalAveragePooling2D()(y))))
    report = export.convert(model, tmp_path / "model.onnx", quantize=quantize)
    assert report.model_weight_bytes / report.weight_bytes > shrinks and least <= report.max_rel_diff < most


def test_importing_the_room_imports_no_tensorflow():
    script = "import sys, keras_vit.export; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_onnx_over_two_gigabytes_goes_to_a_second_file(tmp_path, monkeypatch):
    from onnx import checker

    monkeypatch.setattr(onnx, "INLINE_LIMIT", 10_000)
    model = shaken(VisionTransformer(**{**TINY, "num_layers": 2}, num_classes=7))
    path = tmp_path / "model.onnx"
    for seed in (0, 1):
        report = export.convert(shaken(model, seed), path)
        (data,) = tmp_path.glob("model-*.onnx.data")
        assert report.bytes == path.stat().st_size + data.stat().st_size
        assert len(os.listdir(tmp_path)) == 2 and path.stat().st_size < 60_000 < data.stat().st_size
        x = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
        np.testing.assert_allclose(run_onnx(path, x), model(x), atol=1e-4)
    checker.check_model(str(path))


def test_metadata_is_inside_the_file(tmp_path):
    from onnx import load

    model = VisionTransformer(**TINY, num_classes=2, labels=("cat", "dog"))
    export.convert(model, tmp_path / "model.onnx", metadata={"licence": "Apache-2.0"})
    properties = {p.key: p.value for p in load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(properties["labels"]) == ["cat", "dog"] and properties["licence"] == "Apache-2.0"
    assert json.loads(properties["preprocessing"])["image_size"] == [32, 32]


@pytest.mark.slow
def test_several_threads_export_one_model(tmp_path, monkeypatch):
    """Tracing changes the model's layers meanwhile."""
    monkeypatch.undo()  # the converters' processes are new ones
    model = shaken(MODELS["token"]())
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(4) as pool:
            graphs = [*pool.map(lambda _: lower(model, [(None, 32, 32, 3)])[0], range(16))]
            reports = [*pool.map(lambda i: export.convert(model, tmp_path / f"{i}.tflite"), range(3))]
    finally:
        sys.setswitchinterval(before)
    assert len({len(graph.nodes) for graph in graphs}) == 1
    assert all(report.max_rel_diff < 1e-4 for report in reports)


@pytest.mark.parametrize("name", slow_but(FORMATS, "model"))
def test_images_of_bytes_are_resized_as_in_predict(name, tmp_path):
    """Called alone, Keras' Resizing rounds them."""
    x = keras.Input((20, 20, 3), dtype="uint8")
    model = keras.Model(x, keras.layers.Dense(5)(keras.layers.Flatten()(keras.layers.Resizing(7, 7)(x))))
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 20, 3), "uint8")
    path, expected = export.convert(model, tmp_path / name).path, model.predict(images, verbose=0)
    np.testing.assert_allclose(RUN[name](path, images), expected, atol=1e-4 * np.abs(expected).max())


def test_the_advice_for_tflite_is_what_takes_every_operation():
    """A sum of bits, as in argmax, is in no ONNX file either."""
    log = "error: failed\nTF Select ops: BitwiseAnd, Bitcast\n"
    assert explain_log(log).endswith("for: Bitcast, BitwiseAnd. Export a SavedModel instead, or try .onnx.")

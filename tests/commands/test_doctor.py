"""`keras-vit doctor`: exports that fail, differ, crash and hang, and what is said and written then."""

import json
import os
import sys

import keras
import numpy as np
import onnxruntime
import pytest

from keras_vit.commands.doctor import place_files
from keras_vit.errors import ConfigError
from keras_vit.export import doctor

MODELS = '''
import os, time, traceback
import keras

class Odd(keras.layers.Layer):
    """Twice as much when it is traced for batches of any size; `deed` is done then."""

    deed = None

    def call(self, x):
        if x.shape[0] is not None or isinstance(x, keras.KerasTensor):
            return x
        return self.deed() if self.deed else 2.0 * x

class Known(Odd):
    """The same, but this package's ONNX, and its SavedModel, know better."""

    def export_call(self, x):
        return 1.0 * x

def build(layer):
    x = keras.Input((8,), name="x")
    y = keras.layers.Dense(4, name="before")(x)
    return keras.Model(x, keras.layers.Dense(3, name="after")(layer(y)))

def plain():
    return build(keras.layers.Activation("tanh"))

def known():
    return build(Known(name="odd"))

def crash_or_hang():
    """For this package's export it never returns; Keras' is the end of the process."""
    callers = {frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(None)}
    return time.sleep(600) if "keras_vit.export.conversion" in callers else os.abort()

def faulty():
    layer = Odd(name="odd")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), layer])
    layer.deed = crash_or_hang
    return model

def normalized():
    return build(keras.layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 4.0, 9.0, 16.0], name="odd"))

def within():
    inner = build(Known(name="odd"))
    x = keras.Input((8,), name="x")
    return keras.Model(x, keras.layers.Dense(2)(inner(keras.layers.Rescaling(2.0)(x))))

def ending():
    os._exit(3)

def failing():
    raise ValueError("No weights here. Sorry.")

def needing():
    import package_that_is_missing
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to be in, with the module `my_models`."""
    (tmp_path / "my_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def models(folder, monkeypatch):
    """The module."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_models", raising=False)
    doctor.open_patient.cache_clear()
    import my_models

    yield my_models
    del sys.modules["my_models"]


def ask_here(function, *arguments):
    return function(*arguments)


def test_the_first_wrong_layer(models):
    """Found in this process."""
    for name in ("known", "within"):
        patient = doctor.Patient(f"my_models:{name}")
        by_keras = doctor.examine_patient(patient, "onnx", "Keras", "keras.onnx")
        assert by_keras.result == "differs" and by_keras.difference > 1e-3 and by_keras.nodes >= 3
        said = doctor.find_wrong_layer(ask_here, patient, "onnx", "Keras")
        assert said == "So it is from layer 'odd' (Known) on."
        ours = doctor.examine_patient(patient, "onnx", "keras-vit", f"{name}.onnx")
        assert ours.result == "right" and ours.difference < 1e-5
        doctor.open_patient.cache_clear()


def test_constants_that_become_inputs(models):
    """Keras' ONNX of a Normalization on TensorFlow, as in EfficientNet: onnxruntime loads it, and asks for more."""
    patient = doctor.Patient("my_models:normalized")
    by_keras = doctor.examine_patient(patient, "onnx", "Keras", "keras.onnx")
    names = [x.name for x in onnxruntime.InferenceSession("keras.onnx").get_inputs()]
    assert len(names) == 3 and by_keras.result == "does not run"
    assert by_keras.error == f"The model takes x, but the file takes {', '.join(names)}."
    assert (
        doctor.find_wrong_layer(ask_here, patient, "onnx", "Keras") == "So it is from layer 'odd' (Normalization) on."
    )
    ours = doctor.examine_patient(patient, "onnx", "keras-vit", "ours.onnx")
    x = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
    (received,) = onnxruntime.InferenceSession("ours.onnx").run(None, {"x": x})
    assert ours.result == "right" and np.allclose(received, doctor.open_patient(patient).model(x), atol=1e-5)


def test_no_layer_at_fault(models):
    patient = doctor.Patient("my_models:plain")
    said = doctor.find_wrong_layer(ask_here, patient, "onnx", "keras-vit")
    assert said == "No single layer is at fault: up to each of them the export is right."


def test_a_part_computes_what_the_model_does(models):
    model = models.within()
    part = doctor.cut(model, (1, 0))
    x = np.ones((2, 8), "float32")
    inner = next(layer for layer in model.layers if isinstance(layer, keras.Model))
    np.testing.assert_allclose(part(x), inner.get_layer("before")(2 * x), rtol=1e-6)


@pytest.mark.slow
def test_a_model_that_keras_exports_wrong(keras_vit, folder):
    done = keras_vit("doctor", "my_models:known", "--to", "onnx", "--out", "dist/good.onnx", "--json")
    assert (done.status, done.err) == (0, "")
    told = json.loads(done.out)
    assert told["parameters"] == 8 * 4 + 4 + 4 * 3 + 3 and told["milliseconds"] > 0
    keras_row, our_row = told["findings"]
    assert (keras_row["by"], keras_row["result"]) == ("Keras", "differs")
    assert keras_row["layer"] == "So it is from layer 'odd' (Known) on."
    assert (our_row["result"], our_row["error"]) == ("right", None) and our_row["bytes"] > 0
    assert told["take"] == {"onnx": "keras-vit"} and told["files"] == {"onnx": "dist/good.onnx"}
    model = doctor.open_patient(doctor.Patient("my_models:known")).model
    x = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
    (received,) = onnxruntime.InferenceSession("dist/good.onnx").run(None, {"x": x})
    np.testing.assert_allclose(received, model(x), rtol=1e-4, atol=1e-6)
    done = keras_vit("doctor", "my_models:known", "--to", "onnx", "--out", "dist/good.onnx")
    assert done.status == 1 and "dist/good.onnx exists already" in done.err


@pytest.mark.long
@pytest.mark.slow
def test_a_crash_and_a_hang_are_rows(keras_vit, folder):
    done = keras_vit("doctor", "my_models:faulty", "--to", "saved_model", "--seconds", "25", "--json")
    assert done.status == 1 and "makes a correct file of this model in: saved_model" in done.err
    crash, hang = json.loads(done.out)["findings"]
    assert (crash["by"], crash["result"]) == ("Keras", "broken off")
    assert crash["error"] == "Its process ended with exit code -6."
    assert crash["layer"] == "So it is from layer 'odd' (Odd) on."
    assert (hang["result"], hang["error"]) == ("broken off", "It took longer than 25 s.")
    assert hang["layer"].startswith("The first wrong layer was not searched for")


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("my_models:failing", "my_models:failing failed: ValueError: No weights here. Expected a function without"),
        ("my_models:needing", "failed: ModuleNotFoundError: No module named 'package_that_is_missing'."),
        ("my_models:plian", "There is no function in my_models 'plian'. Did you mean plain"),
        ("no_such_package.models:build", "No module named 'no_such_package'. Install the package"),
        ("os:getcwd", "Only a keras.Model can be exported. Received: str"),
    ],
)
def test_what_gives_no_model(models, name, sentence):
    told = doctor.describe(doctor.Patient(name))
    assert list(told) == ["refused"] and sentence in told["refused"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, sentence",
    [
        ("ending", "my_models:ending gives no model: its process ended with exit code 3"),
        ("failing", "my_models:failing failed: ValueError: No weights here."),
    ],
)
def test_a_function_without_a_model_is_one_sentence(keras_vit, folder, name, sentence):
    done = keras_vit("doctor", f"my_models:{name}")
    assert (done.status, done.out) == (1, "") and sentence in done.err and "Traceback" not in done.err


TWICE = """
import keras

@keras.saving.register_keras_serializable("mine")
class Twice(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


@pytest.fixture
def file_of_others(folder, monkeypatch):
    """twice.keras, with a layer of the module `my_layers`, which this process knows no longer."""
    (folder / "my_layers.py").write_text(TWICE)
    monkeypatch.syspath_prepend(folder)
    import my_layers

    x = keras.Input((8,))
    keras.Model(x, my_layers.Twice()(x)).save("twice.keras")
    del keras.saving.get_custom_objects()["mine>Twice"], sys.modules["my_layers"]
    return "twice.keras"


def test_a_file_of_layers_of_other_packages(file_of_others):
    told = doctor.describe(doctor.Patient(file_of_others))["refused"]
    assert "twice.keras cannot be loaded" in told and "--import PACKAGE" in told


@pytest.mark.slow
def test_a_file_its_package_and_the_table(keras_vit, file_of_others):
    formats = ("onnx", "saved_model")
    done = keras_vit("doctor", file_of_others, "--import", "my_layers", "--to", *formats, "--out", "dist")
    assert done.status == 0 and done.out.count(" right ") == 4
    assert "Take onnx by keras-vit: dist/model.onnx." in done.out
    assert os.path.isfile("dist/saved_model/saved_model.pb") and os.path.isfile("dist/model.onnx")


def test_a_folder_may_have_a_dot_in_its_name(tmp_path):
    out = tmp_path / "dist-1.2"
    assert place_files(out, ["onnx", "tflite"]) == {"onnx": out / "model.onnx", "tflite": out / "model.tflite"}
    with pytest.raises(ConfigError, match="cannot hold onnx, tflite: give a folder"):
        place_files(tmp_path / "a.onnx", ["onnx", "tflite"])


def test_code_in_a_file_is_not_run(folder):
    x = keras.Input((8,))
    keras.Model(x, keras.layers.Lambda(lambda x: x * 2)(x)).save("code.keras")
    told = doctor.describe(doctor.Patient("code.keras"))
    assert list(told) == ["refused"] and "code.keras cannot be loaded" in told["refused"]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("missing.keras",), "There is no file missing.keras"),
        (("ViT-B/16",), "Expected a .keras file, or a function as package.module:function. Received: ViT-B/16."),
        (("my_models:plain", "--to", "onnx", "--out", "x.tflite"), "x.tflite cannot hold onnx"),
        (("my_models:plain", "--out", "x.onnx"), "x.onnx cannot hold onnx, tflite, saved_model"),
    ],
)
def test_what_is_refused_before_any_work(keras_vit, folder, arguments, sentence):
    done = keras_vit("doctor", *arguments)
    assert (done.status, done.out) == (1, "") and sentence in done.err

"""What works where an extra of setup.cfg is missing, TensorFlow above all, and what the errors say of the rest."""

import configparser
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.extras import EXTRAS

TESTS = pathlib.Path(__file__).parent
LEAN = """
import contextlib, importlib.util, io, json, runpy, sys
import hiding
hiding.hide({hidden})
import numpy as np
import keras_vit
from keras_vit import cli, data, evaluation, export, inspection, zoo

def command(*arguments):
    sys.argv = ["keras-vit", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main()
    return out.getvalue()

model = zoo.load("ViT-Mini/4")
images = np.random.default_rng(0).integers(0, 256, (5, 28, 28, 3), "uint8")
x = np.asarray(model.preprocessing(images))
logits = np.asarray(model.predict_on_batch(x))
np.savez("known.npz", x=x, logits=logits)
for name in ("m.npz", "m.safetensors", "m.keras", "m.weights.h5"):
    zoo.save(model, name)
    np.testing.assert_array_equal(logits, np.asarray(zoo.load(name).predict_on_batch(x)), name)
from PIL import Image
Image.fromarray(images[0]).save("a.png")
assert command("export", "m.npz", "--to", "onnx", "--latency", "--out", "dist") and command("verify", "dist")
assert inspection.filters(model, 5).shape == (5, 4, 4, 3) and len(zoo.list("ViT-Mini*")) == 2
found = {{"diff": export.convert(model, "m.onnx").max_abs_diff}}
found["asked"] = [json.loads(command("predict", "a.png", "--model", name, "--json")) for name in ("m.npz", "dist")]
asked = {{
    "data.load": lambda: data.load("digits"),
    "finetune": lambda: keras_vit.finetune("digits", out="run"),
    "measure_speed": lambda: evaluation.measure_speed("ViT-Mini/4"),
    "nearest": lambda: keras_vit.inference.nearest(np.eye(3), np.eye(3)),
    "report": lambda: inspection.report(model, list(images), "page.html"),
    "convert tflite": lambda: export.convert(model, "m.tflite"),
    "convert saved_model": lambda: export.convert(model, "saved"),
    "convert int8": lambda: export.convert(model, "m.onnx", quantize="int8"),
}}
found["errors"] = {{}}
for name, call in asked.items():
    try:
        call()
    except keras_vit.errors.KerasVitError as error:
        found["errors"][name] = str(error)
assert importlib.util.find_spec("tensorflow") is None
try:
    import tensorflow
except ModuleNotFoundError as error:
    found["elsewhere"] = type(error).__name__
print(json.dumps(found))
"""
TFLITE = """
import hiding, importlib.util, json
hiding.hide(["tensorflow"])
import keras_vit
model = keras_vit.zoo.load("ViT-Mini/4")
reports = keras_vit.export.bundle(model, "dist", ["tflite", "stablehlo"])
assert importlib.util.find_spec("tensorflow") is None
print(json.dumps([[x.format, x.max_rel_diff, x.batches] for x in reports + keras_vit.export.verify("dist")]))
"""
LACKING = {
    "data.load": ("keras_vit.data needs TensorFlow", "cpu"),
    "finetune": ("keras_vit.data needs TensorFlow", "cpu"),
    "measure_speed": ("keras_vit.evaluation needs psutil", "train"),
    "nearest": ("keras_vit.inference needs faiss-cpu", "search"),
    "report": ("keras_vit.inspection needs matplotlib", "plots"),
    "convert tflite": ("TFLite from JAX needs litert-converter", "tflite"),
    "convert saved_model": ("Writing a SavedModel needs TensorFlow", "cpu"),
    "convert int8": ("quantize='int8' without images= needs scikit-learn", "data"),
}


def run(code, folder, **environment):
    path = os.pathsep.join([str(TESTS.parent), str(TESTS / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)


def test_every_package_of_an_extra_has_a_row():
    config = configparser.ConfigParser()
    config.read(TESTS.parent / "setup.cfg")
    extras = {
        name: {re.match(r"[\w-]+", line)[0].lower() for line in lines.split("\n") if line}
        for name, lines in config["options.extras_require"].items()
    }
    for module, (title, extra) in EXTRAS.items():
        brings = extras[extra] | {"ai-edge-litert"}  # by litert-quantizer
        assert {title.lower(), f"{title.lower()}-cpu"} & brings, module
    rows = {title.lower() for title, _ in EXTRAS.values()}
    of_others = {"importlib_resources"}  # tensorflow-datasets imports it
    for extra in ("train", "export", "data", "plots", "search"):
        assert extras[extra] <= rows | of_others, extra


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_what_needs_no_tensorflow_works_without_it(tmp_path, backend):
    import onnxruntime

    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    # JAX itself needs SciPy.
    done = run(LEAN.format(hidden=sorted(set(EXTRAS) - {backend, "scipy"})), tmp_path, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["diff"] < 1e-4
    known = np.load(tmp_path / "known.npz")
    for file in ("m.onnx", "dist/model.onnx"):
        session = onnxruntime.InferenceSession(str(tmp_path / file))
        (logits,) = session.run(None, {session.get_inputs()[0].name: known["x"]})
        np.testing.assert_allclose(logits, known["logits"], atol=1e-4)
    shares = np.exp(known["logits"][0]) / np.exp(known["logits"][0]).sum()
    for asked in found["asked"]:
        np.testing.assert_allclose([y["probability"] for y in asked["classes"]], np.sort(shares)[:-6:-1], atol=1e-5)
    assert found["elsewhere"] == "ModuleNotFoundError"
    for name, (what, extra) in LACKING.items():
        if backend == "torch" and name in ("convert tflite", "convert saved_model"):
            assert "works on Keras' backend tensorflow or jax" in found["errors"][name]
            continue
        assert found["errors"][name].startswith(what) and f"'.[{extra}]'" in found["errors"][name], name


@pytest.mark.slow
def test_jax_writes_tflite_and_stablehlo_without_tensorflow(tmp_path):
    if not all(map(importlib.util.find_spec, ("jax", "litert_converter"))):
        pytest.skip("JAX or litert-converter is not installed")
    done = run(TFLITE, tmp_path, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, *_ in found] == ["tflite", "stablehlo"] * 2
    assert all(difference < 1e-5 and batches == [1, 3] for _, difference, batches in found)


@pytest.mark.parametrize(
    ("backend", "advice"), [("tensorflow", "set KERAS_BACKEND=jax"), ("jax", "unset KERAS_BACKEND")]
)
def test_a_backend_that_is_missing_is_named_with_another(tmp_path, backend, advice):
    code = f"import hiding; hiding.hide([{backend!r}]); import keras_vit; keras_vit.zoo.load('ViT-Mini/4')"
    done = run(code, tmp_path, KERAS_BACKEND=backend)
    assert f"Keras' backend '{backend}' needs" in done.stderr and advice in done.stderr


def test_a_backend_that_keras_does_not_have(tmp_path):
    code = "import sys; sys.argv = ['keras-vit', 'preview', '--data', 'digits']; from keras_vit import cli; cli.main()"
    done = run(code, tmp_path, KERAS_BACKEND="jaxx")
    assert done.returncode == 1 and re.fullmatch(
        r"keras-vit: .*jaxx. Set KERAS_BACKEND to tensorflow, .*\n", done.stderr
    )

"""The commands on TensorFlow and on JAX: they print the same numbers and write the same files, but for random draws."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from keras_vit import zoo

WORKER = Path(__file__).parents[1] / "support" / "all_commands.py"
DRAWN = ("seconds", "milliseconds", "memory", "path", "name", "image", "model")  # of a machine, or of a folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("jax")
    root = tmp_path_factory.mktemp("engines")
    (root / "images").mkdir()
    for i in range(6):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), "uint8")
        Image.fromarray(pixels).resize((60, 60)).save(root / f"images/{i}.png")
    for backend in ("tensorflow", "jax"):
        (root / backend).mkdir()
        command = [sys.executable, WORKER, root / "images", root / backend]
        done = subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    return root / "tensorflow", root / "jax"


def numbers(found, path=""):
    """(where, value) of every number that no machine decides."""
    if isinstance(found, dict):
        for key, value in found.items():
            if not any(word in key for word in DRAWN):
                yield from numbers(value, f"{path}/{key}")
    elif isinstance(found, list):
        for i, value in enumerate(found):
            yield from numbers(value, f"{path}/{i}")
    elif isinstance(found, int | float):
        yield path, float(found)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["predict", "fewshot", "probe", "evaluate", "compare"])
def test_they_print_the_same_numbers(folders, name):
    expected, found = (
        dict(pair for line in (folder / f"{name}.txt").read_text().splitlines() for pair in numbers(json.loads(line)))
        for folder in folders
    )
    assert expected and set(expected) == set(found)
    for path, value in expected.items():
        assert abs(found[path] - value) <= 2e-3 * max(1, abs(value)), path


@pytest.mark.slow
@pytest.mark.long
def test_they_write_the_same_files(folders):
    names = [sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) for folder in folders]
    ours = [[name for name in found if not name.startswith(("run/train", "run/validation"))] for found in names]
    assert ours[0] == ours[1]  # but for TensorBoard's, whose names are a machine's
    tensors = [np.load(folder / "vectors.npz")["vectors"] for folder in folders]
    np.testing.assert_allclose(*tensors, atol=1e-5)
    models = [zoo.load(folder / "run/model.keras") for folder in folders]
    for ours, theirs in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours.numpy(), atol=1e-4, err_msg=ours.path)
    x = np.random.default_rng(0).uniform(-1, 1, (2, *models[0].input_shape[1:])).astype("float32")
    for folder in folders:
        session = onnxruntime.InferenceSession(folder / "dist/model.onnx")
        (logits,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(logits, models[0].predict_on_batch(x), atol=0.2)  # in int8

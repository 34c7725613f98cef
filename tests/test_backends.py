"""The tests of what works on Keras' other backends, where those are installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import cluster
import pytest

TESTS = pathlib.Path(__file__).parent
CORE = ("models/test_golden.py", "training/test_optimizers.py", "export/test_from_jax.py")
EVERY_PUSH = (
    *CORE,
    "inspection/test_tools.py::test_a_resnet_is_made_inspected_and_copied_by_few_programs",
    "models/test_preprocessing.py::test_pictures_of_another_size_are_not_compiled_for",
    "training/test_portable.py::test_a_run_copies_its_state_out_of_the_loop_at_checkpoints_alone",
    "distribution/test_microbatches.py::test_each_output_has_its_own_reduction_and_weights",
    "training/test_portable.py::test_raw_pixels_to_validate_on_are_refused",
    "training/test_portable.py::test_threads_ask_one_model",
    "data/test_deferred.py::test_a_model_learns_the_same",
)
PORTABLE = (
    *CORE,
    "data/test_deferred.py",
    "evaluation/test_evaluate.py",
    "evaluation/test_few_shot_protocol.py",
    "training/test_portable.py",
)
FIRST_MODELS = """
from concurrent.futures import ThreadPoolExecutor
import keras_vit
names = ["ViT-Mini/4:fashion-mnist", "R20x0.5:fashion-mnist"] * 4
with ThreadPoolExecutor(8) as pool:
    print(*(type(model).__name__ for model in pool.map(keras_vit.zoo.load, names)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_first_models_are_loaded_in_threads(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", FIRST_MODELS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent)
    assert done.stdout.split() == ["VisionTransformer", "ResNet"] * 4, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (EVERY_PUSH, "not slow and not browser"),
        pytest.param(PORTABLE, "not browser", marks=pytest.mark.long),
    ],
    ids=["every push", "all"],
)
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_portable(backend, files, chosen):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *("-m", chosen),
        *(str(TESTS / name) for name in files),
    ]
    environment = {**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": cluster.UNOPTIMIZED}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:]

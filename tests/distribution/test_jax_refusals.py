"""What is refused on JAX, in processes of four virtual devices, or two processes that disagree."""

import os
import subprocess
import sys

import cluster
import pytest

ONE = """
import keras_vit
from keras_vit import models, training

def tries(work):
    try:
        work()
    except keras_vit.errors.ConfigError as error:
        print(error)

def fits(strategy, model):
    with strategy.scope():
        model = model()
        model.compile("sgd", training.SoftmaxLoss())
        model.fit(np.zeros((8, 16, 16, 3), "float32"), np.zeros(8, "int32"), verbose=0)

import numpy as np
SIZES = dict(image_size=16, patch_size=8, num_layers=1, num_classes=3)
tries(lambda: training.strategy("jax", devices=["cpu:0", "cpu:9"]))
tries(lambda: training.strategy("jax", model_parallel=3))
two = training.strategy("jax", model_parallel=2)
tries(lambda: fits(two, lambda: models.ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=3)))
fits(two, lambda: models.VisionTransformer(**SIZES, hidden_size=16, num_heads=2, mlp_dim=32, qkv_bias="none"))
tries(lambda: fits(two, lambda: models.VisionTransformer(**SIZES, hidden_size=15, num_heads=3, mlp_dim=32)))
"""
SENTENCES = (
    "JAX has no device 'cpu:9'; it has cpu:0, cpu:1, cpu:2, cpu:3.",
    "model_parallel must divide the number of devices. Received: model_parallel=3 and 4 devices.",
    "model_parallel=2 splits the weights of a ViT's encoder blocks, and ResNet has none that match",
    "model_parallel=2 must divide the widths of the encoder.",
)
TWO = """
import os, numpy as np, keras_vit
from keras_vit import models, training
number = int(os.environ["KERAS_DISTRIBUTION_PROCESS_ID"])
with training.strategy("jax").scope():
    model = models.ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=3)
    model.compile("sgd", training.SoftmaxLoss())
try:
    model.fit(np.full((8, 16, 16, 3), number, "float32"), np.zeros(8, "int32"), verbose=0)
except keras_vit.errors.ConfigError as error:
    print(error, flush=True)
    os._exit(0)  # without waiting for the other
"""


def start(script, environment):
    return subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_devices_and_models_that_do_not_fit():
    out, _ = (process := start(ONE, cluster.on_jax(4))).communicate(timeout=300)
    lines = [line for line in out.splitlines() if not line.startswith("Training on")]
    assert process.returncode == 0 and len(lines) == len(SENTENCES), out
    for line, sentence in zip(lines, SENTENCES, strict=True):
        assert sentence in line


@pytest.mark.slow
def test_processes_that_read_different_batches():
    processes = [start(TWO, environment) for environment in cluster.jax_environments(2, 1)]
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert "The 2 processes must train on the same batches, but their first ones differ." in out

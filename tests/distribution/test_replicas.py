"""N replicas, on logical CPUs and as worker processes, train to the weights of one device."""

import os
import subprocess
import sys
from pathlib import Path

import cluster
import numpy as np
import pytest
from family_models import OPTIONS

WORKER = Path(__file__).parent.parent / "support" / "training_worker.py"
MIRRORED = (
    (2, ("sgd", "adam-accumulation", "pixels")),
    (2, ("sgd-relative", "sgd-blocks", "axial-vit", "axial-resnet", "masked-patches", "deferred")),
    (2, tuple(OPTIONS)),
    (4, ("frozen", "sgd-resnet-weighted", "adamw-microbatches", "adam-sum", "two-outputs", "lora")),
)
WORKERS = ("adamw", "sgd-bfloat16")
ALL = (*(case for _, cases in MIRRORED for case in cases), *WORKERS)


def start(out, kind, count, *cases, **environment):
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(WORKER), kind, str(count), str(out), *cases]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes):
    for process in processes:
        try:
            said = process.communicate(timeout=1200)[0]
        finally:
            process.kill()
        assert process.returncode == 0, said[-3000:]


def equal(expected, found, case):
    a, b = (dict(np.load(folder / f"{case}.npz")) for folder in (expected, found))
    np.testing.assert_allclose(b.pop("losses"), a.pop("losses"), rtol=1e-4 if "bfloat16" in case else 1e-6)
    largest = max(np.abs(value).max() for name, value in a.items() if "/" in name)
    for name, value in a.items():
        # The keys' biases have no gradient but rounding, which Adam makes steps of.
        scale = largest if name.endswith("key/bias") else np.abs(value).max()
        # A sum that differs in its last bit may round to the next bfloat16.
        assert np.abs(b[name] - value).max() <= (1e-3 if "bfloat16" in case else 1e-5) * scale, f"{case}: {name}"


@pytest.fixture(
    scope="module",
    params=[MIRRORED[0], *(pytest.param(row, marks=pytest.mark.long) for row in MIRRORED[1:])],
    ids=lambda row: f"{row[0]}-{row[1][0]}",
)
def mirrored(request, tmp_path_factory):
    """(how many replicas, the cases, where one device wrote them, where the replicas did)."""
    count, cases = request.param
    one, out = (tmp_path_factory.mktemp(name) for name in ("one", f"mirrored{count}"))
    finish(start(one, "one_device", 1, *cases, "on-batches"))
    finish(start(out, "mirrored", count, *cases, "masks", "on-batches"))
    return count, cases, one, out


@pytest.mark.slow
def test_logical_cpus_train_as_one_device(mirrored):
    """With integer images and labels too, though `reduce` there takes no integers, as on TPUs."""
    _, cases, one, out = mirrored
    for case in cases:
        equal(one, out, case)


@pytest.mark.slow
def test_dropout_masks_differ_between_replicas_and_come_back(mirrored):
    count, _, _, out = mirrored
    masks = np.load(out / "masks.npz")["masks"]  # (2 runs, 3 calls, replicas, 64)
    np.testing.assert_array_equal(masks[0], masks[1])
    assert len(np.unique(masks[0].reshape(-1, 64), axis=0)) == 3 * count
    assert 0.3 < (masks == 0).mean() < 0.7


@pytest.mark.slow
def test_single_batches_are_spread_and_an_overflow_on_one_replica_is_skipped_by_all(mirrored):
    """`train_on_batch` and its like in float16, several steps per execution being asked for."""
    a, b = (dict(np.load(folder / "on-batches.npz")) for folder in mirrored[2:])
    assert a.pop("scales").tolist() == b["scales"].tolist() == [2.0**15] * 3 + [2.0**14] * 3 + [2.0**13] * 4
    assert a.pop("updates").tolist() == b["updates"].tolist() == [1, 2, 3, 3, 4, 5, 5, 6, 7, 8]
    for name, value in a.items():
        np.testing.assert_allclose(b[name], value, atol=4 * 2**-10 * np.abs(value).max(), err_msg=name)


TWICE = """
import keras, numpy as np, tensorflow as tf
from keras_vit import training
cpus = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
for width in (4, 6):
    with training.strategy("mirrored").scope():
        model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(1, use_bias=False)])
        model.set_weights([np.zeros((width, 1))])
        model.compile(training.SGD(0.5), "mse")
    model.fit(np.eye(width)[:4], np.ones((4, 1)), verbose=0)
    print(model.get_weights()[0].ravel())
"""


@pytest.mark.slow
def test_a_second_training_in_a_process():
    """Of another model, as by two calls of `finetune`; a step from 0 is the mean of x: the gradient is -2 of it."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "[0.25 0.25 0.25 0.25]" in done.stdout and "[0.25 0.25 0.25 0.25 0.   0.  ]" in done.stdout


@pytest.mark.slow
def test_two_processes_train_as_one_device(tmp_path):
    finish(start(tmp_path / "one", "one_device", 1, *WORKERS))
    outs = [tmp_path / str(i) for i in range(2)]
    workers = zip(outs, cluster.configs(2), strict=True)
    finish(*(start(out, "multi_worker", 2, *WORKERS, TF_CONFIG=config) for out, config in workers))
    for case in WORKERS:
        for out in outs:
            equal(tmp_path / "one", out, case)


ON_JAX = ("adam-accumulation",)
MORE_ON_JAX = (*(cases for _, cases in MIRRORED), (*WORKERS, "on-batches"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [ON_JAX, *(pytest.param(cases, marks=pytest.mark.long) for cases in MORE_ON_JAX)], ids=lambda x: x[0]
)
def test_devices_of_jax_train_as_one(tmp_path, cases):
    """A last batch that they do not divide included: of two examples, on four devices."""
    one = tmp_path / "one"
    finish(start(one, "jax", 1, *cases, **cluster.on_jax(1)))
    finish(start(tmp_path / "data", "jax", 4, *cases, **cluster.on_jax(4)))
    for case in set(cases) - {"on-batches"}:
        equal(one, tmp_path / "data", case)
    if "lora" in cases:
        finish(start(tmp_path / "model", "jax-model", 4, "lora", **cluster.on_jax(4)))
        equal(one, tmp_path / "model", "lora")
    if "on-batches" in cases:
        a, b = (dict(np.load(folder / "on-batches.npz")) for folder in (one, tmp_path / "data"))
        for name, value in a.items():
            np.testing.assert_allclose(b[name], value, atol=4 * 2**-10 * np.abs(value).max(), err_msg=name)


@pytest.mark.long
@pytest.mark.slow
def test_two_processes_of_jax_train_as_one_device(tmp_path):
    finish(start(tmp_path / "one", "jax", 1, "adamw", **cluster.on_jax(1)))
    outs = [tmp_path / str(i) for i in range(2)]
    environments = zip(outs, cluster.jax_environments(2, devices=2), strict=True)
    finish(*(start(out, "jax", 2, "adamw", **environment) for out, environment in environments))
    for out in outs:
        equal(tmp_path / "one", out, "adamw")

"""A run that is killed, told to stop, torn, starved of disk or fed NaN loses nothing that was whole."""

import contextlib
import csv
import errno
import importlib.util
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import cluster
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from training_run import EPOCH, RUN_ERROR, TOTAL, batches, compiled, linear, points, tiny

from keras_vit import data, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.training.runs import checkpoints
from keras_vit.training.runs.history import list_epoch_ends, plan_segments, read_rows
from keras_vit.training.runs.run_folder import hold_folder

SCRIPT = Path(__file__).parent.parent / "support" / "training_run.py"
KILLS = 20


class Server:
    """A process that has imported TensorFlow and forks runs."""

    def __init__(self, kind="one_device", kit="", **environment):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "serve", kind, kit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            bufsize=1,
        )

    def run(self, folder, number=None, ready=None, most_bytes=""):
        """Starts a run, sends it the signal once `ready()`, and gives its exit status."""
        self.process.stdin.write(f"{folder}\t{most_bytes}\n")
        pid = int(self.line())
        if number is not None:
            done = threading.Event()
            killer = threading.Thread(target=self.kill, args=(pid, number, ready, done))
            killer.start()
            status = int(self.line())
            done.set()
            killer.join()
            return status
        return int(self.line())

    def kill(self, pid, number, ready, done):
        if wait_for(lambda: done.is_set() or ready()) and not done.is_set():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, number)

    def line(self):
        """The next line that is a number, past what a run says itself."""
        for line in self.process.stdout:
            if line.strip().lstrip("-").isdigit():
                return line
        raise AssertionError("the server has ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    raise AssertionError("nothing happened")


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def unbroken(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert server.run(folder) == 0
    return folder


def newest(folder):
    return max((int(p.stem[5:]) for p in (folder / "checkpoints").glob("step-*.npz")), default=0)


def same(a, b):
    for name in ("last.weights.npz", "averaged.weights.npz", "best.weights.npz"):
        x, y = (dict(np.load(folder / name)) for folder in (a, b))
        assert x.keys() == y.keys()
        for key in x:
            np.testing.assert_array_equal(x[key], y[key], err_msg=f"{name} {key}")
    assert (a / "metrics.csv").read_text() == (b / "metrics.csv").read_text()
    x, y = (checkpoints.Checkpoints(folder / "checkpoints").newest() for folder in (a, b))
    assert x[0] == y[0] == TOTAL
    for key, other in zip(sorted(x[1]), sorted(y[1]), strict=True):
        np.testing.assert_array_equal(x[1][key], y[1][other], err_msg=key)


def workers(kind, *command):
    """The command as two processes that train together by the strategy `kind`."""
    if kind == "jax":
        environments = cluster.jax_environments(2, 2)
    else:
        environments = [{"TF_CONFIG": config} for config in cluster.configs(2)]
    for environment in environments:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
        yield subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True)


def statuses(processes):
    try:
        return [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_worker", pytest.param("jax", marks=pytest.mark.long)])
def test_sigterm_to_one_worker_stops_all_and_they_resume(tmp_path, kind):
    whole, folder = tmp_path / "whole", tmp_path / "stopped"
    assert statuses(list(workers(kind, sys.executable, SCRIPT, whole, kind))) == [0, 0]
    running = list(workers(kind, sys.executable, SCRIPT, folder, kind))
    wait_for(lambda: newest(folder) >= 6 or any(process.poll() is not None for process in running))
    running[1].terminate()
    assert statuses(running) == [143, 143]
    assert 6 <= newest(folder) < TOTAL
    assert statuses(list(workers(kind, sys.executable, SCRIPT, folder, kind))) == [0, 0]
    same(folder, whole)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_worker", "jax"])
def test_the_command_trains_on_two_workers_as_on_one_device(tmp_path, kind):
    """Each sees its part of every batch, and every held-out image counts once."""
    # With the classes of the data the head stays: at zero, where new ones begin, rounding is most of what is learned.
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, labels=data.load("digits", "train").class_names)
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1 * rng.standard_normal(variable.shape).astype("float32"))
    zoo.save(model, tmp_path / "model.npz")
    command = [sys.executable, "-m", "keras_vit", "finetune", "--data", "digits", "--model", tmp_path / "model.npz"]
    command += ["--image-size", 16, "--steps", 30, "--batch-size", 64, "--learning-rate", 0.003]
    subprocess.run([*map(str, command), "--out", tmp_path / "one", "--strategy", "one_device"], check=True)
    assert statuses(list(workers(kind, *command, "--out", tmp_path / "two", "--strategy", kind))) == [0, 0]
    one, two = (dict(np.load(tmp_path / name / "last.weights.npz")) for name in ("one", "two"))
    largest = max(np.abs(value).max() for value in one.values())
    for name, value in one.items():
        # The keys' biases have no gradient but rounding.
        scale = largest if name.endswith("key/bias") else np.abs(value).max()
        assert np.abs(two[name] - value).max() <= 1e-5 * scale, name
    one, two = (np.genfromtxt(tmp_path / name / "metrics.csv", delimiter=",", names=True) for name in ("one", "two"))
    for name in one.dtype.names:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, err_msg=name)


def killed_at_random_moments(server, unbroken, folder, kills):
    rng = random.Random(0)
    killed = 0
    begins = folder / "0"
    while killed < kills:
        # Up to six checkpoints, and the writing of them, after a process has begun at the last one; every fifth time
        # before it has; now and then a run gets to its end.
        begun = newest(begins) if killed % 5 else -1
        delay = rng.uniform(0, 0.4) if killed % 5 else rng.uniform(0, 2)

        def ready(begun=begun, delay=delay, folder=begins):
            return newest(folder) > begun and (time.sleep(delay) or True)

        status = server.run(begins, signal.SIGKILL, ready)
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
        if status == 0:
            same(unbroken, begins)
            begins = folder / str(killed)
    assert server.run(begins) == 0
    same(unbroken, begins)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(KILLS, marks=pytest.mark.long)])
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(server, unbroken, tmp_path, kills):
    killed_at_random_moments(server, unbroken, tmp_path, kills)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_on_two_replicas_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    """Metrics too, which each replica sums up for itself."""
    server = Server("mirrored")
    assert server.run(tmp_path / "unbroken") == 0
    killed_at_random_moments(server, tmp_path / "unbroken", tmp_path, KILLS // 4)
    server.close()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("devices", [1, 8])
def test_a_run_on_jax_killed_at_random_moments_ends_with_the_same_bits(tmp_path, devices):
    server = Server("jax", **cluster.on_jax(devices))
    try:
        assert server.run(tmp_path / "unbroken") == 0
        killed_at_random_moments(server, tmp_path / "unbroken", tmp_path / "killed", KILLS)
        stopped = tmp_path / "stopped"
        assert server.run(stopped, signal.SIGTERM, lambda: newest(stopped) >= 6) == 143
        assert server.run(stopped) == 0
        same(tmp_path / "unbroken", stopped)
    finally:
        server.close()


@pytest.mark.slow
def test_a_run_of_one_engine_continues_on_the_other(tmp_path):
    kit = "same on each engine"
    engines = {"jax": Server("jax", kit, **cluster.on_jax(4)), "tensorflow": Server("one_device", kit)}
    for name, other in (("tensorflow", "jax"), ("jax", "tensorflow")):
        whole, stopped = tmp_path / name / "whole", tmp_path / name / "stopped"
        assert engines[name].run(whole) == 0
        assert engines[name].run(stopped, signal.SIGTERM, lambda stopped=stopped: newest(stopped) >= 6) == 143
        assert engines[other].run(stopped) == 0
        for file in ("last.weights.npz", "averaged.weights.npz"):
            a, b = (dict(np.load(folder / file)) for folder in (whole, stopped))
            for key, value in a.items():
                np.testing.assert_allclose(b[key], value, atol=1e-5 * max(1, np.abs(value).max()), err_msg=key)
    for server in engines.values():
        server.close()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kit", ["lora", "frozen"])
def test_fine_tuning_a_part_of_a_model_resumes_to_the_same_bits_on_two_replicas(kit, tmp_path):
    """LoRA, stochastic depth and rematerialization; frozen layers, layer decay and class weights."""
    server = Server("mirrored", kit)
    assert server.run(tmp_path / "unbroken") == 0
    killed_at_random_moments(server, tmp_path / "unbroken", tmp_path, 3)
    server.close()
    with np.load(tmp_path / "unbroken" / "last.weights.npz") as weights:
        assert not [name for name in weights if "lora" in name]


@pytest.mark.slow
def test_sigterm_saves_and_leaves(server, unbroken, tmp_path):
    assert server.run(tmp_path, signal.SIGTERM, lambda: newest(tmp_path) >= 6) == 143
    assert 6 <= newest(tmp_path) < TOTAL
    assert server.run(tmp_path) == 0
    same(unbroken, tmp_path)


def test_torn_checkpoints_are_passed_over(tmp_path):
    store = checkpoints.Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3):
        assert store.save(step, {"a": np.full(1000, step)})
    whole = store.path(3).read_bytes()
    for torn in (whole[:-100], whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:], b""):
        store.path(3).write_bytes(torn)
        with pytest.warns(UserWarning, match="step 3 .* cannot be read"):
            step, arrays = store.newest()
        assert step == 2 and arrays["a"][0] == 2
    store.path(2).write_text("{")
    with pytest.warns(UserWarning):
        assert store.newest()[0] == 1
    store.path(1).unlink()
    (tmp_path / "step-notes.npz").write_text("{}")
    with pytest.warns(UserWarning), pytest.raises(training.RunError, match="No other checkpoint is left"):
        store.newest()
    assert store.save(4, {"a": np.ones(3)})
    store.path(4).write_text("[]")
    with pytest.raises(training.RunError, match="step 4 .* cannot be read"):
        store.load(4)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_costs_no_earlier_checkpoint(tmp_path, monkeypatch, call):
    store = checkpoints.Checkpoints(tmp_path, keep=1)
    store.save(1, {"a": np.ones(10)})

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.warns(UserWarning, match="No space left"):
            assert not store.save(2, {"a": np.ones(10)})
    assert store.newest()[0] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "step-00000001.npz"]
    assert store.save(3, {"a": np.ones(10)}) and store.steps() == [3]


class Poison(keras.callbacks.Callback):
    """Makes a weight NaN after some batch."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            bias = self.model.get_layer("head").bias
            bias.assign(bias * float("nan"))


def test_nan_stops_the_run_and_keeps_the_last_good_weights(tmp_path):
    run, model = training.Run(tmp_path, every=3), compiled(make=linear)
    with pytest.raises(training.NotFiniteError, match="loss of step 8 is nan") as caught:
        run.fit(model, batches, 20, 10, callbacks=[Poison(8)])
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # as a pool of processes hands it over
        assert (error.step, error.kept, str(error)) == (8, 6, str(caught.value))
    assert all(np.isfinite(v.numpy()).all() for v in model.weights)
    assert run.store.steps()[0] == 6
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
def test_a_disk_that_takes_no_more(server, unbroken, tmp_path):
    """The weights cannot be written: the run goes to its end, says so, and is resumed when there is room."""
    assert server.run(tmp_path, most_bytes=20_000) == RUN_ERROR
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert "metrics.csv" in names
    assert not names & {"last.weights.npz", "model.keras", "best.weights.npz"}
    assert not [name for name in names if name.startswith("step-") or "partial" in name]
    assert server.run(tmp_path) == 0
    same(tmp_path, unbroken)


class Obstacles(keras.callbacks.Callback):
    """Puts folders where the metrics are to be written, once the run has begun."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_batch_begin(self, batch, logs=None):
        for name in ("metrics.csv", "curves.png"):
            (self.folder / name).mkdir(exist_ok=True)


def test_metrics_that_cannot_be_written_stop_nothing(tmp_path):
    run, model = training.Run(tmp_path, every=5), compiled(make=linear)
    with pytest.warns(UserWarning, match=r"(metrics.csv|curves.png) could not be written: Is a directory") as warned:
        run.fit(model, batches, 10, 5, callbacks=[Obstacles(tmp_path)])
    assert {Path(str(w.message).split()[0]).name for w in warned} >= {"metrics.csv", "curves.png"}
    assert run.store.steps()[0] == 10 and (tmp_path / "averaged.weights.npz").exists()


@pytest.mark.slow
def test_events_are_written_where_tensorboard_is(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "tensorboard" in name else find_spec(name))
    training.Run(tmp_path / "without", every=5).fit(compiled(make=linear), batches, 6, 3)
    assert not (tmp_path / "without/tensorboard").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    training.Run(tmp_path / "with", every=5).fit(compiled(make=linear), batches, 6, 3)
    (path,) = (tmp_path / "with/tensorboard").iterdir()
    events = [tf.compat.v1.Event.FromString(x.numpy()) for x in tf.data.TFRecordDataset(str(path))]
    found = [
        (event.step, value.simple_value) for event in events for value in event.summary.value if value.tag == "loss"
    ]
    rows = read_rows(tmp_path / "with/metrics.csv")
    assert found == [(row["step"], pytest.approx(row["loss"])) for row in rows] and len(found) == 2


@pytest.mark.slow
def test_what_a_run_folder_holds_and_refuses(tmp_path):
    run, model = training.Run(tmp_path, every=5), compiled()
    run.fit(model, batches, 12, 5, validation=batches(900).take(2), config={"data": "none"})
    with open(tmp_path / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["5", "10", "12"]
    assert json.loads((tmp_path / "config.json").read_text())["data"] == "none"
    for name in ("curves.png", "model.keras", "last.weights.npz", "averaged.weights.npz", "best.weights.npz"):
        assert (tmp_path / name).exists(), name
    again = compiled()
    training.load_weights(again, tmp_path / "averaged.weights.npz")
    images = np.zeros((2, 16, 16, 3))
    np.testing.assert_array_equal(again(images), model(images))
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(loaded(images), model(images), rtol=1e-6)
    with pytest.raises(training.RunError, match="resume=True"):
        run.fit(model, batches, 12, 5)
    with pytest.raises(training.RunError, match="variables"):
        run.fit(compiled(use_ema=False), batches, 12, 5, resume=True)
    with hold_folder(tmp_path), pytest.raises(training.RunError, match="Another process"):
        run.fit(model, batches, 12, 5, resume=True)
    (tmp_path / "metrics.csv").write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(training.RunError, match="metrics.csv was not written by this run"):
        run.fit(again, batches, 12, 5, resume=True)
    with pytest.raises(training.RunError, match="metrics.csv could not be read"):
        read_rows(tmp_path / "metrics.csv")
    with pytest.raises(ConfigError, match="positive"):
        training.Run(tmp_path, every=0)
    model.compile(keras.optimizers.AdamW(use_ema=True), training.SoftmaxLoss())
    with pytest.raises(ConfigError, match="Use keras_vit.training.AdamW"):
        training.Run(tmp_path / "foreign").fit(model, batches, 12, 5)


class Weights(keras.callbacks.Callback):
    """The weights after every batch."""

    def on_train_begin(self, logs=None):
        self.seen = getattr(self, "seen", [])

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append({v.path: v.numpy() for v in self.model.trainable_variables})


@pytest.mark.slow
def test_a_run_in_float16_ends_with_averaged_weights(tmp_path):
    """mixed_float16 wraps the optimizer that averages."""
    model = compiled(dtype="mixed_float16", make=linear, gradient_accumulation_steps=None)
    run, seen, held_out = training.Run(tmp_path), Weights(), batches(900)
    run.fit(model, batches, 12, 5, validation=held_out.take(2), monitor="val_loss", callbacks=[seen])
    average = seen.seen[0]
    for weights in seen.seen[1:]:
        average = {path: 0.9 * average[path] + 0.1 * weight for path, weight in weights.items()}
    final = dict(np.load(tmp_path / "averaged.weights.npz"))
    for path, value in average.items():
        np.testing.assert_allclose(final[path], value, rtol=1e-5, atol=1e-7, err_msg=path)
    training.load_weights(model, tmp_path / "best.weights.npz")
    least = min(row["val_loss"] for row in read_rows(tmp_path / "metrics.csv"))
    np.testing.assert_allclose(model.evaluate(held_out.take(2), verbose=0)[0], least, rtol=1e-5)


@pytest.mark.slow
def test_several_steps_per_execution_give_the_same_run(tmp_path):
    finals = []
    for count in (1, 4):
        run, model = training.Run(tmp_path / str(count), every=6), compiled(make=linear)
        model.steps_per_execution = count
        run.fit(model, batches, 14, 8)
        assert run.store.steps()[0] == 14
        finals.append({v.path: v.numpy() for v in model.weights})
    for path, value in finals[0].items():
        np.testing.assert_allclose(finals[1][path], value, rtol=1e-6, err_msg=path)


@pytest.mark.parametrize("length", [EPOCH, 10, 3, 1, Fraction(159, 32), Fraction(7, 4), Fraction(60, 7)])
@pytest.mark.parametrize("total", [3, 9, 25, 60])
def test_segments_cover_a_run(length, total):
    ends = list_epoch_ends(total, length)
    assert ends[:-1] == [round(float(length) * (e + 1)) for e in range(len(ends) - 1)] and ends[-1] == total
    for start in range(total + 1):
        found = plan_segments(start, ends)
        assert [step for begin, end, *_ in found for step in range(begin, end)] == list(range(start, total))
        for begin, end, epoch, epochs in found:
            own = [e for e in ends if begin < e <= end]
            assert len(own) == epochs and own[-1] == end and ends[epoch] == own[0]
            assert epochs == 1 or {b - a for a, b in itertools.pairwise([begin, *own])} == {(end - begin) // epochs}


@pytest.mark.parametrize(
    "epochs, images, batch", [(20, 514, 32), (30, 514, 32), (10, 33, 32), (7, 1293, 100), (1, 5, 5)]
)
def test_so_many_epochs_are_so_many_rows(epochs, images, batch):
    assert len(list_epoch_ends(round(epochs * images / batch), Fraction(images, batch))) == epochs


def test_a_line_per_epoch_says_how_many_the_run_has(tmp_path, capsys):
    """Though epochs of 2, 3 and 2 steps take a `fit` each."""
    training.Run(tmp_path).fit(tiny(), points, 7, Fraction(7, 3), verbose=2)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Epoch ")]
    assert said == [f"Epoch {row['epoch']}/3" for row in read_rows(tmp_path / "metrics.csv")]


@pytest.mark.slow
def test_one_replica_makes_a_plain_iterator_for_training_and_one_for_validation(tmp_path, monkeypatch):
    """A strategy's iterator has tf.data optimize the pipeline anew for each pass, some ten CPU seconds an epoch."""
    made = []

    class Counted(trainer.TFEpochIterator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self._distributed_dataset)

    monkeypatch.setattr(trainer, "TFEpochIterator", Counted)
    with training.strategy().scope():
        model = compiled()
    training.Run(tmp_path).fit(model, batches, 9, 3, validation=batches(10_000).take(2))
    assert model.distribute_strategy is tf.distribute.get_strategy()
    assert len(read_rows(tmp_path / "metrics.csv")) == 3
    assert len(made) == 2
    assert not any(isinstance(iter(data), tf.distribute.DistributedIterator) for data in made)

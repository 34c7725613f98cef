"""The best epoch of a run: its weights are a checkpoint, and a run that has none better for long enough ends."""

import keras
import numpy as np
import pytest
from training_run import batches, points, small, tiny

from keras_vit import training, zoo
from keras_vit.errors import ConfigError
from keras_vit.training.runs.history import count_epochs_without_gain, find_best, find_last_epoch, read_rows
from keras_vit.training.runs.run_folder import describe_weights, model_of

HELD_OUT = 900


def compiled():
    """A model of this package that keeps averages of its weights."""
    model = small()
    optimizer = training.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.8)
    model.compile(optimizer, training.SoftmaxLoss(), weighted_metrics=[training.Accuracy()])
    return model


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("best") / "run"
    model = compiled()
    seen = []

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            plain = {v.path: v.numpy() for v in model.weights}
            seen.append((plain, plain | {v.path: a.numpy() for v, a in model.optimizer.averages()}))

    run = training.Run(folder)
    run.fit(model, batches, 9, 3, validation=batches(HELD_OUT).take(4), callbacks=[Seen()])
    return folder, seen


def same(model, expected):
    for found, value in zip(model.weights, expected.values(), strict=True):
        np.testing.assert_array_equal(found.numpy(), value, err_msg=found.path)


@pytest.mark.slow
def test_the_weights_of_a_run_are_checkpoints(finished):
    """The best epoch's averaged weights, which validation evaluates; the last ones; the averaged last ones."""
    folder, seen = finished
    best = find_best(read_rows(folder / "metrics.csv"), "val_accuracy")
    expected = {"best": seen[best["epoch"] - 1][1], "last": seen[-1][0], "averaged": seen[-1][1]}
    model = compiled()
    for kind, weights in expected.items():
        stored = zoo.load(folder / f"{kind}.weights.npz")
        assert stored.config == model.config and stored.preprocessing == model.preprocessing
        same(stored, weights)
        training.load_weights(model, folder / f"{kind}.weights.npz")
        same(model, weights)
    assert any((expected["last"][path] != expected["averaged"][path]).any() for path in expected["last"])


def test_which_weights_a_command_takes(finished, tmp_path):
    folder, _ = finished
    assert model_of(folder) == model_of(folder, "best") == str(folder / "best.weights.npz")
    for kind in ("last", "averaged"):
        assert model_of(folder, kind) == str(folder / f"{kind}.weights.npz")
    rows = read_rows(folder / "metrics.csv")
    best = find_best(rows, "val_accuracy")
    said = describe_weights(model_of(folder))
    assert f"the weights of the best epoch, {best['epoch']} of 3: val_accuracy {best['val_accuracy']:.3f}." in said
    assert "the weights after the last step." in describe_weights(model_of(folder, "last"))
    assert describe_weights("ViT-B/16") is None
    with pytest.raises(training.RunError, match="ViT-B/16 is not the folder of one"):
        model_of("ViT-B/16", "last")
    training.Run(tmp_path / "plain").fit(tiny(), points, 2)  # a model of another package, without validation
    assert model_of(tmp_path / "plain") == str(tmp_path / "plain/model.keras")
    with pytest.raises(training.RunError, match="has no best weights. It has: model.keras alone"):
        model_of(tmp_path / "plain", "best")


def test_what_the_best_epoch_is():
    """The metric decides, the loss where it is equal, the first where both are; NaN never."""
    rows = [(1, 0.5, 1.0), (2, 0.7, 0.9), (3, 0.7, 0.8), (4, 0.7, 0.8), (5, float("nan"), 0.1), (6, 0.6, 0.1)]
    rows = [{"epoch": e, "val_accuracy": a, "val_loss": loss} for e, a, loss in rows]
    assert find_best(rows, "val_accuracy")["epoch"] == 3 and count_epochs_without_gain(rows, "val_accuracy") == 3
    assert find_best(rows, "val_loss")["epoch"] == 5
    assert find_best([{"epoch": 1, "loss": 0.1}], "val_accuracy") is None
    assert count_epochs_without_gain([{"epoch": 1}] * 9, "val_accuracy") == 0
    prolonged = [{"epoch": e, "val_accuracy": a} for e, a in ((1, 0.7), (2, 0.6), (2, 0.6), (3, 0.6))]
    assert find_last_epoch(prolonged) == 3 and count_epochs_without_gain(prolonged, "val_accuracy") == 2


class Stops(Exception):
    pass


def train(folder, kill_at=None, patience=2, resume=False, total=60):
    """Ten epochs of two steps; the held-out points are labelled against what is learned, so that none is better."""

    class Kills(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == kill_at:
                raise Stops

    run, model = training.Run(folder, every=1), tiny()
    wrong = points(0).map(lambda x, y: (x, 1 - y)).take(1)
    run.fit(model, points, total, 2, validation=wrong, resume=resume, patience=patience, callbacks=[Kills()])
    return [v.numpy() for v in model.weights]


@pytest.mark.slow
def test_a_run_without_a_better_epoch_ends(tmp_path):
    weights = train(tmp_path / "whole")
    rows = read_rows(tmp_path / "whole/metrics.csv")
    best = find_best(rows, "val_accuracy")["epoch"]
    assert len(rows) == best + 2 < 30
    assert training.Checkpoints(tmp_path / "whole/checkpoints").steps()[0] == rows[-1]["step"]
    # Killed at any step, also of the epoch after which it ends, it ends there with the same weights.
    for kill_at in (1, rows[-1]["step"] - 1, rows[-1]["step"]):
        folder = tmp_path / str(kill_at)
        with pytest.raises(Stops):
            train(folder, kill_at)
        for value, expected in zip(train(folder, resume=True), weights, strict=True):
            np.testing.assert_array_equal(value, expected)
        assert (folder / "metrics.csv").read_text() == (tmp_path / "whole/metrics.csv").read_text()
    # It has ended: resumed, it trains no more; with more patience it goes on.
    train(tmp_path / "whole", resume=True)
    assert len(read_rows(tmp_path / "whole/metrics.csv")) == len(rows)
    train(tmp_path / "whole", resume=True, patience=4)
    assert len(read_rows(tmp_path / "whole/metrics.csv")) == len(rows) + 2


def test_patience_needs_something_to_judge_by(tmp_path):
    with pytest.raises(ConfigError, match="patience needs validation examples"):
        training.Run(tmp_path / "run").fit(tiny(), points, 4, patience=1)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_prolonged_run_is_the_longer_one_from_there(tmp_path):
    """Here without a schedule: as one that was that long from the first step."""
    train(tmp_path / "short", patience=None, total=6)
    assert (tmp_path / "short/model.keras").exists()
    weights = train(tmp_path / "short", patience=None, resume=True, total=14)
    for value, expected in zip(weights, train(tmp_path / "long", patience=None, total=14), strict=True):
        np.testing.assert_array_equal(value, expected)
    assert (tmp_path / "short/metrics.csv").read_text() == (tmp_path / "long/metrics.csv").read_text()
    with pytest.raises(training.RunError, match="has already done 14 steps, more than 6"):
        train(tmp_path / "short", patience=None, resume=True, total=6)

"""SIGTERM and Ctrl-C are heard while a training runs, and by nobody of ours when it does not, however it ended."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import keras
import pytest
from training_run import points, tiny

from keras_vit import training
from keras_vit.training.runs.history import read_rows


class Sends(keras.callbacks.Callback):
    """Sends this process signals, or raises an error, after batch 3."""

    def __init__(self, *numbers, error=None):
        super().__init__()
        self.numbers, self.error = numbers, error

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            for number in self.numbers:
                os.kill(os.getpid(), number)
            if self.error:
                raise self.error


@pytest.fixture(autouse=True)
def handlers():
    """A test's process must come out with the handlers it went in with."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield before
    assert {number: signal.getsignal(number) for number in before} == before


def by_run(folder, sends):
    training.Run(folder, every=50).fit(tiny(), points, 6, callbacks=[sends])


def by_model(folder, sends):
    kept = training.Run(folder, every=50).callbacks()
    tiny().fit(points(0), steps_per_epoch=6, callbacks=[sends, *kept], verbose=0, shuffle=False)


@pytest.mark.parametrize("fit", [by_run, by_model])
@pytest.mark.parametrize(
    ("number", "end"), [(signal.SIGTERM, training.Preempted), (signal.SIGINT, training.Interrupted)]
)
def test_a_signal_saves_and_ends_the_run(tmp_path, capfd, fit, number, end):
    with pytest.raises(end) as caught:
        fit(tmp_path, Sends(number))
    assert caught.value.step == 3 and training.Checkpoints(tmp_path / "checkpoints").steps() == [3]
    assert "saved at step 3" in capfd.readouterr().out
    training.Run(tmp_path).fit(tiny(), points, 6, resume=True)


@pytest.mark.parametrize("fit", [by_run, by_model])
def test_a_second_ctrl_c_ends_at_once(tmp_path, fit, handlers):
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(tmp_path, Sends(signal.SIGINT, signal.SIGINT))
    assert not isinstance(caught.value, training.Interrupted)
    assert training.Checkpoints(tmp_path / "checkpoints").steps() == []
    restore(handlers)


class SendsInValidation(keras.callbacks.Callback):
    def on_test_batch_begin(self, batch, logs=None):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_during_the_validation_waits_for_its_row(tmp_path, capfd):
    arguments = {"steps_per_epoch": 3, "validation": points(0).take(1)}
    with pytest.raises(training.Interrupted) as caught:
        training.Run(tmp_path / "run").fit(tiny(), points, 6, callbacks=[SendsInValidation()], **arguments)
    assert caught.value.step == 3 and "saved after the validation." in capfd.readouterr().err
    assert [row["step"] for row in read_rows(tmp_path / "run/metrics.csv")] == [3]
    training.Run(tmp_path / "run").fit(tiny(), points, 6, resume=True, **arguments)
    training.Run(tmp_path / "whole").fit(tiny(), points, 6, **arguments)
    assert (tmp_path / "run/metrics.csv").read_text() == (tmp_path / "whole/metrics.csv").read_text()


def restore(handlers):
    """What a bare `fit` that an exception has ended cannot do."""
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_run_that_fails_puts_the_handlers_back(tmp_path):
    with pytest.raises(RuntimeError, match="boom"):
        by_run(tmp_path, Sends(error=RuntimeError("boom")))


@pytest.mark.slow
def test_after_a_bare_fit_that_failed_signals_go_where_they_went(tmp_path):
    """Twice, so that one handler that was left lies over another."""
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    for name in ("first", "second"):
        with pytest.raises(RuntimeError, match="boom"):
            by_model(tmp_path / name, Sends(error=RuntimeError("boom")))
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM] * 2
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_callbacks_whose_fit_failed_hear_signals_in_the_next(tmp_path, handlers):
    """With a handler over theirs that another failed `fit` has left."""
    model, kept = tiny(), training.Run(tmp_path / "first", every=50).callbacks()
    arguments = {"steps_per_epoch": 6, "verbose": 0, "shuffle": False}
    with pytest.raises(RuntimeError, match="boom"):
        model.fit(points(0), callbacks=[Sends(error=RuntimeError("boom")), *kept], **arguments)
    with pytest.raises(RuntimeError, match="boom"):
        by_model(tmp_path / "second", Sends(error=RuntimeError("boom")))
    with pytest.raises(training.Preempted):
        model.fit(points(0), callbacks=[Sends(signal.SIGTERM), *kept], **arguments)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_signal_that_came_too_late_to_be_acted_on_comes_again(tmp_path, monkeypatch):
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    monkeypatch.setattr(training.Run, "write_final", lambda *args: os.kill(os.getpid(), signal.SIGTERM))
    training.Run(tmp_path).fit(tiny(), points, 2)
    assert heard == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_handler_put_over_ours_stays(tmp_path):
    def other(number, frame):
        pass

    class Puts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            signal.signal(signal.SIGTERM, other)

    training.Run(tmp_path).fit(tiny(), points, 2, callbacks=[Puts()])
    assert signal.getsignal(signal.SIGTERM) == other
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.slow
def test_a_run_in_another_thread_leaves_signals_alone(tmp_path):
    thread = threading.Thread(target=by_run, args=(tmp_path, Sends()))
    thread.start()
    thread.join()
    assert (tmp_path / "model.keras").exists()


@pytest.mark.slow
def test_a_run_within_a_run_is_saved_and_both_end(tmp_path):
    class Trains(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            by_run(tmp_path / "inner", Sends(signal.SIGTERM))

    with pytest.raises(training.Preempted):
        training.Run(tmp_path / "outer").fit(tiny(), points, 4, callbacks=[Trains()])
    assert training.Checkpoints(tmp_path / "inner/checkpoints").steps() == [3]


HERE = Path(__file__).parent
SESSION = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {support!r}]
from test_signals import *
try:
    by_run({folder!r}, Sends(signal.SIGINT))
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("still alive", flush=True)
"""


@pytest.mark.slow
def test_after_ctrl_c_in_a_session_sigterm_ends_the_process(tmp_path):
    code = SESSION.format(tests=str(HERE), support=str(HERE.parent / "support"), folder=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "interrupted" in done.stdout and "still alive" not in done.stdout
    assert done.returncode == -signal.SIGTERM, done.stderr

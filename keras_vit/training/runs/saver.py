"""The callback that writes a run's checkpoints, and ends the run after a signal or a loss that is not finite."""

import contextlib
import inspect
import math
import os
import signal
import threading

import keras
import numpy as np

from keras_vit.distribution.replicas import any_worker, is_chief
from keras_vit.errors import Interrupted, NotFiniteError, Preempted
from keras_vit.training.runs.state import collect_state, restore_state

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PASSED_OVER = ("keras.src.callbacks", "keras_vit.training")


def find_training_frame():
    """The frame of the `fit` that has called a callback's method, seen from inside that method."""
    frame = inspect.currentframe()
    while frame and frame.f_back and frame.f_globals.get("__name__", "").startswith(PASSED_OVER):
        frame = frame.f_back
    return frame


def find_live_handler(number, frame):
    """The signal's handler, without those that an ended `fit` left behind."""
    handler = signal.getsignal(number)
    while isinstance(signals := getattr(handler, "__self__", None), Signals) and not signals.is_training(frame):
        handler = signals.before[number]
    return handler


class Signals:
    """Notes the first signal in `told`; `release` restores the handlers that were there before.

    An exception ends `fit` without calling its callbacks, so that `release` may never be called. Therefore a signal
    is noted only while the `fit` that called `catch` is among the callers of the interrupted code. Any other signal
    goes to the handler that was there before, and so does a second Ctrl-C. A signal that was noted but not acted on
    is raised again by `release`. `until` says what the run does first, for the user.

    >>> with Signals() as signals:  # doctest: +SKIP
    ...     while signals.told is None:
    ...         step()
    """

    def __init__(self):
        self.told = None
        self.until = "the first step, which is being compiled"
        self.before = {}
        self.frame = None
        self.caught = self.held = False

    def catch(self):
        """Begins to note signals, if this is the main thread: Python delivers signals to no other."""
        if self.held or threading.current_thread() is not threading.main_thread():
            return
        frame = find_training_frame()
        before = {number: find_live_handler(number, frame) for number in SIGNALS}
        self.caught, self.told, self.frame = True, None, frame
        for number, handler in before.items():
            # None is a handler of a C library, which Python cannot restore. A shell's background jobs ignore Ctrl-C.
            if handler is not None and not (number == signal.SIGINT and handler == signal.SIG_IGN):
                self.before[number] = handler
                signal.signal(number, self.note)

    def note(self, number, frame):
        if self.is_training(frame) and not (self.told and number == signal.SIGINT):
            self.told = number
            if number == signal.SIGINT:
                said = f"\nThe run stops and is saved after {self.until}. Press Ctrl-C again to stop at once.\n"
                with contextlib.suppress(OSError):
                    os.write(2, said.encode())  # not by `print`, which the signal may have interrupted
            return
        self.told = None
        signal.signal(number, self.before[number])
        signal.raise_signal(number)

    def is_training(self, frame):
        """Whether the `fit` that called `catch` is still running: `frame`, which was interrupted, is in its stack."""
        while frame and frame is not self.frame:
            frame = frame.f_back
        return self.caught and (self.held or frame is not None)

    def release(self):
        if self.held or not self.caught:
            return
        told, self.told = self.told, None
        self.caught, self.frame = False, None
        for number, before in self.before.items():
            if signal.getsignal(number) == self.note:
                signal.signal(number, before)
        if told:
            signal.raise_signal(told)

    def __enter__(self):
        self.catch()
        self.held = True
        return self

    def __exit__(self, *error):
        self.held = False
        self.release()


def restore_newest(store, model):
    """Restores the newest readable checkpoint and returns its step, 0 when there is none."""
    step, arrays = store.newest() or (0, None)
    if arrays is not None:
        restore_state(model, arrays)
    return step


class Saver(keras.callbacks.Callback):
    """Writes a checkpoint every `every` steps, at the last step, and on SIGTERM or Ctrl-C to any worker; then all end.

    A run that another callback ends early (`model.stop_training`) is saved too.

    Comes after all other callbacks, so that an epoch's files are written before the checkpoint at its end.

    Args:
        store: `Checkpoints`.
        log: a `MetricsLog` that comes before this callback.
        every: steps between checkpoints.
        total: the run's last step, or None.
    """

    def __init__(self, store, log, every, total):
        super().__init__()
        self.store = store
        self.log = log
        self.every = every
        self.total = total
        self.saved = log.step
        self.stopping = False
        self.signals = Signals()
        self.strategy = None

    def on_train_begin(self, logs=None):
        self.strategy = self.model.distribute_strategy  # on JAX, asking for the model copies its state out of the loop
        self.signals.catch()

    def on_train_end(self, logs=None):
        self.signals.release()

    def agree_to_stop(self):
        """Stops all workers once any of them has noted a signal: the others would wait for it in the next step.

        A signal may arrive at any moment, also in here. So every worker acts on the sum over all workers instead of on
        what it has noted itself.
        """
        self.stopping = any_worker(self.strategy, lambda: self.signals.told)

    def is_due(self, step):
        # Not step % every: with several steps per execution a step may be passed over.
        return self.stopping or step // self.every > self.saved // self.every

    def on_train_batch_end(self, batch, logs=None):
        self.signals.until = "this step"
        self.agree_to_stop()
        step = self.log.step
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            self.fail(step, f"The loss of step {step} is {loss}.")
        # The last batch of an epoch is saved after the epoch's validation and row.
        last = self.params.get("steps") and batch + 1 >= self.params["steps"]
        if not last and self.is_due(step):
            self.save(step)

    def on_epoch_end(self, epoch, logs=None):
        self.agree_to_stop()
        step = self.log.step
        if self.is_due(step) or step == self.total or self.model.stop_training:
            self.save(step)

    def on_test_begin(self, logs=None):
        self.signals.until = "the validation"

    def on_test_end(self, logs=None):
        self.signals.until = "this step"

    def save(self, step):
        arrays = collect_state(self.model)
        wrong = [key for key, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
        if wrong:
            self.fail(step, f"After step {step}, {wrong[0].split('/', 2)[2]} contains NaN or infinite values.")
        if is_chief(self.model):
            self.store.save(step, arrays)
        self.saved = step
        if self.stopping:
            self.agree_to_stop()  # a reduction over all workers: none leaves while the first still writes
            self.leave(step)

    def leave(self, step):
        """Ends the run as the signal asks, after everything that could be saved is saved."""
        number, self.signals.told = self.signals.told, None
        self.on_train_end()
        name, end = ("Ctrl-C", Interrupted) if number == signal.SIGINT else ("SIGTERM", Preempted)
        saved = max(self.store.steps(), default=0)
        found = f"The run is saved at step {saved} and can be resumed." if saved else "Nothing could be saved."
        print(f"Stopped by {name} after step {step}. {found}", flush=True)
        raise end(saved)

    def fail(self, step, sentence):
        """Puts the last good checkpoint into the model and raises NotFiniteError."""
        self.on_train_end()
        kept = restore_newest(self.store, self.model)
        keeping = f"The checkpoint of step {kept} is kept in {self.store.folder}" if kept else "There is no checkpoint"
        raise NotFiniteError(
            f"{sentence} {keeping}. Try a smaller learning rate, or gradient clipping. A label that is no class "
            "gives NaN, too.",
            step=step,
            kept=kept,
        )

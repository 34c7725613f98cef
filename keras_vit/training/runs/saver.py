"""The callback that writes a run's checkpoints, and ends the run on a signal or a loss that is not finite."""

import math
import signal

import keras
import numpy as np
import tensorflow as tf

from keras_vit.distribution.replicas import several_workers
from keras_vit.training.errors import Interrupted, NotFiniteError, Preempted
from keras_vit.training.runs.callbacks import is_chief
from keras_vit.training.runs.signals import Signals
from keras_vit.training.runs.state import collect_state, restore_state


class Saver(keras.callbacks.Callback):
    """Writes a checkpoint every `every` steps, at the last step, and on SIGTERM or Ctrl-C to any worker; then all end.

    A run that another callback ends early (`model.stop_training`) is saved too.

    Comes after all other callbacks, so that what an epoch writes is written before the checkpoint at its end.

    Args:
        store: `Checkpoints`.
        counter: a `StepCounter` that comes before this callback.
        every: steps between checkpoints.
        total: the run's last step, or None.

    Raises (during fit):
        NotFiniteError: when a loss is not finite; the model then has the weights of the last good checkpoint.
        Preempted, Interrupted: after SIGTERM, after Ctrl-C.
    """

    def __init__(self, store, counter, every, total=None):
        super().__init__()
        self.store = store
        self.counter = counter
        self.every = every
        self.total = total
        self.saved = counter.step
        self.stopping = False
        self.signals = Signals()

    def on_train_begin(self, logs=None):
        self.signals.catch()

    def on_train_end(self, logs=None):
        self.signals.release()

    def agree_to_stop(self):
        """Stops all workers once any of them has noted a signal: the others would wait for it in the next step.

        A signal may arrive at any moment, also in here. So a worker acts on the sum over all workers, which is the
        same for each, and not on what it has noted itself.
        """
        strategy, told = self.model.distribute_strategy, self.signals.told
        if several_workers(strategy):
            flags = strategy.experimental_distribute_values_from_function(
                lambda _: tf.constant(float(bool(self.signals.told)))
            )
            told = strategy.reduce("SUM", flags, axis=None) > 0
        self.stopping = bool(told)

    def is_due(self, step):
        # Not step % every: with several steps per execution a step may be passed over.
        return self.stopping or step // self.every > self.saved // self.every

    def on_train_batch_end(self, batch, logs=None):
        self.signals.until = "this step"
        self.agree_to_stop()
        step = self.counter.step
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            self.fail(step, f"The loss of step {step} is {loss}.")
        # The last batch of an epoch is saved after the epoch's validation and row.
        last = self.params.get("steps") and batch + 1 >= self.params["steps"]
        if not last and self.is_due(step):
            self.save(step)

    def on_epoch_end(self, epoch, logs=None):
        self.agree_to_stop()
        step = self.counter.step
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
        found = self.store.newest()
        kept = 0
        if found:
            kept, arrays = found
            restore_state(self.model, arrays)
        keeping = f"The checkpoint of step {kept} is kept in {self.store.folder}" if found else "There is no checkpoint"
        raise NotFiniteError(
            f"{sentence} {keeping}. Try a smaller learning rate, or gradient clipping.", step=step, kept=kept
        )

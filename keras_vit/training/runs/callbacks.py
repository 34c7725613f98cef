"""What a run writes while `model.fit` trains: metrics, the best weights, checkpoints."""

import csv
import io
import math
import signal
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_vit.distribution.optimizer import unwrap
from keras_vit.distribution.replicas import several_workers
from keras_vit.text import printable
from keras_vit.training.errors import Interrupted, NotFiniteError, Preempted, RunError
from keras_vit.training.runs.files import spared
from keras_vit.training.runs.folder import EVENTS
from keras_vit.training.runs.signals import Signals
from keras_vit.training.runs.state import restore, state


def is_chief(model):
    """Whether this process writes the model's files: the first worker, or the only one."""
    resolver = model.distribute_strategy.cluster_resolver
    if resolver is None or resolver.task_type is None:
        return True
    return resolver.task_type == "chief" or (resolver.task_type == "worker" and not resolver.task_id)


class Beginning(keras.callbacks.Callback):
    """Refuses, before the first step, a folder in which the run would overwrite what it has not written.

    Args:
        folder: `RunFolder`.
        resumed: whether the run that is there goes on.
    """

    def __init__(self, folder, resumed=False):
        super().__init__()
        self.folder = folder
        self.resumed = resumed

    def on_train_begin(self, logs=None):
        if is_chief(self.model):
            self.folder.begin(self.resumed)


class StepCounter(keras.callbacks.Callback):
    """Counts batches over the whole run, across calls of `fit`, in `step`."""

    def __init__(self, step=0):
        super().__init__()
        self.step = step
        self.begin = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.begin = batch

    def on_train_batch_end(self, batch, logs=None):
        # The last of several steps in one execution may lie beyond the epoch's end.
        last = self.params["steps"] - 1 if self.params.get("steps") else batch
        self.step += min(batch, last) - self.begin + 1


class MetricsLog(keras.callbacks.Callback):
    """A row per epoch in metrics.csv, scalars for TensorBoard beside it, and the curves as curves.png.

    Args:
        folder: `RunFolder`.
        counter: a `StepCounter` that comes before this callback.
        resumed: whether rows up to the counter's step are kept.
    """

    def __init__(self, folder, counter, resumed=False):
        super().__init__()
        self.folder = folder
        self.counter = counter
        rows = read_rows(folder.path / "metrics.csv") if resumed else []
        self.rows = [row for row in rows if row["step"] <= counter.step]
        self.events = None

    def on_epoch_end(self, epoch, logs=None):
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs = {name: float(value) for name, value in (logs or {}).items()}
        row = {"epoch": epoch + 1, "step": self.counter.step, "learning_rate": rate, **logs}
        self.rows.append(row)
        if is_chief(self.model):
            with spared(self.folder.path / "metrics.csv"), self.folder.writing("metrics.csv") as path:
                write_rows(self.rows, path)
            self.write_events(row)

    def write_events(self, row):
        values = [
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in row.items()
            if name not in ("epoch", "step")
        ]
        try:
            self.events = self.events or tf.summary.create_file_writer(str(self.folder.path / EVENTS))
            with self.events.as_default():
                # tf.summary.scalar needs the tensorboard package; reading the events later does.
                tf.summary.experimental.write_raw_pb(
                    tf.compat.v1.Summary(value=values).SerializeToString(), row["step"]
                )
            self.events.flush()
        except tf.errors.OpError as error:
            warnings.warn(
                f"No TensorBoard events of step {row['step']}: {printable(error.message)}. The run goes on.",
                stacklevel=2,
            )

    def on_train_end(self, logs=None):
        if self.rows and is_chief(self.model):
            with spared(self.folder.path / "curves.png"), self.folder.writing("curves.png") as path:
                draw_curves(self.rows, path)


def read_rows(path):
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: number(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
        return sorted(rows, key=lambda row: row["step"])
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise RunError(f"{path} is not the run's ({error!r}). Mend it, or move it away.") from error


def number(text):
    return int(text) if text.isdigit() else float(text)


def write_rows(rows, path):
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())


def draw_curves(rows, path):
    """A PNG with one panel per metric, training and validation in it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = dict.fromkeys(name.removeprefix("val_") for row in rows for name in row if name not in ("epoch", "step"))
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for key, label in ((name, "training"), (f"val_{name}", "validation")):
            points = [(row["step"], row[key]) for row in rows if key in row]
            if points:
                axis.plot(*zip(*points, strict=True), marker=".", label=label)
        axis.set(title=name.replace("_", " "), xlabel="step")
        axis.grid(alpha=0.3)
        if name != "learning_rate":
            axis.legend()
    figure.savefig(path, dpi=120)


class BestWeights(keras.callbacks.Callback):
    """Writes best.weights.npz, {path: array}, whenever the monitored metric is the best so far.

    Averaged weights, where the optimizer keeps them, since those are what validation sees.
    """

    def __init__(self, folder, log, monitor="val_accuracy"):
        super().__init__()
        self.folder = folder
        self.monitor = monitor
        self.sign = -1 if monitor.endswith("loss") else 1
        before = [self.sign * row[monitor] for row in log.rows if monitor in row]
        self.best = max(before, default=-math.inf)

    def on_epoch_end(self, epoch, logs=None):
        value = self.sign * (logs or {}).get(self.monitor, math.nan)
        if not value > self.best:
            return
        arrays = weights(self.model)
        with spared(self.folder.path / "best.weights.npz"):
            if is_chief(self.model):
                with self.folder.writing("best.weights.npz") as path:
                    np.savez(path, **arrays)
            # What could not be written is not the best that there is.
            self.best = value


def weights(model):
    """{path: array} of the weights that a finished run would have."""
    arrays = {v.path: v.numpy() for v in model.weights}
    optimizer = unwrap(model.optimizer)
    if optimizer.use_ema:
        arrays |= {v.path: a.numpy() for v, a in optimizer.averages()}
    return arrays


def saved_or_not(step):
    return f"saved at step {step}, the run can be resumed" if step else "nothing could be saved"


class Saver(keras.callbacks.Callback):
    """Checkpoints every `every` steps, at the last one, and on SIGTERM or Ctrl-C to any worker, whereupon all end.

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

    def agree(self):
        """Once any worker is told to stop, all are: those left behind would wait for it in the next step.

        The signal may come at any moment, also in here, so that what was told alone decides nothing.
        """
        strategy, told = self.model.distribute_strategy, self.signals.told
        if several_workers(strategy):
            flags = strategy.experimental_distribute_values_from_function(
                lambda _: tf.constant(float(bool(self.signals.told)))
            )
            told = strategy.reduce("SUM", flags, axis=None) > 0
        self.stopping = bool(told)

    def on_train_batch_end(self, batch, logs=None):
        self.agree()
        step = self.counter.step
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            self.stop(step, f"The loss of step {step} is {loss}.")
        # The last batch of an epoch is saved after the epoch's validation and row.
        last = self.params.get("steps") and batch + 1 >= self.params["steps"]
        if not last and (self.stopping or step // self.every > self.saved // self.every):
            self.save(step)

    def on_epoch_end(self, epoch, logs=None):
        self.agree()
        step = self.counter.step
        if self.stopping or step // self.every > self.saved // self.every or step == self.total:
            self.save(step)

    def save(self, step):
        arrays = state(self.model)
        wrong = [key for key, a in arrays.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
        if wrong:
            self.stop(step, f"After step {step} {wrong[0].split('/', 2)[2]} is not finite.")
        if is_chief(self.model):
            self.store.save(step, arrays)
        self.saved = step
        if self.stopping:
            self.agree()  # nobody leaves while the first worker still writes
            self.leave(step)

    def leave(self, step):
        """Ends the run as the signal asks, whatever was saved being there."""
        number, self.signals.told = self.signals.told, None
        self.on_train_end()
        name, end = ("Ctrl-C", Interrupted) if number == signal.SIGINT else ("SIGTERM", Preempted)
        saved = max(self.store.steps(), default=0)
        print(f"Stopped by {name} after step {step}; {saved_or_not(saved)}.", flush=True)
        raise end(saved)

    def stop(self, step, sentence):
        self.on_train_end()
        found = self.store.newest()
        kept = 0
        if found:
            kept, arrays = found
            restore(self.model, arrays)
        keeping = f"Those of step {kept} are kept in {self.store.folder}" if found else "No checkpoint was written"
        raise NotFiniteError(f"{sentence} {keeping}. Try a smaller learning rate, or clipping.", step, kept)

"""The callbacks of a run: they check its folder, count its steps, log metrics, keep the best weights, and end it
early."""

import importlib.util
import warnings

import keras

from keras_vit.distribution.replicas import is_chief
from keras_vit.errors import printable
from keras_vit.extras import require
from keras_vit.pages import write_figure
from keras_vit.training.runs.history import count_epochs_without_gain, find_best, read_rows, score_row, write_rows
from keras_vit.training.runs.run_folder import EVENTS, require_written, warn_if_not_written
from keras_vit.training.runs.state import averaged_weights, write_weights


class BeginRun(keras.callbacks.Callback):
    """Refuses, before the first step, a `RunFolder` in which the run would overwrite files of others."""

    def __init__(self, folder, resumed=False):
        super().__init__()
        self.folder = folder
        self.resumed = resumed

    def on_train_begin(self, logs=None):
        if is_chief(self.model):
            self.folder.begin(self.resumed)


def draw_curves(rows, path):
    """Writes a PNG with one panel per metric, which shows training and validation."""
    names = dict.fromkeys(name.removeprefix("val_") for row in rows for name in row if name not in ("epoch", "step"))
    with write_figure(path, 4.5 * len(names), 3.5) as figure:
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for axis, name in zip(axes, names, strict=True):
            for key, label in ((name, "training"), (f"val_{name}", "validation")):
                points = [(row["step"], row[key]) for row in rows if key in row]
                if points:
                    axis.plot(*zip(*points, strict=True), marker=".", label=label)
            axis.set(title=name.replace("_", " "), xlabel="step")
            axis.grid()
            if name != "learning_rate":
                axis.legend()


class MetricsLog(keras.callbacks.Callback):
    """Writes a row per epoch to metrics.csv and, where TensorBoard is installed, to its events; at the end curves.png.

    Counts batches over all of the run, across calls of `fit`, in `step`.

    Args:
        folder: `RunFolder`.
        step: the run's step as the first `fit` begins; the file's rows up to it are kept.
        total: the run's last step; None for curves at the end of every `fit`.
    """

    def __init__(self, folder, step, total):
        super().__init__()
        require("matplotlib", "The curves.png of a run")  # before the training, not after it
        self.folder = folder
        self.step = step
        self.begin = 0
        self.total = total
        self.rows = read_rows(folder.path / "metrics.csv", step)
        self.events = None

    def on_train_batch_begin(self, batch, logs=None):
        self.begin = batch

    def on_train_batch_end(self, batch, logs=None):
        # The last of several steps in one execution may lie beyond the epoch's end.
        last = self.params["steps"] - 1 if self.params.get("steps") else batch
        self.step += min(batch, last) - self.begin + 1

    def on_epoch_end(self, epoch, logs=None):
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs = {name: float(value) for name, value in (logs or {}).items()}
        row = {"epoch": epoch + 1, "step": self.step, "learning_rate": rate, **logs}
        self.rows.append(row)
        if is_chief(self.model):
            with warn_if_not_written(self.folder.path / "metrics.csv"), self.folder.writing("metrics.csv") as path:
                write_rows(self.rows, path)
            if importlib.util.find_spec("tensorboard") and importlib.util.find_spec("tensorflow"):
                self.write_events(row)

    def write_events(self, row):
        import tensorflow as tf

        values = [
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in row.items()
            if name not in ("epoch", "step")
        ]
        try:
            self.events = self.events or tf.summary.create_file_writer(str(self.folder.path / EVENTS))
            with self.events.as_default():
                # tf.summary.scalar would import all of TensorBoard.
                tf.summary.experimental.write_raw_pb(
                    tf.compat.v1.Summary(value=values).SerializeToString(), row["step"]
                )
            self.events.flush()
        except tf.errors.OpError as error:
            warnings.warn(
                f"The TensorBoard events of step {row['step']} could not be written: {printable(error.message)}. The "
                "run continues.",
                stacklevel=2,
            )

    def on_train_end(self, logs=None):
        over = self.total is None or self.step >= self.total or self.model.stop_training
        if over and self.rows and is_chief(self.model):
            with warn_if_not_written(self.folder.path / "curves.png"), self.folder.writing("curves.png") as path:
                draw_curves(self.rows, path)


class BestEpoch(keras.callbacks.Callback):
    """Writes best.weights.npz after each epoch that is the best so far; ends the run `patience` epochs after the best.

    Where the optimizer averages the weights, the averaged ones are written: validation evaluates those. The epochs are
    counted in the rows of metrics.csv, which are written before the checkpoint of their step: a run that is killed and
    resumed ends at the same epoch.

    Args:
        folder: `RunFolder`.
        log: a `MetricsLog` that comes before this callback.
        monitor: a metric; if its name ends in "loss", the least value is the best.
        patience: epochs; None for no end before the last step.
    """

    def __init__(self, folder, log, monitor, patience=None):
        super().__init__()
        self.folder = folder
        self.log = log
        self.monitor = monitor
        self.patience = patience
        self.best = score_row(find_best(log.rows, monitor) or {}, monitor)

    def is_over(self):
        """Whether `patience` epochs have passed since the best one."""
        rows = self.log.rows
        return self.patience is not None and count_epochs_without_gain(rows, self.monitor) >= self.patience

    def on_epoch_end(self, epoch, logs=None):
        value = score_row(logs or {}, self.monitor)
        if value > self.best:
            self.keep(value)
        if self.is_over():
            self.model.stop_training = True

    def keep(self, value):
        with require_written(self.folder.path), averaged_weights(self.model):
            if is_chief(self.model):
                with self.folder.writing("best.weights.npz") as path:
                    write_weights(self.model, path)
        self.best = value

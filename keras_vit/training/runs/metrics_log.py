"""metrics.csv, curves.png and TensorBoard's events of a run: a row per epoch."""

import importlib.util
import warnings

import keras
import tensorflow as tf

from keras_vit.text import printable
from keras_vit.training.runs.callbacks import is_chief
from keras_vit.training.runs.files import warn_if_not_written
from keras_vit.training.runs.folder import EVENTS
from keras_vit.training.runs.history import read_rows, write_rows


def draw_curves(rows, path):
    """Writes a PNG with one panel per metric, which shows training and validation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = dict.fromkeys(name.removeprefix("val_") for row in rows for name in row if name not in ("epoch", "step"))
    # Figure and canvas by hand: pyplot would keep the figure, and choose a backend that may need a display.
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


class MetricsLog(keras.callbacks.Callback):
    """Writes a row per epoch to metrics.csv and, where TensorBoard is installed, to its events; at the end curves.png.

    Args:
        folder: `RunFolder`.
        counter: a `StepCounter` that comes before this callback.
        resumed: whether the file's rows up to the counter's step are kept.
        total: the run's last step; None for curves at the end of every `fit`.
    """

    def __init__(self, folder, counter, resumed=False, total=None):
        super().__init__()
        self.folder = folder
        self.counter = counter
        self.total = total
        rows = read_rows(folder.path / "metrics.csv") if resumed else []
        self.rows = [row for row in rows if row["step"] <= counter.step]
        self.events = None

    def on_epoch_end(self, epoch, logs=None):
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs = {name: float(value) for name, value in (logs or {}).items()}
        row = {"epoch": epoch + 1, "step": self.counter.step, "learning_rate": rate, **logs}
        self.rows.append(row)
        if is_chief(self.model):
            with warn_if_not_written(self.folder.path / "metrics.csv"), self.folder.writing("metrics.csv") as path:
                write_rows(self.rows, path)
            if importlib.util.find_spec("tensorboard"):
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
        over = self.total is None or self.counter.step >= self.total or self.model.stop_training
        if over and self.rows and is_chief(self.model):
            with warn_if_not_written(self.folder.path / "curves.png"), self.folder.writing("curves.png") as path:
                draw_curves(self.rows, path)

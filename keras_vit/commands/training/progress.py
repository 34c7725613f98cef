"""Progress of `model.fit` as one bar, in place of a line per epoch."""

import time

import keras
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from keras_vit.console import Console


class FitProgress(keras.callbacks.Callback):
    """A bar over all steps, with images per second, time left and the latest metrics; without a terminal a line per
    epoch.

    Args:
        total: steps of the whole training; None for the steps of one `fit`.
        start: steps done before this `fit`.
        batch_size: images per step, to show images per second; None shows no rate.

    >>> model.fit(images, labels, epochs=3, verbose=0, callbacks=[FitProgress()])  # doctest: +SKIP
    >>> FitProgress().describe({"accuracy": 0.5, "loss": 1.25})
    'accuracy 0.500  loss 1.250'
    """

    def __init__(self, total: int | None = None, start: int = 0, batch_size: int | None = None):
        super().__init__()
        self.total = total
        self.step = self.start = start
        self.batch_size = batch_size
        self.bar = None

    def on_train_begin(self, logs=None):
        if self.bar is not None:
            return
        total = self.total or self.params["epochs"] * (self.params["steps"] or 0)
        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(),
        )
        self.task = self.bar.add_task("", total=total or None, completed=self.start)
        self.began = time.monotonic()
        self.bar.start()

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.bar.update(self.task, completed=self.step, description=self.describe(logs))

    def on_epoch_end(self, epoch, logs=None):
        if not self.bar.console.is_terminal:
            self.bar.console.print(f"epoch {epoch + 1}  step {self.step}  {self.describe(logs)}", soft_wrap=True)

    def describe(self, logs):
        """The metrics, and the rate if it is known, on one line."""
        words = [f"{name} {value:.3f}" for name, value in (logs or {}).items() if name != "learning_rate"]
        if self.batch_size:
            elapsed = time.monotonic() - self.began
            words.append(f"{(self.step - self.start) * self.batch_size / max(elapsed, 1e-9):.0f} images/s")
        return "  ".join(words)

    def on_train_end(self, logs=None):
        if self.total is None or self.step >= self.total:
            self.close()

    def close(self):
        """Stops the bar where it stands, also after an exception has ended `fit`."""
        if self.bar is not None and self.bar.live.is_started:
            self.bar.stop()

    __del__ = close

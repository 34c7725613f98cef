"""Progress of `model.fit`: a line per epoch, and in a terminal a bar over all steps below them."""

import time
from typing import Any

import keras
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from keras_vit.console import Console
from keras_vit.training.runs.history import find_best

WIDTHS = {"epoch": 7, "best": 12, "images/s": 10, "left": 9}  # characters; a metric's column is as wide as its name
HIDDEN = ("learning_rate",)
SHORT = {"mean_average_precision": "mAP", "mean_iou": "mIoU"}  # as headings
SHORT |= {f"val_{name}": f"val_{short}" for name, short in SHORT.items()}


def format_seconds(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> format_seconds(3725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


class FitProgress(keras.callbacks.Callback):
    """A line per epoch: metrics, the best so far, images per second, the time left. In a terminal, a bar below.

    Images per second include the time of validation.

    Args:
        total, epochs: steps and epochs of the whole training.
        batch_size: images per step.
        start: steps done before.
        rows: rows of earlier epochs (`runs.history`), to find the best so far.
        monitor: the metric that chooses the best epoch.
    """

    def __init__(
        self,
        total: int,
        epochs: int,
        batch_size: int,
        start: int = 0,
        rows: list[dict[str, float]] | tuple = (),
        monitor: str = "val_accuracy",
    ):
        super().__init__()
        self.total = total
        self.step = self.start = start
        self.batch_size = batch_size
        self.epochs = epochs
        self.rows = list(rows)
        self.monitor = monitor
        self.epoch = 0
        self.headings = []
        self.bar: Any = None  # rich's, from the beginning of the training
        self.timed_from = 0.0  # the end of the first step, since that includes compiling

    def on_train_begin(self, logs=None):
        if self.bar is not None:
            return
        console = Console()
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("compiling", total=self.total, completed=self.start, said="")
        self.bar.start()
        if not console.is_terminal:
            self.say("Compiling the first step.")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.timed_from = self.timed_from or time.monotonic()
        loss = (logs or {}).get("loss")
        rate, left = self.describe_speed()
        said = ("" if loss is None else f"loss {loss:.3f}", rate and f"{rate} images/s", left and f"{left} left")
        self.bar.update(
            self.task,
            completed=self.step,
            description=f"epoch {self.epoch}/{self.epochs} step",
            said="  ".join(filter(None, said)),
        )

    def on_test_begin(self, logs=None):
        if self.bar is not None:
            self.bar.update(self.task, description=f"epoch {self.epoch}/{self.epochs} validation", refresh=True)

    def on_epoch_end(self, epoch, logs=None):
        logs = {name: value for name, value in (logs or {}).items() if name not in HIDDEN}
        self.rows.append({"epoch": epoch + 1, **logs})
        cells = {"epoch": f"{epoch + 1}/{self.epochs}"}
        cells |= {SHORT.get(name, name): f"{value:.3f}" for name, value in logs.items()}
        if self.monitor in logs:
            cells["best"] = self.describe_best()
        cells["images/s"], cells["left"] = self.describe_speed()
        self.print_row(cells)

    def print_row(self, cells):
        """Prints cells in columns, with headings if these are new; the last columns only if there is room."""
        widths = {name: WIDTHS.get(name, max(len(name), 5) + 2) for name in cells}
        for name in ("left", "images/s"):
            if sum(widths.values()) > self.bar.console.width:
                widths.pop(name, None)
        cells = {name: cells[name] for name in widths}
        if list(cells) != self.headings:
            self.headings = list(cells)
            self.say("".join(f"{name:>{width}}" for name, width in widths.items()))
        self.say("".join(f"{text:>{widths[name]}}" for name, text in cells.items()))

    def say(self, line):
        self.bar.console.print(line, soft_wrap=True)

    def describe_best(self):
        """The best value so far and its epoch; a star for the current epoch."""
        best = find_best(self.rows, self.monitor)
        if best is None:
            return ""
        mark = "*" if best is self.rows[-1] else f"@{best['epoch']}"
        return f"{best[self.monitor]:.3f} {mark}"

    def describe_speed(self):
        """(images per second, the time to the last step), by all steps but the first; empty before the second step."""
        steps = self.step - self.start - 1
        if steps <= 0:
            return "", ""
        rate = steps / max(time.monotonic() - self.timed_from, 1e-9)
        return f"{rate * self.batch_size:.0f}", format_seconds((self.total - self.step) / rate)

    def on_train_end(self, logs=None):
        if self.step >= self.total or getattr(self.model, "stop_training", False):
            self.close()

    def close(self):
        """Stops the bar, also after an exception has ended `fit`."""
        if self.bar is not None and self.bar.live.is_started:
            self.bar.stop()

    __del__ = close

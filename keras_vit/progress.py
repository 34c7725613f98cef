"""Progress of `model.fit` as one bar, in place of a line per epoch."""

import keras
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class FitProgress(keras.callbacks.Callback):
    """A bar over all epochs, with the latest metrics; plain lines where the output is no terminal.

    >>> model.fit(images, labels, epochs=3, verbose=0, callbacks=[FitProgress()])
    """

    def on_train_begin(self, logs=None):
        self.bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        self.task = self.bar.add_task("", total=self.params["epochs"])
        self.bar.start()

    def on_epoch_end(self, epoch, logs=None):
        metrics = "  ".join(f"{name} {value:.3f}" for name, value in (logs or {}).items() if name != "learning_rate")
        self.bar.update(self.task, completed=epoch + 1, description=metrics)
        if not self.bar.console.is_terminal and (epoch + 1) % 5 == 0:
            self.bar.console.print(f"epoch {epoch + 1}/{self.params['epochs']}  {metrics}")

    def on_train_end(self, logs=None):
        self.bar.stop()

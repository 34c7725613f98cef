"""The callbacks of a run that `model.fit` calls: its folder, its step, the best weights."""

import math

import keras
import numpy as np

from keras_vit.distribution.optimizer import unwrap
from keras_vit.lora import weights_without_lora
from keras_vit.training.runs.files import warn_if_not_written
from keras_vit.training.runs.state import restore_state


def is_chief(model: keras.Model) -> bool:
    """Whether this process writes the model's files: the first worker, or the only one."""
    resolver = model.distribute_strategy.cluster_resolver
    if resolver is None or resolver.task_type is None:
        return True
    return resolver.task_type == "chief" or (resolver.task_type == "worker" and not resolver.task_id)


class BeginRun(keras.callbacks.Callback):
    """Refuses, before the first step, a folder in which the run would overwrite what it has not written.

    Args:
        folder: `RunFolder`.
        resumed: whether the run in the folder continues.
    """

    def __init__(self, folder, resumed=False):
        super().__init__()
        self.folder = folder
        self.resumed = resumed

    def on_train_begin(self, logs=None):
        if is_chief(self.model):
            self.folder.begin(self.resumed)


class StepCounter(keras.callbacks.Callback):
    """Counts batches over all of the run, across calls of `fit`, in `step`."""

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


class RestoreMetrics(keras.callbacks.Callback):
    """Restores the running metrics of an interrupted epoch, which `fit` resets as the epoch begins."""

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def on_epoch_begin(self, epoch, logs=None):
        restore_state(self.model, self.arrays)


def collect_final_weights(model):
    """{path: array} of the weights that the run would have if it ended now: the averaged ones, where there are any."""
    optimizer = unwrap(model.optimizer)
    averages = {v.path: a for v, a in optimizer.averages()} if optimizer.use_ema else {}
    return {v.path: array for v, array in weights_without_lora(model, lambda v: averages.get(v.path, v).numpy())}


class BestWeights(keras.callbacks.Callback):
    """Writes best.weights.npz, {path: array}, whenever the monitored metric is the best so far.

    Where the optimizer averages the weights, the averaged ones are written: validation evaluates those.
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
        arrays = collect_final_weights(self.model)
        with warn_if_not_written(self.folder.path / "best.weights.npz"):
            if is_chief(self.model):
                with self.folder.writing("best.weights.npz") as path:
                    np.savez(path, **arrays)
            # Inside, after the writing: weights that could not be written leave the former best to be beaten.
            self.best = value

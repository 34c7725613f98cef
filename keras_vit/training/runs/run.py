"""A run: a folder, and a `fit` that goes on where it was cut, bit for bit."""

import contextlib
import json
from pathlib import Path

import keras
import numpy as np

from keras_vit.distribution import GlobalUpdate
from keras_vit.distribution.execution import build_for
from keras_vit.distribution.optimizer import unwrap
from keras_vit.errors import ConfigError, require_tensorflow
from keras_vit.training.errors import RunError
from keras_vit.training.numbers import require_counts
from keras_vit.training.runs.callbacks import Beginning, BestWeights, MetricsLog, Saver, StepCounter, is_chief
from keras_vit.training.runs.checkpoints import Checkpoints, read_arrays
from keras_vit.training.runs.files import needed
from keras_vit.training.runs.folder import CHECKPOINTS, RunFolder
from keras_vit.training.runs.state import restore, state


def check(model, steps_per_epoch):
    """Refuses a compiled model that no run can train."""
    if steps_per_epoch % model.steps_per_execution:
        raise ConfigError(
            "steps_per_epoch must be a multiple of steps_per_execution. "
            f"Received: {steps_per_epoch} and {model.steps_per_execution}."
        )
    optimizer = unwrap(model.optimizer)
    if optimizer.use_ema and not isinstance(optimizer, GlobalUpdate):
        name = type(optimizer).__name__
        raise ConfigError(
            "With averaged weights a run needs an optimizer of keras_vit.training. "
            f"Received: keras.optimizers.{name}. Use keras_vit.training.{name}, or use_ema=False."
        )


class Run:
    """The folder of one training: config.json, checkpoints/, metrics.csv, tensorboard/, curves.png, best.weights.npz
    and at the end final.weights.npz and model.keras.

    checkpoints/run.json says what the run has written; nothing else in the folder is overwritten or removed.

    Args:
        folder: made when the training begins.
        every: steps between checkpoints.
        keep: checkpoints that stay.

    >>> run = keras_vit.training.Run("runs/1", every=500)
    >>> run.fit(model, lambda step: examples.train(512, start=step), total_steps=10_000, validation=held_out)
    """

    def __init__(self, folder, every=500, keep=2):
        require_tensorflow("A run that resumes")
        require_counts(every=every, keep=keep)
        self.folder = Path(folder)
        self.every = every
        self.files = RunFolder(folder)
        self.store = Checkpoints(self.folder / CHECKPOINTS, keep)
        self.store.ledger = self.files.ledger

    def callbacks(self, step=0, total=None, monitor="val_accuracy", swap=False):
        """What `model.fit` needs to keep this run; `swap` evaluates the optimizer's averaged weights.

        `model.fit` raises RunError before its first step where the folder holds what this run would overwrite, another
        run among it; with the same callbacks again it goes on with the run.
        """
        return [Beginning(self.files, resumed=step > 0), *self.keeping(step, total, monitor, swap)]

    def keeping(self, step, total, monitor, swap):
        counter = StepCounter(step)
        log = MetricsLog(self.files, counter, resumed=step > 0)
        best = BestWeights(self.files, log, monitor)
        averaged = [keras.callbacks.SwapEMAWeights()] if swap else []
        return [counter, *averaged, log, best, Saver(self.store, counter, self.every, total)]

    def fit(
        self,
        model,
        train,
        total_steps,
        steps_per_epoch=None,
        validation=None,
        resume=False,
        monitor="val_accuracy",
        callbacks=(),
        verbose=0,
        config=None,
    ):
        """Trains a compiled model to `total_steps`; with `resume=True` goes on after a kill as if there had been none.

        Args:
            model: compiled, made in the strategy's scope.
            train: function of a step to the tf.data.Dataset of the batches from that step on, the same batches
                whatever step it starts from (`keras_vit.data`'s `train(..., start=step)`).
            total_steps, steps_per_epoch: batches; an epoch is what lies between validations (None: all).
            validation: dataset for `evaluate`, or None.
            resume: go on from the folder's newest whole checkpoint, if it has one.
            monitor: metric of the best weights.
            callbacks, verbose: as in `keras.Model.fit`.
            config: JSON-able facts to keep in config.json.

        Raises:
            RunError: when the folder holds a run and resume is False, or a file that the run would overwrite and has
                not written, its checkpoint is not of this model, none of its checkpoints is whole, or another process
                trains in it.
            NotFiniteError: when a loss or weight is not finite.
            Preempted, Interrupted: after SIGTERM, after Ctrl-C, when all is saved.
        """
        require_counts(total_steps=total_steps, steps_per_epoch=steps_per_epoch)
        steps_per_epoch = min(steps_per_epoch or total_steps, total_steps)
        check(model, steps_per_epoch)
        if is_chief(model):
            self.files.check(resume)
        build_for(model, train(0).element_spec)
        with contextlib.ExitStack() as around:
            if is_chief(model):
                around.enter_context(self.files.held(resume))
            start = self.resumed(model) if resume else 0
            self.write_config(model, config, total_steps, steps_per_epoch)
            optimizer = unwrap(model.optimizer)
            kept = self.keeping(start, total_steps, monitor, swap=optimizer.use_ema and validation is not None)
            around.enter_context(kept[-1].signals)
            first = [RestoreMetrics(state(model))] if start % steps_per_epoch else []
            for begin, end in segments(start, total_steps, steps_per_epoch):
                optimizer.unfinished = end < total_steps
                length = min(steps_per_epoch, end - begin)
                epoch = begin // steps_per_epoch
                model.fit(
                    train(begin).take(end - begin),
                    initial_epoch=epoch,
                    epochs=epoch + (end - begin) // length,
                    steps_per_epoch=length,
                    validation_data=validation,
                    callbacks=[*first, *kept[:-1], *callbacks, kept[-1]],
                    verbose=verbose,
                    shuffle=False,
                )
                first = []
            if start >= total_steps:
                optimizer.finalize_variable_values(model.trainable_variables)
            self.write_final(model)

    def resumed(self, model):
        """Restores the newest whole checkpoint; gives its step, 0 when there is none."""
        found = self.store.newest()
        if found is None:
            return 0
        step, arrays = found
        restore(model, arrays)
        return step

    def write_config(self, model, config, total_steps, steps_per_epoch):
        facts = {
            "total_steps": total_steps,
            "steps_per_epoch": steps_per_epoch,
            "optimizer": keras.optimizers.serialize(model.optimizer),
            "versions": {"keras": keras.__version__},
            **(config or {}),
        }
        if is_chief(model):
            text = json.dumps(facts, indent=2, default=str)
            with self.writing("config.json") as path:
                path.write_text(text, "utf-8")

    def write_final(self, model):
        if not is_chief(model):
            return
        arrays = {v.path: v.numpy() for v in model.weights}
        with self.writing("final.weights.npz") as path:
            np.savez(path, **arrays)
        with self.writing("model.keras") as path:
            model.save(path)

    @contextlib.contextmanager
    def writing(self, name):
        """The path to write a file of the run to, without which it has not ended; see `RunFolder.writing`.

        Raises:
            RunError: when it could not be written.
        """
        with needed(self.folder), self.files.writing(name) as path:
            yield path


class RestoreMetrics(keras.callbacks.Callback):
    """Puts an interrupted epoch's running metrics back, which `fit` resets as an epoch begins."""

    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def on_epoch_begin(self, epoch, logs=None):
        restore(self.model, self.arrays)


def segments(start, total, length):
    """Pairs (begin, end) of steps for one `fit` each: the rest of a begun epoch, whole epochs, a shorter last one.

    >>> segments(7, 25, 10)
    [(7, 10), (10, 20), (20, 25)]
    """
    whole = min(-(-start // length) * length, total)
    cuts = [start, whole, max(total // length * length, whole), total]
    return [(begin, end) for begin, end in zip(cuts, cuts[1:], strict=False) if begin < end]


def load_weights(model, path):
    """Puts best.weights.npz or final.weights.npz of a run into a model of the same architecture.

    Raises:
        RunError: when it is missing or damaged, or names, shapes or types differ.

    >>> load_weights(model, "runs/1/best.weights.npz")
    """
    try:
        arrays = read_arrays(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error
    own = {v.path: v for v in model.weights}
    kinds = {path: (array.shape, array.dtype) for path, array in arrays.items()}
    if kinds != {path: (tuple(v.shape), v.numpy().dtype) for path, v in own.items()}:
        raise RunError(f"{path} holds the weights of another model.")
    for key, variable in own.items():
        variable.assign(arrays[key])

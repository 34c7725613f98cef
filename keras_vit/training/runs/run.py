"""A run: a folder, and a `fit` that continues where it was interrupted, bit for bit."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_vit.distribution import GlobalUpdate
from keras_vit.distribution.optimizer import unwrap
from keras_vit.distribution.replicas import build_for, is_chief
from keras_vit.errors import COUNT, ConfigError, RunError, require_backend, require_within
from keras_vit.files import local_path
from keras_vit.training.runs.callbacks import BeginRun, BestEpoch, MetricsLog
from keras_vit.training.runs.checkpoints import Checkpoints
from keras_vit.training.runs.history import list_epoch_ends, plan_segments
from keras_vit.training.runs.run_folder import CHECKPOINTS, RunFolder, require_written
from keras_vit.training.runs.saver import Saver, restore_newest
from keras_vit.training.runs.state import collect_state, restore_state, used_later, write_weights

if TYPE_CHECKING:
    import os

    import tensorflow as tf


def check_compiled(model, steps_per_epoch):
    """Refuses a compiled model whose training cannot be resumed."""
    if model.steps_per_execution > 1 and steps_per_epoch % model.steps_per_execution:
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
    """The folder of one training: config.json, checkpoints/, metrics.csv, tensorboard/ (where TensorBoard is installed:
    the extra [tensorboard]), curves.png, best.weights.npz and at the end last.weights.npz, averaged.weights.npz (if the
    optimizer averages) and model.keras.

    The weights of a model of this package are checkpoints for `zoo.load`; those of any other are {path: array}, for
    `load_weights`. checkpoints/run.json lists what the run has written; nothing else in the folder is overwritten or
    removed.

    Args:
        folder: made when the training begins; or a `RunFolder` of it, which may have been checked.
        every: steps between checkpoints.
        keep: how many checkpoints stay.

    >>> run = keras_vit.training.Run("runs/1", every=500)
    >>> run.fit(  # doctest: +SKIP
    ...     model, lambda step: examples.train(512, start=step), total_steps=10_000, validation=held_out
    ... )
    """

    def __init__(self, folder: str | os.PathLike | RunFolder, every: int = 500, keep: int = 2):
        require_backend("A run that resumes", "tensorflow", "jax")
        require_within(COUNT, every=every, keep=keep)
        self.files = folder if isinstance(folder, RunFolder) else RunFolder(folder)
        self.folder = local_path(self.files.path)
        self.every = every
        self.store = Checkpoints(self.folder / CHECKPOINTS, keep, self.files)

    def callbacks(
        self, step: int = 0, total: int | None = None, monitor: str = "val_accuracy", swap: bool = False
    ) -> list[keras.callbacks.Callback]:
        """The callbacks with which `model.fit` keeps this run.

        `model.fit` raises RunError before its first step if the folder contains another run or anything else that
        this run would overwrite; with the same callbacks again it continues the run.

        Args:
            step: the run's step as `fit` begins.
            total: the run's last step, at which a checkpoint is written.
            monitor: metric of the best weights.
            swap: evaluate the optimizer's averaged weights.
        """
        return [BeginRun(self.files, resumed=step > 0), *self.make_callbacks(step, total, monitor, swap)]

    def make_callbacks(self, step, total, monitor, swap, patience=None):
        log = MetricsLog(self.files, step, total)
        best = BestEpoch(self.files, log, monitor, patience)
        averaged = [keras.callbacks.SwapEMAWeights()] if swap else []
        return [*averaged, log, best, Saver(self.store, log, self.every, total)]

    def fit(
        self,
        model: keras.Model,
        train: Callable[[int], tf.data.Dataset],
        total_steps: int,
        steps_per_epoch: int | Fraction | None = None,
        validation: tf.data.Dataset | None = None,
        resume: bool = False,
        monitor: str = "val_accuracy",
        patience: int | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        verbose: int | str = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Trains a compiled model to `total_steps`; `resume=True` gives a killed run the weights of one without a kill.

        Args:
            model: compiled, made in the strategy's scope.
            train: function of a step to the tf.data.Dataset of the batches from that step on, the same batches
                whatever step it starts from (`keras_vit.data`'s `train(..., start=step)`).
            total_steps, steps_per_epoch: in batches; each epoch ends with a validation (None: one epoch). If an epoch
                is not a whole number of batches, give a `Fraction`: it ends with the batch nearest to its end.
            validation: dataset for `evaluate`, or None.
            resume: continue from the folder's newest readable checkpoint, if there is one.
            monitor: metric of the best weights.
            patience: epochs without a better one after which the run ends; None for no end before `total_steps`.
            callbacks, verbose: as in `keras.Model.fit`.
            config: facts to keep in config.json, of types that JSON has.

        Raises:
            RunError: when the folder contains a run and resume is False, or a file that the run would overwrite and
                has not written; its checkpoint is of another model; none of its checkpoints is readable; or another
                process trains in it.
            NotFiniteError: when a loss or weight is not finite.
            Preempted, Interrupted: after SIGTERM, after Ctrl-C, when the run is saved.
        """
        require_within(COUNT, total_steps=total_steps, patience=patience)
        ends = list_epoch_ends(total_steps, steps_per_epoch or total_steps)
        check_compiled(model, min(steps_per_epoch or total_steps, total_steps))
        if patience is not None and validation is None:
            raise ConfigError(f"patience needs validation examples to judge by. Received: patience={patience}.")
        train = functools.cache(train)
        with contextlib.ExitStack() as around:
            if is_chief(model):
                around.enter_context(self.files.hold(resume))
            build_for(model, train(0).element_spec)
            start = restore_newest(self.store, model) if resume else 0
            if start > total_steps:
                raise RunError(f"The run has already done {start} steps, more than {total_steps}.")
            self.write_config(model, config, total_steps, steps_per_epoch or total_steps, monitor)
            optimizer = unwrap(model.optimizer)
            swap = optimizer.use_ema and validation is not None
            *averaged, log, best, saver = self.make_callbacks(start, total_steps, monitor, swap, patience)
            around.enter_context(saver.signals)
            in_epoch = start and start not in ends and start not in [row["step"] for row in log.rows]
            first = []
            if in_epoch:
                # `fit` resets the running metrics as an epoch begins; an interrupted epoch gets its own again.
                state = collect_state(model)
                first = [keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: restore_state(model, state))]
            # No `fit` ends with the averaged weights: the next one trains the others.
            optimizer.unfinished = True
            for segment in [] if best.is_over() else plan_segments(start, ends):
                steps = (segment.end - segment.begin) // segment.epochs
                called = [*first, *averaged, log, best, *callbacks, saver]
                told = {"model": model, "verbose": verbose, "epochs": len(ends), "steps": steps}
                # Made here, since Keras would say the number of epochs of this `fit`, not of the run.
                called = keras.callbacks.CallbackList(called, add_history=True, add_progbar=verbose != 0, **told)
                model.fit(
                    train(segment.begin).take(segment.end - segment.begin),
                    initial_epoch=segment.epoch,
                    epochs=segment.epoch + segment.epochs,
                    steps_per_epoch=steps,
                    validation_data=validation,
                    callbacks=called,
                    verbose=verbose,
                    shuffle=False,
                )
                first = []
                if model.stop_training:
                    break
            saver.signals.until = "its last files are written"
            self.write_final(model)

    def write_config(self, model, config, total_steps, steps_per_epoch, monitor):
        facts = {
            "total_steps": total_steps,
            "monitor": monitor,
            "steps_per_epoch": float(steps_per_epoch),
            "optimizer": keras.optimizers.serialize(model.optimizer),
            "versions": {"keras": keras.__version__},
            **(config or {}),
        }
        text = json.dumps(facts, indent=2, default=str)
        self.write(model, "config.json", lambda path: path.write_text(text, "utf-8"))

    def write_final(self, model):
        """Writes the last weights, and ends with the averaged ones, if there are any."""
        self.write(model, "last.weights.npz", functools.partial(write_weights, model))
        optimizer = unwrap(model.optimizer)
        optimizer.unfinished = False
        optimizer.finalize_variable_values(model.trainable_variables)
        if optimizer.use_ema:
            self.write(model, "averaged.weights.npz", functools.partial(write_weights, model))
        self.write(model, "model.keras", lambda path: used_later(model).save(path))

    def write(self, model: keras.Model, name: str, write: Callable[[Path], object]) -> None:
        """Writes a file that the run needs to be finished, by `write(path)` in the first or only worker.

        Raises:
            RunError: when it could not be written.
        """
        if is_chief(model):
            with require_written(self.folder), self.files.writing(name) as path:
                write(path)

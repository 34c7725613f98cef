"""A run: a folder, and a `fit` that continues where it was interrupted, bit for bit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit.distribution import GlobalUpdate
from keras_vit.distribution.execution import build_for
from keras_vit.distribution.optimizer import unwrap
from keras_vit.errors import ConfigError, require_tensorflow
from keras_vit.lora import weights_without_lora, without_lora
from keras_vit.training.errors import RunError
from keras_vit.training.masked_patches.model import MaskedPatchModel
from keras_vit.training.numbers import require_counts
from keras_vit.training.runs.callbacks import BeginRun, BestWeights, RestoreMetrics, StepCounter, is_chief
from keras_vit.training.runs.checkpoints import Checkpoints, read_arrays
from keras_vit.training.runs.files import require_written
from keras_vit.training.runs.folder import CHECKPOINTS, RunFolder
from keras_vit.training.runs.metrics_log import MetricsLog
from keras_vit.training.runs.saver import Saver
from keras_vit.training.runs.state import collect_state, restore_state

if TYPE_CHECKING:
    import os

    import tensorflow as tf


def check_compiled(model, steps_per_epoch):
    """Refuses a compiled model whose training cannot be resumed."""
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


def segments(start, total, length):
    """Pairs (begin, end) of steps for one `fit` each: the rest of an interrupted epoch, whole epochs, a short last one.

    >>> segments(7, 25, 10)
    [(7, 10), (10, 20), (20, 25)]
    """
    whole = min(-(-start // length) * length, total)
    cuts = [start, whole, max(total // length * length, whole), total]
    return [(begin, end) for begin, end in zip(cuts, cuts[1:], strict=False) if begin < end]


class Run:
    """The folder of one training: config.json, checkpoints/, metrics.csv, tensorboard/ (where TensorBoard is installed:
    the extra [tensorboard]), curves.png, best.weights.npz and at the end final.weights.npz and model.keras.

    checkpoints/run.json lists what the run has written; nothing else in the folder is overwritten or removed.

    Args:
        folder: made when the training begins.
        every: steps between checkpoints.
        keep: how many checkpoints stay.

    >>> run = keras_vit.training.Run("runs/1", every=500)
    >>> run.fit(  # doctest: +SKIP
    ...     model, lambda step: examples.train(512, start=step), total_steps=10_000, validation=held_out
    ... )
    """

    def __init__(self, folder: str | os.PathLike, every: int = 500, keep: int = 2):
        require_tensorflow("A run that resumes")
        require_counts(every=every, keep=keep)
        self.folder = Path(folder)
        self.every = every
        self.files = RunFolder(folder)
        self.store = Checkpoints(self.folder / CHECKPOINTS, keep)
        self.store.ledger = self.files.ledger

    def callbacks(
        self, step: int = 0, total: int | None = None, monitor: str = "val_accuracy", swap: bool = False
    ) -> list[keras.callbacks.Callback]:
        """The callbacks with which `model.fit` keeps this run.

        `model.fit` raises RunError before its first step where the folder contains another run or anything else that
        this run would overwrite; with the same callbacks again it continues the run.

        Args:
            step: the run's step as `fit` begins.
            total: the run's last step, at which a checkpoint is written.
            monitor: metric of the best weights.
            swap: evaluate the optimizer's averaged weights.
        """
        return [BeginRun(self.files, resumed=step > 0), *self.make_callbacks(step, total, monitor, swap)]

    def make_callbacks(self, step, total, monitor, swap):
        counter = StepCounter(step)
        log = MetricsLog(self.files, counter, resumed=step > 0)
        best = BestWeights(self.files, log, monitor)
        averaged = [keras.callbacks.SwapEMAWeights()] if swap else []
        return [counter, *averaged, log, best, Saver(self.store, counter, self.every, total)]

    def fit(
        self,
        model: keras.Model,
        train: Callable[[int], tf.data.Dataset],
        total_steps: int,
        steps_per_epoch: int | None = None,
        validation: tf.data.Dataset | None = None,
        resume: bool = False,
        monitor: str = "val_accuracy",
        callbacks: Sequence[keras.callbacks.Callback] = (),
        verbose: int | str = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Trains a compiled model to `total_steps`; after a kill, `resume=True` ends with the weights of a run without.

        Args:
            model: compiled, made in the strategy's scope.
            train: function of a step to the tf.data.Dataset of the batches from that step on, the same batches
                whatever step it starts from (`keras_vit.data`'s `train(..., start=step)`).
            total_steps, steps_per_epoch: in batches; each epoch ends with a validation (None: one epoch).
            validation: dataset for `evaluate`, or None.
            resume: continue from the folder's newest readable checkpoint, if there is one.
            monitor: metric of the best weights.
            callbacks, verbose: as in `keras.Model.fit`.
            config: facts to keep in config.json, of types that JSON has.

        Raises:
            RunError: when the folder contains a run and resume is False, or a file that the run would overwrite and
                has not written; its checkpoint is of another model; none of its checkpoints is readable; or another
                process trains in it.
            NotFiniteError: when a loss or weight is not finite.
            Preempted, Interrupted: after SIGTERM, after Ctrl-C, when the run is saved.
        """
        require_counts(total_steps=total_steps, steps_per_epoch=steps_per_epoch)
        steps_per_epoch = min(steps_per_epoch or total_steps, total_steps)
        check_compiled(model, steps_per_epoch)
        if is_chief(model):
            self.files.check(resume)
        build_for(model, train(0).element_spec)
        with contextlib.ExitStack() as around:
            if is_chief(model):
                around.enter_context(self.files.hold(resume))
            start = self.restore_newest(model) if resume else 0
            self.write_config(model, config, total_steps, steps_per_epoch)
            optimizer = unwrap(model.optimizer)
            swap = optimizer.use_ema and validation is not None
            *kept, saver = self.make_callbacks(start, total_steps, monitor, swap)
            around.enter_context(saver.signals)
            first = [RestoreMetrics(collect_state(model))] if start % steps_per_epoch else []
            for begin, end in segments(start, total_steps, steps_per_epoch):
                # Only the last `fit` may end with the averaged weights: the next one trains the others.
                optimizer.unfinished = end < total_steps
                length = min(steps_per_epoch, end - begin)
                epoch = begin // steps_per_epoch
                model.fit(
                    train(begin).take(end - begin),
                    initial_epoch=epoch,
                    epochs=epoch + (end - begin) // length,
                    steps_per_epoch=length,
                    validation_data=validation,
                    callbacks=[*first, *kept, *callbacks, saver],
                    verbose=verbose,
                    shuffle=False,
                )
                first = []
            if start >= total_steps:
                # Killed between the last checkpoint and the files below: no `fit` has averaged the weights.
                optimizer.finalize_variable_values(model.trainable_variables)
            self.write_final(model)

    def restore_newest(self, model):
        """Restores the newest readable checkpoint and returns its step, 0 when there is none."""
        found = self.store.newest()
        if found is None:
            return 0
        step, arrays = found
        restore_state(model, arrays)
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
        arrays = {v.path: array for v, array in weights_without_lora(model)}
        with self.writing("final.weights.npz") as path:
            np.savez(path, **arrays)
        with self.writing("model.keras") as path:
            # What is used later.
            (model.encoder if isinstance(model, MaskedPatchModel) else without_lora(model)).save(path)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The path to write a file to without which the run is not finished; see `RunFolder.writing`.

        Raises:
            RunError: when it could not be written.
        """
        with require_written(self.folder), self.files.writing(name) as path:
            yield path


def load_weights(model: keras.Model, path: str | os.PathLike) -> None:
    """Puts best.weights.npz or final.weights.npz of a run into a model of the same architecture.

    Raises:
        RunError: when the file is missing or damaged, or names, shapes or types differ.

    >>> load_weights(model, "runs/1/best.weights.npz")  # doctest: +SKIP
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

"""What `finetune` and `pretrain` do: a model, a dataset and a recipe become a folder that holds all of the run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import data, evaluation, training
from keras_vit.console import say
from keras_vit.distribution.replicas import is_chief
from keras_vit.trainers import plan
from keras_vit.trainers.resume import (
    EVERY,
    choose_settings,
    describe_continuation,
    read_begun,
    require_same_classes,
    require_same_settings,
)
from keras_vit.trainers.settings import MASKED_PATCHES, Settings, with_settings
from keras_vit.trainers.summary import describe_training
from keras_vit.training.runs.folder import CHECKPOINTS, EVENTS, FILES, RunFolder, describe_weights, read_monitor
from keras_vit.training.runs.history import find_best, list_epoch_ends, read_rows

SEARCH = "search"  # folder of a run
DRAWN = 8  # images in masked_patches.png
OTHERS = {CHECKPOINTS: "what --resume continues from", EVENTS: "the metrics, for TensorBoard"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a training has come to.

    Args:
        folder: of the run.
        epochs: that it has done.
        best_epoch: whose weights are judged; None for those of the last step.
        judged_by: "test", "validation", or None where nothing was held out or tested on.
        metric: "accuracy", "mean_average_precision" or, of the pixels of masked patches, "loss"; None if not judged.
        score: the metric; accuracy and precision from 0 to 1.
        interval: (lowest, highest) accuracy that is likely, at 95 %; None for other metrics.
        files: {name in the folder: what it is}.
    """

    folder: Path
    epochs: int
    best_epoch: int | None
    judged_by: str | None
    metric: str | None
    score: float | None
    interval: tuple[float, float] | None
    files: dict[str, str]

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, or None where something else was measured, or nothing."""
        return self.score if self.metric == "accuracy" else None


def evaluation_batches(examples, model, recipe):
    """Batches of a split, each as large as a microbatch of training."""
    return examples.evaluation(recipe.batch_size // model.microbatches, model.preprocessing)


def fit(run, model, recipe, splits, settings, start, resume, progress, verbose):
    """Trains to the recipe's end, from the step `start` that the run has saved."""
    augmentation = plan.augmentation_for(settings, recipe, splits.train)
    length = Fraction(splits.train.num_examples, recipe.batch_size)
    rows = read_rows(run.folder / "metrics.csv") if start else []
    monitor = plan.monitor_of(splits.train)
    shown = progress and progress(
        recipe.total_steps,
        start,
        recipe.batch_size,
        epochs=len(list_epoch_ends(recipe.total_steps, length)),
        rows=[row for row in rows if row["step"] <= start],
        monitor=monitor,
    )
    with contextlib.closing(shown) if shown else contextlib.nullcontext():
        run.fit(
            model,
            lambda step: plan.weigh(
                settings,
                splits.train,
                splits.train.train(
                    recipe.batch_size, model.preprocessing, augmentation=augmentation, seed=settings.seed, start=step
                ),
            ),
            recipe.total_steps,
            steps_per_epoch=length,
            validation=splits.held_out and evaluation_batches(splits.held_out, model, recipe),
            resume=resume,
            monitor=monitor,
            patience=settings.patience,
            callbacks=[shown] if shown else [],
            verbose=verbose,
            config={
                "settings": settings.as_recorded(),
                "recipe": dataclasses.asdict(recipe),
                "classes": splits.train.class_names,
                "held_out": splits.held_out and splits.held_out.num_examples,
            },
        )


def load_best(model, folder):
    """Gives the model a run's weights of the best epoch, or leaves its last where there are none; the epoch."""
    best = find_best(read_rows(folder / "metrics.csv"), read_monitor(folder))
    if best is None or not (folder / "best.weights.npz").is_file():
        return None
    training.load_weights(model, folder / "best.weights.npz")
    return best["epoch"]


def judge_classes(run, model, examples, batches):
    """("accuracy", its value, its interval, how it is said) of the model; writes the mistakes."""
    found = evaluation.collect_predictions(model, batches)
    if is_chief(model):
        with run.writing("mistakes.png") as path:
            evaluation.draw_mistakes(found, examples.class_names, path)
        if (paths := examples.paths()) is not None:
            with run.writing("mistakes.csv") as path:
                evaluation.write_mistakes(found, examples.class_names, paths, path)
    share = evaluation.Share(int(np.sum(found.labels == found.predicted)), len(found.labels))
    return "accuracy", share.value, share.interval, str(share)


def judge_several_classes(model, examples, batch_size):
    """As `judge_classes`, of images that have several classes."""
    found = evaluation.evaluate_multi_label(model, examples, batch_size)
    value = found.mean_average_precision
    return "mean_average_precision", value, None, f"{value:.1%} of {found.count:,} images"


def finish_masked_patches(run, model, shown, judged, batch_size):
    """Writes the whole model, and a picture of what it predicts of `shown`; (metric, value), or (None, None)."""
    found = {}
    if judged:
        found = model.evaluate(judged.evaluation(batch_size, model.preprocessing), verbose=0, return_dict=True)
    if is_chief(model):
        with run.writing("masked_patches.keras") as path:
            model.save(path)
    inputs, targets, _ = next(iter(shown.evaluation(DRAWN, model.preprocessing)))
    predictions = model(inputs, training=False)
    if is_chief(model):
        with run.writing("masked_patches.png") as path:
            evaluation.draw_masked_patches(model, inputs, targets, predictions, path)
    metric = next((name for name in ("accuracy", "loss") if name in found), None)
    return metric, found.get(metric)


def list_files(folder):
    """{name: meaning} of the files that a run has written."""
    there = {name: meaning for name, meaning in {**FILES, **OTHERS}.items() if (folder / name).exists()}
    return {name + ("/" if name in OTHERS else ""): meaning for name, meaning in there.items()}


def finish(run, model, recipe, splits, tell):
    """Judges the best weights and draws their mistakes."""
    judged, name = splits.test or splits.held_out, "Test" if splits.test else "Held-out"
    epochs, batch_size = len(read_rows(run.folder / "metrics.csv")), recipe.batch_size // model.microbatches
    metric = score = interval = best = None
    if splits.train.objective:
        metric, score = finish_masked_patches(run, model, judged or splits.train, judged, batch_size)
        if metric == "accuracy":
            tell(f"{name} accuracy of the corrupted patches' colours: {score:.1%}.")
        elif metric:
            tell(f"{name} error of the corrupted patches' pixels, squared: {score:.4f}.")
    elif judged:
        best = load_best(model, run.folder)
        if splits.train.multi_label:
            metric, score, interval, said = judge_several_classes(model, judged, batch_size)
        else:
            metric, score, interval, said = judge_classes(run, model, judged, evaluation_batches(judged, model, recipe))
        which = f"epoch {best}, the best of {epochs}" if best is not None else "the last step"
        tell(f"{name} {metric.replace('_', ' ')} of {which}: {said}.")
    if skipped := sum(len(split.unreadable.names) for split in splits if split):
        tell(f"Images that cannot be read, and were skipped: {skipped}.")
    return TrainingResult(
        folder=run.folder,
        epochs=epochs,
        best_epoch=best,
        judged_by=judged.split if judged else None,
        metric=metric,
        score=score,
        interval=interval,
        files=list_files(run.folder),
    )


def train(
    settings: Settings,
    folder: str | os.PathLike | RunFolder,
    *,
    resume: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] | None = say,
    progress: Callable[..., keras.callbacks.Callback] | None = None,
    found: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Trains, and keeps everything in the folder.

    The best weights are those that did best on what is held out; nothing is ever chosen by the test split.

    Args:
        settings: what to train, on what, and how, as `plan.prepare` returns them.
        folder: of the run; a `RunFolder` that `plan.prepare` has checked is not read again.
        resume: continue the run in that folder.
        every: steps between checkpoints.
        tell: is called with each sentence on what will be trained and how good it is; None says nothing.
        progress: makes a callback with a method `close`, of (steps, step of the beginning, batch size, epochs=, rows=,
            monitor=); None leaves a line per epoch to Keras, if there is `tell`.
        found: fields of the recipe that a search has found before.

    Raises:
        KerasVitError: for anything that cannot be trained.
    """
    verbose = 2 if tell and not progress else 0
    tell = tell or (lambda sentence: None)
    run = training.Run(folder, every=every)
    start = max(run.store.steps(), default=0)
    begun = read_begun(run.folder) if start else None
    if resume and not begun:
        tell(f"{run.folder} has no checkpoint yet: the run begins.")
    asked = require_same_settings(settings, begun) if begun else settings
    # Several workers must know of each other before anything is computed.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    splits = plan.load_splits(settings)
    if begun:
        require_same_classes(splits.train, begun)
    recipe = plan.recipe_for(asked, splits.train, strategy.num_replicas_in_sync)
    plan.require_batch(splits.train, recipe.batch_size)
    plan.weights_of_classes(settings, splits.train)  # refused before anything is said of them
    if begun:
        ends = list_epoch_ends(recipe.total_steps, Fraction(splits.train.num_examples, recipe.batch_size))
        tell(describe_continuation(begun, recipe, start, ends))
    with data.data_errors():
        with strategy.scope():
            if settings.searches:
                from keras_vit.trainers.search import search_fields

                searched = search_fields(settings, recipe, run.folder / SEARCH, tell, every).best if not begun else None
                found = searched or training.read_best(run.folder / SEARCH)
                keras.utils.set_random_seed(settings.seed)
            recipe = recipe.with_(**(found or {}))
            model = plan.load_model(settings, recipe, splits.train)
            microbatches = plan.count_microbatches(settings, recipe, model)
            recipe.compile(model, microbatches=microbatches, **plan.compile_arguments(settings, splits.train))
        tell_broken = partial(say, one_line=False) if tell is say else tell
        first, *others = describe_training(settings, model, recipe, splits)
        tell_broken(first)
        if of_run := describe_weights(settings.model):
            tell(of_run)
        for sentence in others:
            tell_broken(sentence)
        fit(run, model, recipe, splits, settings, start, resume, progress, verbose)
        return finish(run, model, recipe, splits, tell)


def run_training(out, given, pretrain, resume, every, tell):
    folder = RunFolder(out)
    settings = plan.prepare(choose_settings(folder.path, given, pretrain, resume), folder, resume)
    return train(settings, folder, resume=resume, every=every, tell=tell)


@with_settings(without=MASKED_PATCHES, model="ViT-B/16")
def finetune(
    dataset: str | None = None,
    *,
    out: str | os.PathLike,
    resume: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] | None = say,
    **settings: Any,
) -> TrainingResult:
    """Fine-tunes a model on your images: a new head, the paper's recipe, and a folder with everything of the run.

    Does what `keras-vit finetune` does; both end with the same bits.

    Args:
        dataset: a name of `keras_vit.data.load`, such as "folder:photos"; a run that is resumed knows its own.
        out: folder of the run, which is made.
        resume: continue the run in that folder, bit for bit; epochs or steps prolong it.
        every: steps between checkpoints.
        tell: is called with each sentence on what happens; None keeps silent.
        SETTINGS

    Returns:
        A `TrainingResult`: best epoch, accuracy with its interval, files.

    Raises:
        UnknownNameError: for an argument, dataset, recipe or model that there is not.
        KerasVitError: for anything that cannot be trained.

    >>> result = keras_vit.finetune("folder:photos", out="runs/1", model="ViT-B/16", epochs=20)  # doctest: +SKIP
    >>> result.best_epoch, result.accuracy, result.interval  # doctest: +SKIP
    (12, 0.95, (0.93, 0.965))
    """
    return run_training(out, {"dataset": dataset, **settings}, False, resume, every, tell)


@with_settings(model="ViT-S/16")
def pretrain(
    dataset: str | None = None,
    *,
    out: str | os.PathLike,
    resume: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] | None = say,
    **settings: Any,
) -> TrainingResult:
    """Trains a model from random weights, as `keras-vit pretrain` does; otherwise as `finetune`.

    Args:
        dataset: a name of `keras_vit.data.load`, such as "folder:photos"; a run that is resumed knows its own.
        out: folder of the run, which is made.
        resume: continue the run in that folder, bit for bit; epochs or steps prolong it.
        every: steps between checkpoints.
        tell: is called with each sentence on what happens; None keeps silent.
        SETTINGS

    Returns:
        A `TrainingResult`.

    Raises:
        UnknownNameError: for an argument, dataset, recipe or variant that there is not.
        KerasVitError: for anything that cannot be trained.

    >>> result = keras_vit.pretrain("digits", out="runs/2", model="ViT-Test/4", image_size=16)  # doctest: +SKIP
    """
    return run_training(out, {"dataset": dataset, **settings}, True, resume, every, tell)

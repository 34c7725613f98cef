"""`finetune` and `pretrain`: train a model on a dataset by a recipe, and keep the run in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import keras

from keras_vit import data, training
from keras_vit.console import say
from keras_vit.trainers import plan
from keras_vit.trainers.choices import (
    EVERY,
    MODELS,
    choose_settings,
    describe_continuation,
    recall_found,
    require_as_many,
    require_same_classes,
    require_same_settings,
)
from keras_vit.trainers.result import TrainingResult, describe_training, judge
from keras_vit.trainers.search import make_grid, search_fields
from keras_vit.trainers.settings import MASKED_PATCHES, Settings, with_settings
from keras_vit.training.grid import read_search
from keras_vit.training.runs.history import list_epoch_ends, read_rows
from keras_vit.training.runs.run_folder import RunFolder, describe_weights, read_config


def fit(run, model, recipe, splits, settings, start, resume, progress, verbose):
    """Trains to the recipe's end from the saved step `start`."""
    length = Fraction(splits.train.num_examples, recipe.batch_size)
    monitor = plan.monitor_of(splits.train)
    shown = progress and progress(
        recipe.total_steps,
        len(list_epoch_ends(recipe.total_steps, length)),
        recipe.batch_size,
        start,
        rows=read_rows(run.folder / "metrics.csv", start),
        monitor=monitor,
    )
    held_out = splits.held_out
    with contextlib.closing(shown) if shown else contextlib.nullcontext():
        run.fit(
            model,
            plan.training_batches(settings, recipe, splits.train, model),
            recipe.total_steps,
            steps_per_epoch=length,
            validation=held_out and plan.evaluation_batches(held_out, recipe, model, model.microbatches),
            resume=resume,
            monitor=monitor,
            patience=settings.patience,
            callbacks=[shown] if shown else [],
            verbose=verbose,
            config={
                "settings": settings.as_recorded(),
                "digests": settings.digests(),
                "recipe": dataclasses.asdict(recipe),
                "classes": splits.train.class_names,
                "held_out": held_out and held_out.num_examples,
            },
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
    """Trains, and keeps everything in the folder. The best weights are those with the best score on held-out images;
    the test split never chooses anything.

    Args:
        settings: the settings, as `plan.prepare` returns them.
        folder: folder of the run; a `RunFolder` that `plan.prepare` has checked is not read again.
        resume: whether to continue the run in that folder.
        every: steps between checkpoints.
        tell: called with each sentence on the plan and the result; with None only the devices are printed.
        progress: a function of (steps, epochs, batch size, first step, rows=, monitor=) that makes a callback with a
            method `close`; None: Keras prints a line per epoch, if there is `tell`.
        found: fields of the recipe that a search has found.
    """
    verbose = 2 if tell and not progress else 0
    tell = tell or (lambda sentence: None)
    run = training.Run(folder, every=every)
    start = max(run.store.steps(), default=0)
    begun = read_config(run.folder, to_resume=True) if start else None
    if resume and not begun:
        tell(f"{run.folder} has no checkpoint yet: the run begins.")
    asked = require_same_settings(settings, run.folder, begun) if begun else settings
    # Several workers must find each other before any computation.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    splits = plan.load_splits(settings)
    if begun:
        require_same_classes(splits.train, run.folder, begun)
        if splits.held_out:
            require_as_many(splits.held_out, begun.get("held_out"), "held out", run.folder)
        found = recall_found(settings, begun) or found
    recipe = plan.recipe_for(asked, splits.train, strategy.num_replicas_in_sync).with_(**(found or {}))
    plan.require_batch(splits.train, recipe.batch_size)
    plan.weights_of_classes(settings, splits.train)  # raises its errors before the plan is printed
    if begun:
        ends = list_epoch_ends(recipe.total_steps, Fraction(splits.train.num_examples, recipe.batch_size))
        tell(describe_continuation(run.folder, begun, recipe, start, ends, settings.patience))
    with data.data_errors():
        with strategy.scope():
            if settings.searches:
                if not begun:
                    grid = make_grid(settings, recipe)
                    recipe = search_fields(settings, recipe, run.folder / "search", tell, every, grid).recipe
                keras.utils.set_random_seed(settings.seed)
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
        searched = read_search(run.folder / "search", recipe) if settings.searches else None
        return judge(run, model, recipe, splits, tell, searched)


def run_training(out, given, pretrain, resume, every, tell):
    folder = RunFolder(out)
    settings = plan.prepare(choose_settings(folder.path, given, pretrain, resume), folder, resume)
    return train(settings, folder, resume=resume, every=every, tell=tell)


@with_settings(without=MASKED_PATCHES, model=MODELS[False])
def finetune(
    dataset: str | None = None,
    *,
    out: str | os.PathLike,
    resume: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] | None = say,
    **settings: Any,
) -> TrainingResult:
    """Fine-tunes a model on your images: with a new head, by the paper's recipe, and with all files in one folder.

    Does what `keras-vit finetune` does; both end with the same bits.

    Args:
        ARGUMENTS

    Returns:
        A `TrainingResult`: best epoch, accuracy with its interval, files; after a search also `search.best` and
        `search.scores`.

    Raises:
        UnknownNameError: for an unknown argument, dataset, recipe or model.
        KerasVitError: for anything that cannot be trained.

    >>> result = keras_vit.finetune("folder:photos", out="runs/1", model="ViT-B/16", epochs=20)  # doctest: +SKIP
    >>> result.best_epoch, result.accuracy, result.interval  # doctest: +SKIP
    (12, 0.95, (0.93, 0.965))
    """
    return run_training(out, {"dataset": dataset, **settings}, False, resume, every, tell)


@with_settings(model=MODELS[True])
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
        ARGUMENTS

    Returns:
        A `TrainingResult`, as of `finetune`.

    Raises:
        UnknownNameError: for an unknown argument, dataset, recipe or variant.
        KerasVitError: for anything that cannot be trained.

    >>> result = keras_vit.pretrain("digits", out="runs/2", model="ViT-Test/4", image_size=16)  # doctest: +SKIP
    """
    return run_training(out, {"dataset": dataset, **settings}, True, resume, every, tell)

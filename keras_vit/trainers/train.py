"""What `finetune` and `pretrain` do: a model, a dataset and a recipe become a folder that holds all of the run."""

import contextlib
import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import keras

from keras_vit import data, training
from keras_vit.commands.progress import FitProgress
from keras_vit.console import Console
from keras_vit.text import without_secrets
from keras_vit.trainers import kit
from keras_vit.trainers.checks import require_possible
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.trainers.masked_patches import describe_objective, finish_masked_patches
from keras_vit.trainers.outcome import judge, print_outcome
from keras_vit.trainers.plan import (
    augmentation_for,
    count_microbatches,
    load_model,
    load_splits,
    recipe_for,
    require_batch,
)
from keras_vit.trainers.resume import (
    describe_continuation,
    read_begun,
    require_same_classes,
    require_same_settings,
)
from keras_vit.trainers.search import SEARCH, search_fields
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.epochs import list_epoch_ends
from keras_vit.training.runs.folder import describe_weights, model_of
from keras_vit.training.runs.history import read_rows


def describe_splits(splits):
    """Says how many images there are for what."""
    train, held_out, test = splits
    said = [f"{train.num_examples:,} to train on"]
    said += [f"{held_out.num_examples:,} held out"] if held_out else ["none held out: the last weights are the run's"]
    said += [f"{test.num_examples:,} to test on, once, at the end"] if test else []
    return ", ".join(said)


def pluralize(number, noun):
    """ "1 step", "2,000 steps": the number, to three digits where it is not whole, and the noun."""
    figure = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{figure} {noun}{'' if figure == '1' else 's'}"


def count_epochs(recipe, examples):
    """Passes over the examples; a whole number where no number of steps is nearer to it."""
    epochs = recipe.images_seen / examples.num_examples
    whole = round(epochs)
    return whole if round(whole * examples.num_examples / recipe.batch_size) == recipe.total_steps else epochs


def describe_plan(recipe, microbatches, examples):
    """Says how long a training is."""
    cut = f", in {microbatches} microbatches," if microbatches > 1 else ""
    return (
        f"{recipe.name}: {recipe.optimizer}, {pluralize(recipe.total_steps, 'step')} of "
        f"{pluralize(recipe.batch_size, 'image')}{cut} at a learning rate of {recipe.learning_rate:.2g}: "
        f"{pluralize(recipe.images_seen, 'image')} seen, "
        f"{pluralize(count_epochs(recipe, examples), 'epoch')} "
        f"({recipe.source.partition(';')[0]})."
    )


def print_summary(console, settings, model, recipe, splits):
    """Says what will be trained, on what, and for how long, before it begins."""
    name = without_secrets(settings.model)
    source = name if settings.pretrain else choose_checkpoint(name)
    size = "x".join(map(str, model.config.image_size or ("any",)))
    task = describe_objective(model) if splits.train.objective else f"{splits.train.num_classes} classes"
    console.print(f"{source}: {model.count_params():,} parameters, {size} pixels, {task}.")
    if of_run := describe_weights(settings.model):
        console.print(of_run, soft_wrap=True)
    if source != name:
        console.print(f"{name} starts from {source}, pre-trained and not yet fine-tuned; name another tag for others.")
    console.print(f"Images: {describe_splits(splits)}.")
    console.print(describe_plan(recipe, model.microbatches, splits.train))
    for sentence in kit.describe_kit(settings, model, splits.train):
        console.print(sentence)
    full = recipe_for(dataclasses.replace(settings, steps=None, epochs=None), splits.train)
    if recipe.images_seen < full.images_seen / 10:
        console.print(
            f"That is {recipe.images_seen / full.images_seen:.2g} of the {full.images_seen:,} images that the recipe "
            "sees without --steps or --epochs."
        )


def evaluation_batches(examples, model, recipe):
    """Batches of a split, each as large as a microbatch of training."""
    return examples.evaluation(recipe.batch_size // model.microbatches, model.preprocessing)


def fit(run, model, recipe, splits, settings, start, resume):
    """Trains to the recipe's end, from the step `start` that the run has saved."""
    augmentation = augmentation_for(settings, recipe, splits.train)
    length = Fraction(splits.train.num_examples, recipe.batch_size)
    rows = read_rows(run.folder / "metrics.csv") if start else []
    progress = FitProgress(
        recipe.total_steps,
        start,
        recipe.batch_size,
        epochs=len(list_epoch_ends(recipe.total_steps, length)),
        rows=[row for row in rows if row["step"] <= start],
        monitor=kit.monitor_of(splits.train),
    )
    with contextlib.closing(progress):
        run.fit(
            model,
            lambda step: kit.weigh(
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
            monitor=kit.monitor_of(splits.train),
            patience=settings.patience,
            callbacks=[progress],
            config={
                "settings": settings.as_recorded(),
                "recipe": dataclasses.asdict(recipe),
                "classes": splits.train.class_names,
                "held_out": splits.held_out and splits.held_out.num_examples,
            },
        )


def finish(run, model, recipe, splits, settings, console):
    """Judges the best weights, draws their mistakes and says what there is now; returns the accuracy, if any."""
    judged, name = splits.test or splits.held_out, "Test" if splits.test else "Held-out"
    share, split = None, judged and judged.split
    if splits.train.objective:
        share = finish_masked_patches(run, model, recipe, judged or splits.train, name if judged else None, console)
        split = None
    elif judged and splits.train.multi_label:
        share = kit.judge_multi_label(run, model, judged, recipe.batch_size // model.microbatches, name, console)
    elif judged:
        found, which = judge(run, model, judged, evaluation_batches(judged, model, recipe))
        console.print(f"{name} accuracy of {which}: {found}.", soft_wrap=True)
        share = found.value
    if skipped := sum(len(split.unreadable.names) for split in splits if split):
        console.print(f"Images that cannot be read, and were skipped: {skipped}.")
    print_outcome(run.folder, settings.dataset, split, console, has_head=splits.train.objective is None)
    return share


def train(
    settings: Settings,
    out: Path,
    *,
    resume: bool = False,
    every: int = 200,
    console: Console | None = None,
    found: Mapping[str, Any] | None = None,
) -> float | None:
    """Trains, and keeps everything in `out`; returns the accuracy on the test split if asked, else on what is held out,
    of the best weights.

    The best weights are those that did best on what is held out; nothing is ever chosen by the test split.

    Args:
        settings: what to train, on what, and how.
        out: folder of the run.
        resume: continue the run in that folder.
        every: steps between checkpoints.
        console: prints the summary and the result; None prints to the terminal.
        found: fields of the recipe that a search has found before.

    Returns:
        The accuracy from 0 to 1 (of masked patches that of the colours), or None where nothing was held out or tested
        on, or pixels were predicted.

    Raises:
        KerasVitError: for anything that cannot be trained.

    >>> train(Settings(model="ViT-B/16", dataset="folder:photos"), "runs/1")  # doctest: +SKIP
    0.95
    """
    console = console or Console()
    require_possible(settings, out, resume)
    settings = dataclasses.replace(settings, model=str(model_of(settings.model)))
    run = training.Run(out, every=every)
    start = max(run.store.steps(), default=0)
    begun = read_begun(run.folder) if start else None
    if resume and not begun:
        console.print(f"{out} has no checkpoint yet: the run begins.", soft_wrap=True)
    asked = require_same_settings(settings, begun) if begun else settings
    # Several workers must know of each other before anything is computed.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    splits = load_splits(settings)
    if begun:
        require_same_classes(splits.train, begun)
    recipe = recipe_for(asked, splits.train, strategy.num_replicas_in_sync)
    require_batch(splits.train, recipe.batch_size)
    kit.weights_of_classes(settings, splits.train)  # refused before anything is said of them
    if begun:
        ends = list_epoch_ends(recipe.total_steps, Fraction(splits.train.num_examples, recipe.batch_size))
        console.print(describe_continuation(begun, recipe, start, ends), soft_wrap=True)
    with data.data_errors():
        with strategy.scope():
            if settings.searches:
                searched = search_fields(settings, recipe, out / SEARCH, console, every).best if not begun else None
                found = searched or training.read_best(out / SEARCH)
                keras.utils.set_random_seed(settings.seed)
            recipe = recipe.with_(**(found or {}))
            model = load_model(settings, recipe, splits.train)
            microbatches = count_microbatches(settings, recipe, model)
            recipe.compile(model, microbatches=microbatches, **kit.compile_arguments(settings, splits.train))
        print_summary(console, settings, model, recipe, splits)
        fit(run, model, recipe, splits, settings, start, resume)
        return finish(run, model, recipe, splits, settings, console)

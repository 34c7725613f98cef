"""What `finetune` and `pretrain` do: a model, a dataset and a recipe become a folder that holds all of the run."""

import contextlib
import dataclasses
from pathlib import Path
from typing import NamedTuple

import keras

from keras_vit import data, training, zoo
from keras_vit.commands import choices
from keras_vit.commands.progress import FitProgress
from keras_vit.commands.resume import read_begun, require_same_classes, require_same_settings
from keras_vit.commands.settings import Settings
from keras_vit.console import Console
from keras_vit.data.datasets import folder as folders
from keras_vit.errors import ConfigError
from keras_vit.evaluation import mistakes
from keras_vit.text import without_secrets
from keras_vit.training.runs.callbacks import is_chief
from keras_vit.training.runs.folder import model_of


class Splits(NamedTuple):
    """The `Examples` of a run; None for what it does not hold out, or does not test on."""

    train: data.Examples
    held_out: data.Examples | None
    test: data.Examples | None


def load_splits(settings):
    """The splits that the settings ask for.

    Raises:
        DataError: when the dataset does not have them.
    """
    return Splits(
        train=data.load(settings.dataset, settings.split),
        held_out=data.load(settings.dataset, "validation") if settings.split == "train" else None,
        test=data.load(settings.dataset, "test") if settings.test else None,
    )


def require_outside_dataset(out, dataset):
    """Refuses a run's folder that would be a class, with the run's own images, when the data are read again."""
    scheme, _, where = dataset.partition(":")
    if scheme == "folder" and folders.would_read(where, out):
        raise ConfigError(
            f"The run's folder {out} lies among the class folders of {where}, and would be read as one. "
            "Choose a folder outside of it."
        )


def require_batch(examples, batch_size):
    """Refuses a batch of more images than there are."""
    if batch_size > examples.num_examples:
        raise ConfigError(
            f"A batch of {batch_size:,} images is larger than {examples.name}, which has {examples.num_examples:,} "
            f"to train on. Choose a batch size of at most {examples.num_examples}."
        )


def recipe_for(settings: Settings, examples: data.Examples, replicas: int = 1) -> training.Recipe:
    """The recipe, scaled to the data, the batch size and the length asked for; image_size None is the model's own.

    A dataset that the paper does not train on takes 30 epochs at the model's own size, unless told otherwise.
    """
    chosen, paper = choices.choose_recipe(settings.dataset, settings.model, settings.pretrain)
    name = settings.recipe or chosen
    given = {"examples": examples.num_examples, "model": settings.model.partition(":")[0]}
    if name.startswith("bit-hyperrule"):
        given["picture_size"] = examples.picture_size()
    row = training.recipe(name, **given)
    told = settings.recipe is not None or paper
    epochs, size, batch = settings.epochs, settings.image_size, settings.batch_size
    if not told and settings.steps is None and epochs is None:
        epochs = choices.EPOCHS
    if told and size is None:
        size = choices.round_to_patches(row.image_size, settings.model)
    if batch is None:
        batch = choices.choose_batch_size(row.batch_size, examples.num_examples, paper, replicas)
    if settings.learning_rate is not None:
        given["learning_rate"] = settings.learning_rate
    return training.recipe(name, batch_size=batch, steps=settings.steps, epochs=epochs, image_size=size, **given)


def load_model(settings, recipe, examples):
    """The model with a head for the dataset's classes, as the recipe asks."""
    arguments = {"labels": examples.class_names, "dtype": settings.precision, **recipe.model_arguments}
    if settings.pretrain:
        return zoo.load(settings.model, weights=None, **arguments)
    return zoo.load(choices.choose_checkpoint(settings.model), **arguments)


def count_microbatches(settings, recipe, model):
    """In how many parts each replica's batch is computed; the model is made in the strategy's scope.

    Raises:
        ConfigError: when the number asked for does not divide the batch.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if settings.microbatches is None:
        return choices.choose_microbatches(recipe.batch_size, model.preprocessing.image_size, replicas)
    each = recipe.batch_size // replicas
    if each % settings.microbatches:
        raise ConfigError(
            f"microbatches must divide the batch of each replica. Received: {settings.microbatches}, for {each} images."
        )
    return settings.microbatches


def augmentation_for(settings, recipe, examples):
    """The augmentation asked for, else the recipe's; None, the dataset's own, where that must not be augmented."""
    return settings.augmentation or (None if examples.augmentation == "none" else recipe.augmentation)


def search_learning_rate(settings, recipe, console):
    """The recipe with the learning rate that does best on the development set, of those that its source tries.

    As in Appendix B.1.1 the search never trains on what it judges by, whatever the run itself trains on.
    """
    examples, held_out = (data.load(settings.dataset, split) for split in ("train", "validation"))
    paper = training.RECIPES[recipe.name]
    rates = [rate * recipe.learning_rate / paper.learning_rate for rate in recipe.learning_rates]
    model = load_model(settings, recipe, examples)
    microbatches = count_microbatches(settings, recipe, model)
    console.print(f"Training once at each learning rate: {', '.join(f'{rate:.2g}' for rate in rates)}.")
    best, scores = training.search_learning_rate(
        recipe,
        lambda: load_model(settings, recipe, examples),
        examples.train(
            recipe.batch_size,
            model.preprocessing,
            augmentation=augmentation_for(settings, recipe, examples),
            seed=settings.seed,
        ),
        held_out.evaluation(recipe.batch_size // microbatches, model.preprocessing),
        rates,
        microbatches=microbatches,
    )
    console.print("  ".join(f"{rate:.2g}: {accuracy:.1%}" for rate, accuracy in scores.items()))
    return recipe.with_(learning_rate=best)


def describe_splits(splits):
    """How many images there are for what, in a sentence."""
    train, held_out, test = splits
    said = [f"{train.num_examples:,} to train on"]
    said += [f"{held_out.num_examples:,} held out"] if held_out else ["none held out: the last weights are the run's"]
    said += [f"{test.num_examples:,} to test on, once, at the end"] if test else []
    return ", ".join(said)


def counted(number, noun):
    """ "1 step", "2,000 steps": the number, to three digits where it is not whole, and the noun."""
    figure = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{figure} {noun}{'' if figure == '1' else 's'}"


def describe_plan(recipe, microbatches, examples):
    """How long a training is, in a sentence."""
    cut = f", in {microbatches} microbatches," if microbatches > 1 else ""
    return (
        f"{recipe.name}: {recipe.optimizer_name}, {counted(recipe.total_steps, 'step')} of "
        f"{counted(recipe.batch_size, 'image')}{cut} at a learning rate of {recipe.learning_rate:.2g}: "
        f"{counted(recipe.images_seen, 'image')} seen, {counted(recipe.images_seen / examples.num_examples, 'epoch')} "
        f"({recipe.source.partition(';')[0]})."
    )


def print_summary(console, settings, model, recipe, splits):
    """Says what will be trained, on what, and for how long, before it begins."""
    name = without_secrets(settings.model)
    source = name if settings.pretrain else choices.choose_checkpoint(name)
    size = "x".join(map(str, model.config.image_size or ("any",)))
    classes = splits.train.num_classes
    console.print(f"{source}: {model.count_params():,} parameters, {size} pixels, {classes} classes.")
    if source != name:
        console.print(f"{name} starts from {source}, pre-trained and not yet fine-tuned; name another tag for others.")
    console.print(f"Images: {describe_splits(splits)}.")
    console.print(describe_plan(recipe, model.microbatches, splits.train))
    full = recipe_for(dataclasses.replace(settings, steps=None, epochs=None), splits.train)
    if recipe.images_seen < full.images_seen / 10:
        console.print(
            f"That is {recipe.images_seen / full.images_seen:.2g} of the {full.images_seen:,} images that the recipe "
            "sees without --steps or --epochs."
        )


def evaluation(examples, model, recipe):
    """Batches of a split, each as large as a microbatch of training."""
    return examples.evaluation(recipe.batch_size // model.microbatches, model.preprocessing)


def fit(run, model, recipe, splits, settings, start, resume):
    """Trains to the recipe's end, from the step `start` that the run has saved."""
    augmentation = augmentation_for(settings, recipe, splits.train)
    progress = FitProgress(recipe.total_steps, start, recipe.batch_size)
    with contextlib.closing(progress):
        run.fit(
            model,
            lambda step: splits.train.train(
                recipe.batch_size, model.preprocessing, augmentation=augmentation, seed=settings.seed, start=step
            ),
            recipe.total_steps,
            steps_per_epoch=splits.train.steps_per_epoch(recipe.batch_size),
            validation=splits.held_out and evaluation(splits.held_out, model, recipe),
            resume=resume,
            callbacks=[progress],
            config={
                "settings": settings.as_recorded(),
                "recipe": dataclasses.asdict(recipe.row),
                "classes": splits.train.class_names,
            },
        )


def finish(run, model, recipe, splits, console):
    """Writes the model in the official layout and draws its mistakes; returns the accuracy, if any."""
    judged = splits.test or splits.held_out
    predictions = judged and mistakes.predictions(model, evaluation(judged, model, recipe))
    if is_chief(model):
        with run.writing("model.npz") as path:
            zoo.save(model, path)
        if predictions:
            with run.writing("mistakes.png") as path:
                mistakes.draw(predictions, judged.class_names, path)
    if predictions:
        name = "Test" if splits.test else "Held-out"
        console.print(f"{name} accuracy: {predictions.accuracy:.1%} of {len(predictions.labels):,} images.")
    console.print(
        f"Everything is in {run.folder}: model.keras, model.npz{', mistakes.png' if predictions else ''}, ..."
    )
    return predictions and predictions.accuracy


def run(settings: Settings, out: Path, *, resume: bool = False, every: int = 200, console: Console | None = None):
    """Trains, and keeps everything in `out`; returns the accuracy on the test split if asked, else on what is held out.

    The best weights are those that did best on what is held out; nothing is ever chosen by the test split.

    Args:
        settings: what to train, on what, and how.
        out: folder of the run.
        resume: continue the run in that folder.
        every: steps between checkpoints.
        console: prints the summary and the result; None prints to the terminal.

    Returns:
        The accuracy from 0 to 1, or None where nothing was held out or tested on.

    Raises:
        KerasVitError: for anything that cannot be trained, in a sentence.

    >>> run(Settings(model="ViT-B/16", dataset="folder:photos"), "runs/1")  # doctest: +SKIP
    0.95
    """
    console = console or Console()
    settings = dataclasses.replace(settings, model=model_of(settings.model))
    require_outside_dataset(out, settings.dataset)
    run = training.Run(out, every=every)
    run.files.check(resume)
    start = max(run.store.steps(), default=0)
    begun = read_begun(run.folder) if start else None
    if resume and not begun:
        console.print(f"{out} has no checkpoint yet: the run begins.")
    asked = require_same_settings(settings, begun) if begun else settings
    # Several workers must know of each other before anything is computed.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    splits = load_splits(settings)
    if begun:
        require_same_classes(splits.train, begun)
    recipe = recipe_for(asked, splits.train, strategy.num_replicas_in_sync)
    require_batch(splits.train, recipe.batch_size)
    with data.data_errors():
        with strategy.scope():
            if settings.grid_search and not begun:
                recipe = search_learning_rate(settings, recipe, console)
            model = load_model(settings, recipe, splits.train)
            recipe.compile(model, microbatches=count_microbatches(settings, recipe, model))
        print_summary(console, settings, model, recipe, splits)
        fit(run, model, recipe, splits, settings, start, resume)
        return finish(run, model, recipe, splits, console)

"""`keras-vit finetune` and `pretrain`: a model, a dataset and a recipe to a folder that holds all of the run."""

import contextlib
import dataclasses
import json

import keras

from keras_vit import data, training, zoo
from keras_vit.console import Console
from keras_vit.data import folder
from keras_vit.errors import ConfigError
from keras_vit.evaluation import mistakes
from keras_vit.models import VARIANTS
from keras_vit.progress import FitProgress
from keras_vit.training.callbacks import is_chief
from keras_vit.training.folder import model_of
from keras_vit.training.numbers import require_counts, require_positive

# The paper's own datasets and the rows of Table 4 that are theirs.
RECIPE_OF = {
    "imagenet2012": "finetune-imagenet",
    "cifar10": "finetune-cifar10",
    "cifar100": "finetune-cifar100",
    "oxford_iiit_pet": "finetune-pets",
    "oxford_flowers102": "finetune-flowers",
}
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run was asked for; None leaves it to the recipe, or to the model.

    Args:
        model: a name or path that `zoo.load` takes.
        dataset: a name that `data.load` takes.
        recipe: a name of `training.RECIPES`; None for the paper's where the dataset is the paper's.
        pretrain: random weights in place of the model's.
        epochs, steps, batch_size, learning_rate, image_size, augmentation: in place of the recipe's.
        microbatches: parts of a batch computed one after the other, for devices with little memory.
        grid_search: try the recipe's learning rates first (Appendix B.1.1), and train with the best.
        strategy: see `training.strategy`.
        precision: policy of the layers, such as "mixed_bfloat16".
        seed: of weights, order, augmentation and dropout.

    Raises:
        ConfigError: for numbers, or a precision, that no run can have.
    """

    model: str
    dataset: str
    recipe: str | None = None
    pretrain: bool = False
    epochs: float | None = None
    steps: int | None = None
    batch_size: int = 32
    learning_rate: float | None = None
    image_size: int | None = None
    augmentation: str | None = None
    microbatches: int = 1
    grid_search: bool = False
    strategy: str = "auto"
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self):
        counts = ("steps", "batch_size", "image_size", "microbatches")
        require_counts(**{name: getattr(self, name) for name in counts})
        require_positive(epochs=self.epochs, learning_rate=self.learning_rate)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be from 0 to 2 ** 32 - 1. Received: seed={self.seed}.")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {self.precision!r}.")


def recipe_for(settings, examples):
    """The recipe, scaled to the batch size and the length asked for.

    A dataset that the paper does not have takes Table 4's settings for small ones, over 30 epochs unless told
    otherwise; pre-training takes those for ImageNet, likewise.
    """
    known = RECIPE_OF.get(settings.dataset) or ("finetune-vtab" if settings.dataset.startswith("vtab/") else None)
    name = settings.recipe or ("pretrain-imagenet" if settings.pretrain else known or "finetune-cifar10")
    epochs = settings.epochs
    if settings.recipe is None and known is None and settings.steps is None:
        epochs = epochs or 30
    changes = {} if settings.learning_rate is None else {"learning_rate": settings.learning_rate}
    return training.recipe(
        name,
        batch_size=settings.batch_size,
        steps=settings.steps,
        epochs=epochs,
        examples=examples.num_examples,
        **changes,
    )


def load_model(settings, recipe, examples):
    """The model with a head for the dataset's classes, at the size asked for, the recipe's or its own."""
    size = settings.image_size or (recipe.image_size if settings.recipe else None)
    arguments = {"labels": examples.class_names, "image_size": size, "dtype": settings.precision}
    if settings.pretrain:
        return zoo.load(settings.model, weights=None, **arguments, **dropout(settings, recipe))
    return zoo.load(settings.model, **arguments, **dropout(settings, recipe))


def dropout(settings, recipe):
    """The recipe's dropout rate, for models that have one."""
    known = VARIANTS.get(settings.model.partition(":")[0])
    return {} if known and known.family == "ResNet" else {"dropout_rate": recipe.dropout_rate}


def searched(settings, recipe, examples, held_out, augmentation, console):
    """The recipe with the learning rate that does best on the held-out pictures, of those that its source tries."""
    paper = training.RECIPES[recipe.name]
    rates = [rate * recipe.learning_rate / paper.learning_rate for rate in recipe.learning_rates]
    first = load_model(settings, recipe, examples)
    console.print(f"Trying the learning rates {', '.join(f'{rate:.2g}' for rate in rates)}, a training each.")
    best, scores = training.search_learning_rate(
        recipe,
        lambda: load_model(settings, recipe, examples),
        examples.train(recipe.batch_size, first.preprocessing, augmentation=augmentation, seed=settings.seed),
        held_out.evaluation(recipe.batch_size, first.preprocessing),
        rates,
        microbatches=settings.microbatches,
    )
    console.print("  ".join(f"{rate:.2g}: {accuracy:.1%}" for rate, accuracy in scores.items()))
    return recipe.with_(learning_rate=best)


def not_said(out, error):
    return training.RunError(
        f"{out / 'config.json'} does not say what the run was begun with ({error!r}). Put the run's own there, or "
        "choose another folder."
    )


def begun_config(out):
    """The config.json of the run in `out`, a dict.

    Raises:
        RunError: when it is missing or damaged.
    """
    try:
        return dict(json.loads((out / "config.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise not_said(out, error) from error


def begun_with(settings, out):
    """The learning rate of the run in `out`, which must have been begun with the same settings.

    Raises:
        RunError: when its config.json does not say.
        ConfigError: when a setting differs.
    """
    begun = begun_config(out)
    try:
        before, learning_rate = dict(begun["settings"]), begun["recipe"]["learning_rate"]
        require_positive(learning_rate=learning_rate)
        learning_rate = float(learning_rate)
    except (ValueError, KeyError, TypeError) as error:
        raise not_said(out, error) from error
    for name, value in dataclasses.asdict(settings).items():
        if before.get(name) != value:
            raise ConfigError(
                f"The run in {out} was begun with {name}={before.get(name)!r}. Received: {name}={value!r}. "
                "Resume it with the settings it was begun with, or choose another folder."
            )
    return learning_rate


def require_apart(dataset, out):
    """Refuses a run's folder that would be a class, with the run's own pictures, when the data are read again."""
    scheme, _, where = dataset.partition(":")
    if scheme == "folder" and folder.would_read(where, out):
        raise ConfigError(
            f"The run's folder {out} lies among the class folders of {where}, and would be read as one. "
            "Choose a folder outside of it."
        )


def require_same_classes(examples, out):
    """Refuses to go on with classes that are not those the run in `out` was begun with."""
    begun, now = begun_config(out).get("classes"), list(examples.class_names)
    if begun is not None and not (isinstance(begun, list) and all(isinstance(name, str) for name in begun)):
        raise not_said(out, "its classes are no list of names")
    if begun not in (None, now):
        gone, new = (sorted(set(a) - set(b)) for a, b in ((begun, now), (now, begun)))
        raise ConfigError(
            f"The run in {out} was begun with {len(begun)} classes, now {examples.name} has {len(now)}: "
            f"{folder.listed(gone) or 'none'} gone, {folder.listed(new) or 'none'} new. Resume it with the classes it "
            "was begun with, or choose another folder."
        )


def require_batch(examples, batch_size):
    """Refuses a batch of more pictures than there are."""
    if batch_size > examples.num_examples:
        raise ConfigError(
            f"A batch of {batch_size:,} pictures is larger than {examples.name}, which has {examples.num_examples:,} "
            f"to train on. Choose a batch size of at most {examples.num_examples}."
        )


def run(settings, out, *, resume=False, every=200, console=None):
    """Trains, keeping everything in `out`; gives the accuracy on the validation split.

    Args:
        settings: `Settings`.
        out: folder of the run.
        resume: go on with the run that is there.
        every: steps between checkpoints.
        console: a rich console; None prints to the terminal.

    Raises:
        KerasVitError: for anything that cannot be trained, in a sentence.

    >>> run(Settings("ViT-B/16", "folder:photos"), "runs/1")
    0.95
    """
    console = console or Console()
    settings = dataclasses.replace(settings, model=model_of(settings.model))
    require_apart(settings.dataset, out)
    kept = training.Run(out, every=every)
    kept.files.check(resume)
    start = max(kept.store.steps(), default=0)
    learning_rate = begun_with(settings, kept.folder) if start else None
    if resume and not start:
        console.print(f"{out} has no checkpoint yet: the run begins.")
    # Several workers must know of each other before anything is computed.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    examples, held_out = data.load(settings.dataset, "train"), data.load(settings.dataset, "validation")
    require_batch(examples, settings.batch_size)
    if start:
        require_same_classes(examples, kept.folder)
    recipe = recipe_for(settings, examples)
    augmentation = settings.augmentation or (None if examples.augmentation == "none" else recipe.augmentation)
    with data.data_errors(), strategy.scope():
        if start:
            recipe = recipe.with_(learning_rate=learning_rate)
        elif settings.grid_search:
            recipe = searched(settings, recipe, examples, held_out, augmentation, console)
        model = load_model(settings, recipe, examples)
        recipe.compile(model, microbatches=settings.microbatches)
    introduce(console, settings, model, recipe, examples, held_out)
    progress = FitProgress(recipe.total_steps, start, recipe.batch_size)
    with data.data_errors(), contextlib.closing(progress):
        kept.fit(
            model,
            lambda step: examples.train(
                recipe.batch_size, model.preprocessing, augmentation=augmentation, seed=settings.seed, start=step
            ),
            recipe.total_steps,
            steps_per_epoch=examples.steps_per_epoch(recipe.batch_size),
            validation=held_out.evaluation(recipe.batch_size, model.preprocessing),
            resume=resume,
            callbacks=[progress],
            config={
                "settings": dataclasses.asdict(settings),
                "recipe": dataclasses.asdict(recipe.row),
                "classes": examples.class_names,
            },
        )
        return finish(model, held_out, recipe.batch_size, kept, console)


def introduce(console, settings, model, recipe, examples, held_out):
    size = "x".join(map(str, model.config.image_size or ("any",)))
    console.print(
        f"{settings.model}: {model.count_params():,} parameters, {size} pixels, {examples.num_classes} classes; "
        f"{examples.num_examples:,} pictures to train on, {held_out.num_examples:,} held out."
    )
    console.print(
        f"{recipe.name}: {recipe.optimizer_name}, {recipe.total_steps:,} steps of {recipe.batch_size} pictures, "
        f"learning rate {recipe.learning_rate:.2g} ({recipe.source})."
    )


def finish(model, held_out, batch_size, kept, console):
    """Writes the model in the official layout and the picture of its mistakes; gives the accuracy."""
    found = mistakes.predictions(model, held_out.evaluation(batch_size, model.preprocessing))
    if is_chief(model):
        with kept.writing("model.npz") as path:
            zoo.save(model, path)
        with kept.writing("mistakes.png") as path:
            mistakes.draw(found, held_out.class_names, path)
    console.print(
        f"Held-out accuracy: {found.accuracy:.1%}. Everything is in {kept.folder}: model.keras, model.npz, "
        "mistakes.png, ..."
    )
    return found.accuracy

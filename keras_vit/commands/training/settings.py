"""What a training can be told: each field of `Settings` is an option of `finetune` and `pretrain`. Imports no Keras."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from keras_vit.data.augment.rows import find_augmentation
from keras_vit.data.datasets.schemes import describe_schemes, find_scheme, locate_dataset
from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown
from keras_vit.models.config import VARIANTS
from keras_vit.text import without_secrets
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.scaling import FAMILIES

Split = Literal["train", "train+validation"]
STRATEGIES = ("auto", "tpu", "multi_worker", "mirrored", "one_device")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
Option = typer.Option


def require_names(settings):
    """Refuses a recipe, an augmentation or a strategy that there is not, before TensorFlow is imported."""
    find_scheme(settings.dataset)
    if settings.augmentation is not None:
        find_augmentation(settings.augmentation)
    recipes = (*FAMILIES, *RECIPES)
    if settings.recipe is not None and settings.recipe.casefold() not in map(str.casefold, recipes):
        raise UnknownNameError(describe_unknown("recipe", settings.recipe, recipes))
    if settings.strategy not in STRATEGIES:
        raise UnknownNameError(f"There is no strategy {settings.strategy!r}. Expected: {', '.join(STRATEGIES)}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for; None leaves the choice to `choices`, the recipe or the model.

    Type, default and help of an option stand beside its field (`--learning-rate` beside learning_rate); a field without
    help is not an option. `plan.recipe_for` makes a recipe of them.

    Raises:
        ConfigError: if a number, the split or the precision is invalid, or two settings contradict each other.
        UnknownNameError, DataError: if there is no recipe, strategy, augmentation or kind of dataset of that name.

    >>> Settings(dataset="folder:photos", model="ViT-B/16", epochs=10).split
    'train'
    """

    dataset: Annotated[str, Option("--data", help=describe_schemes())]
    model: Annotated[
        str,
        Option(
            help="A variant of `keras-vit list`; to fine-tune, also a name with a tag, a checkpoint or the folder of a "
            "run."
        ),
    ]
    pretrain: bool = False
    recipe: Annotated[
        str | None,
        Option(help="The recipe to train by, such as finetune-pets or bit-hyperrule; by default the dataset's own."),
    ] = None
    split: Annotated[Split, Option(help="The images to train on. With train+validation, no images are held out.")] = (
        "train"
    )
    examples: Annotated[
        int | None,
        Option(min=1, help="How many of these images to train on, chosen at random; fewer are among more of one seed."),
    ] = None
    test: Annotated[
        bool,
        Option(
            "--test",
            help="Evaluate on the test split, once, at the end: the weights of the best epoch, or the last ones where "
            "no images are held out.",
        ),
    ] = False
    epochs: Annotated[
        float | None, Option(help="Passes over the training images, in place of the recipe's number.")
    ] = None
    steps: Annotated[int | None, Option(help="Updates of the weights, in place of the recipe's number.")] = None
    patience: Annotated[
        int | None, Option(help="Epochs without a better one on what is held out, after which the run ends early.")
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            min=1,
            help="Images per update, over all devices together. Steps and learning rate follow, so that the number of "
            "images seen stays. By default the recipe's, or less where the dataset is small.",
        ),
    ] = None
    learning_rate: Annotated[
        float | None, Option(help="The peak learning rate, used as it is given; by default the recipe's.")
    ] = None
    image_size: Annotated[
        int | None,
        Option(
            help="Height and width of the model's input in pixels; by default the recipe's on the paper's datasets "
            "(384, for example), otherwise the model's."
        ),
    ] = None
    augmentation: Annotated[
        str | None,
        Option(help="none, inception, bit, light1, medium2, strong1 and the like; by default the dataset's own."),
    ] = None
    microbatches: Annotated[
        int | None,
        Option(
            min=1,
            help="How many parts each device's batch is computed in, one after the other, to save memory; by default "
            "as many as make parts of 32 images of 224 x 224 pixels.",
        ),
    ] = None
    grid_search: Annotated[
        bool,
        Option("--grid-search", help="First train once at each learning rate of the recipe, and take the best one."),
    ] = False
    strategy: Annotated[str, Option(help=f"{', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")] = "auto"
    precision: Annotated[
        str, Option(help="float32; or mixed_bfloat16 or mixed_float16, on devices that compute in these.")
    ] = "float32"
    seed: Annotated[int, Option(help="The number that weights, order, augmentation and dropout are drawn from.")] = 0

    def __post_init__(self):
        counts = ("steps", "patience", "batch_size", "image_size", "microbatches")
        require_counts(**{name: getattr(self, name) for name in counts})
        require_positive(epochs=self.epochs, learning_rate=self.learning_rate)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be from 0 to 2 ** 32 - 1. Received: seed={self.seed}.")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {self.precision!r}.")
        if self.split not in get_args(Split):
            raise ConfigError(f"split must be {' or '.join(get_args(Split))}. Received: {self.split!r}.")
        if self.patience is not None and self.split != "train":
            raise ConfigError(f"With split={self.split!r} no images are held out that patience could judge by.")
        require_names(self)

    def as_recorded(self) -> dict[str, Any]:
        """The settings as a run's files keep them: paths absolute, and an address without what may be secret in it."""
        is_file = self.model.partition(":")[0] not in VARIANTS and os.path.exists(self.model)
        model = os.path.abspath(self.model) if is_file else without_secrets(self.model)
        return {**dataclasses.asdict(self), "model": model, "dataset": locate_dataset(self.dataset)}


def parameters_of_settings(defaults: dict[str, Any]):
    """The fields of `Settings` that are options, as parameters of a function, with other defaults where given."""
    hints = get_type_hints(Settings, include_extras=True)
    for field in dataclasses.fields(Settings):
        if get_origin(hints[field.name]) is Annotated:
            default = defaults.get(field.name, field.default)
            default = inspect.Parameter.empty if default is dataclasses.MISSING else default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
            )


def with_options_of(function: Callable, **defaults) -> Callable[[Callable], Callable]:
    """A decorator for a command that hands its arguments on: its options are those of `function` and `Settings`.

    Typer reads the options of a command off its signature; required ones come first.
    """
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]

    def decorate(command):
        options = [*parameters_of_settings(defaults), *own]
        command.__signature__ = inspect.Signature(sorted(options, key=lambda p: p.default is not p.empty))
        return command

    return decorate

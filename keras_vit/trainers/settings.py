"""What a training can be told: each field of `Settings` is an option of `finetune` and `pretrain`. Imports no Keras."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from keras_vit.commands.completion import complete_augmentation, complete_dataset, complete_place, complete_recipe
from keras_vit.data.augment.masked_patches import PatchTarget
from keras_vit.data.augment.rows import find_augmentation
from keras_vit.data.datasets.schemes import describe_schemes, find_scheme, locate_dataset
from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown
from keras_vit.files import sha256
from keras_vit.models.config import VARIANTS, PositionEmbeddingKind, PositionEmbeddingPlace
from keras_vit.text import without_secrets
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.scaling import FAMILIES

Objective = Literal["labels", "masked-patches"]
Split = Literal["train", "train+validation"]
MASKED_PATCHES = ("objective", "patch_target", "corruption_rate")  # options of `pretrain` alone
STRATEGIES = ("auto", "tpu", "multi_worker", "mirrored", "one_device")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
BACKBONE = "backbone"  # of --freeze: all but the head
Option = typer.Option
# Options under headings of their own; those under none are the usual ones, which help shows first.
Data = partial(Option, rich_help_panel="Data")
Weights = partial(Option, rich_help_panel="Weights")
Schedule = partial(Option, rich_help_panel="Schedule")
Machine = partial(Option, rich_help_panel="Memory and machines")
Stopping = partial(Option, rich_help_panel="Stopping and resuming")
Masked = partial(Option, rich_help_panel="Masked patches")


def require_names(settings):
    """Refuses a recipe, an augmentation or a strategy that there is not, before TensorFlow is imported."""
    find_scheme(settings.dataset)
    if settings.augmentation is not None:
        find_augmentation(settings.augmentation)
    recipes = (*FAMILIES, *RECIPES)
    if settings.recipe is not None and settings.recipe.casefold() not in map(str.casefold, recipes):
        raise UnknownNameError(describe_unknown("recipe", settings.recipe, recipes, "keras-vit recipes shows all."))
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

    dataset: Annotated[str, Option("--data", help=describe_schemes(), autocompletion=complete_dataset)]
    model: Annotated[
        str,
        Option(
            help="A variant of `keras-vit list`; to fine-tune, also a name with a tag, a checkpoint or the folder of a "
            "run. Also as an argument, without `--model`.",
            autocompletion=complete_place,
        ),
    ]
    pretrain: bool = False
    recipe: Annotated[
        str | None,
        Schedule(
            help="The recipe to train by, such as finetune-pets or bit-hyperrule; by default the dataset's own.",
            autocompletion=complete_recipe,
        ),
    ] = None
    split: Annotated[Split, Data(help="The images to train on. With train+validation, no images are held out.")] = (
        "train"
    )
    examples: Annotated[
        int | None,
        Data(min=1, help="How many of these images to train on, chosen at random; fewer are among more of one seed."),
    ] = None
    test: Annotated[
        bool,
        Data(
            "--test",
            help="Evaluate on the test split, once, at the end: the weights of the best epoch, or the last ones where "
            "no images are held out.",
        ),
    ] = False
    epochs: Annotated[
        float | None, Option(help="Passes over the training images, in place of the recipe's number.")
    ] = None
    steps: Annotated[int | None, Schedule(help="Updates of the weights, in place of the recipe's number.")] = None
    patience: Annotated[
        int | None, Stopping(help="Epochs without a better one on what is held out, after which the run ends early.")
    ] = None
    batch_size: Annotated[
        int | None,
        Schedule(
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
        Data(
            help="Height and width of the model's input in pixels; by default the recipe's on the paper's datasets "
            "(384, for example), otherwise the model's."
        ),
    ] = None
    augmentation: Annotated[
        str | None,
        Data(
            help="none, inception, bit, light1, medium2, strong1 and the like; by default the dataset's own.",
            autocompletion=complete_augmentation,
        ),
    ] = None
    microbatches: Annotated[
        int | None,
        Machine(
            min=1,
            help="How many parts each device's batch is computed in, one after the other, to save memory; by default "
            "as many as make parts of 32 images of 224 x 224 pixels.",
        ),
    ] = None
    freeze: Annotated[
        str | None,
        Weights(
            help="What does not learn: a number freezes the embeddings and the first so many encoder blocks (of a "
            "ResNet the stem and the first stages); backbone freezes all but the head, a linear probe. Faster, in less "
            "memory, and safer where pictures are few."
        ),
    ] = None
    lora: Annotated[
        int | None,
        Weights(
            min=1,
            help="LoRA of this rank, such as 8: two thin factors beside each kernel of attention and MLP, and the "
            "head, learn in place of all weights (1 or 2 % of them). They are added to the kernels in whatever is "
            "saved. It wants a higher learning rate.",
        ),
    ] = None
    layer_decay: Annotated[
        float | None,
        Weights(
            help="Each layer learns at this times the rate of the one above it, such as 0.75: the lower ones, which "
            "fit other pictures too, change least."
        ),
    ] = None
    stochastic_depth: Annotated[
        float | None,
        Weights(
            help="Share of the images, such as 0.1, for which the last encoder block is skipped in training; less in "
            "those before it. For long trainings, against learning by heart."
        ),
    ] = None
    remat: Annotated[
        bool,
        Machine(
            "--remat",
            help="Compute the blocks' inner values again for the gradient in place of keeping them: larger batches fit "
            "into memory, for about a third more time.",
        ),
    ] = False
    class_weights: Annotated[
        Literal["balanced"] | None,
        Data(help="balanced: images of rare classes count more, so that every class counts alike."),
    ] = None
    grid_search: Annotated[
        bool,
        Schedule("--grid-search", help="First train once at each learning rate of the recipe, and take the best one."),
    ] = False
    search: Annotated[
        list[str] | None,
        Schedule(
            metavar="FIELD=VALUE,...",
            help="First train once with each value of a field of the recipe, such as dropout_rate=0,0.1 or "
            "weight_decay=none,0.1, and take the best; several of these, and --grid-search, are tried in all "
            "combinations.",
        ),
    ] = None
    strategy: Annotated[str, Machine(help=f"{', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")] = "auto"
    precision: Annotated[
        str, Machine(help="float32; or mixed_bfloat16 or mixed_float16, on devices that compute in these.")
    ] = "float32"
    objective: Annotated[
        Objective | None,
        Masked(help="labels, which is the default, or masked-patches: learns without labels, by predicting patches."),
    ] = None
    patch_target: Annotated[
        PatchTarget | None,
        Masked(
            help="With masked-patches, what is predicted of a corrupted patch: mean-colour, which is the default, "
            "colours-4x4 or pixels."
        ),
    ] = None
    corruption_rate: Annotated[
        float | None,
        Masked(help="With masked-patches, the share of the patches that is corrupted; by default 0.5. BERT's is 0.15."),
    ] = None
    seed: Annotated[int, Schedule(help="The number that weights, order, augmentation and dropout are drawn from.")] = 0
    without: Annotated[
        str | None,
        Data(help="A list of near-duplicates of these images, as `keras-vit deduplicate` writes it, to leave out."),
    ] = None
    position_embedding: Annotated[
        PositionEmbeddingKind | None,
        Weights(
            help="Of a model to pretrain: 1d, the paper's, what Appendix D.4 tries beside it, or big_vision's sincos2d."
        ),
    ] = None
    position_embedding_at: Annotated[
        PositionEmbeddingPlace | None,
        Weights(help="Where 1d and 2d position embeddings are added, of a model to pretrain; by default at the stem."),
    ] = None

    def __post_init__(self):
        counts = ("steps", "patience", "batch_size", "image_size", "microbatches", "lora")
        require_counts(**{name: getattr(self, name) for name in counts})
        require_positive(epochs=self.epochs, learning_rate=self.learning_rate)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        self.require_objective()
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be from 0 to 2 ** 32 - 1. Received: seed={self.seed}.")
        self.check_kit()
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {self.precision!r}.")
        if self.split not in get_args(Split):
            raise ConfigError(f"split must be {' or '.join(get_args(Split))}. Received: {self.split!r}.")
        if self.patience is not None and self.split != "train":
            raise ConfigError(f"With split={self.split!r} no images are held out that patience could judge by.")
        require_names(self)

    def require_objective(self):
        """Refuses settings of masked patches where these are not trained, and the reverse."""
        if self.objective not in (None, *get_args(Objective)):
            raise ConfigError(f"objective must be {' or '.join(get_args(Objective))}. Received: {self.objective!r}.")
        masked = self.objective == "masked-patches"
        told = {"patch_target": self.patch_target, "corruption_rate": self.corruption_rate}
        names = [name for name, value in told.items() if value is not None]
        if str(self.recipe).casefold().startswith("pretrain-masked-patches"):
            names.append(f"recipe={self.recipe}")
        if names and not masked:
            raise ConfigError(f"{names[0]} is for masked patches: give objective=masked-patches too.")
        kept = [name for name in ("freeze", "lora", "class_weights") if masked and getattr(self, name) is not None]
        if kept:
            raise ConfigError(
                f"{kept[0]} is for a model with classes, and masked patches pre-train all of one that has none. Leave "
                "it out here, and give it to keras-vit finetune --model RUN afterwards."
            )
        if masked and not self.pretrain:
            raise ConfigError("Masked patches pre-train a model from random weights: use keras-vit pretrain.")

    def check_kit(self):
        """Refuses settings of the fine-tuning kit that are out of range, or contradict each other."""
        if self.freeze is not None and self.freeze != BACKBONE and not self.freeze.isdecimal():
            raise ConfigError(
                f"freeze must be {BACKBONE}, or how many of the first blocks stay. Received: {self.freeze!r}."
            )
        if self.freeze == BACKBONE and (self.lora or self.layer_decay or self.stochastic_depth or self.remat):
            raise ConfigError(
                f"freeze={BACKBONE} trains the head alone, without lora, layer_decay, stochastic_depth or remat. Leave "
                "these out, or freeze a number of blocks."
            )
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay must be in (0, 1], such as 0.75. Received: {self.layer_decay}.")
        if self.stochastic_depth is not None and not 0 <= self.stochastic_depth < 1:
            raise ConfigError(f"stochastic_depth must be in [0, 1), such as 0.1. Received: {self.stochastic_depth}.")
        if self.class_weights not in (None, "balanced"):
            raise ConfigError(f"class_weights must be balanced, or left out. Received: {self.class_weights!r}.")

    @property
    def searches(self) -> bool:
        """Whether fields of the recipe are searched for before the training."""
        return self.grid_search or bool(self.search)

    def as_recorded(self) -> dict[str, Any]:
        """The settings as a run's files keep them: paths absolute, an address without what may be secret in it, and a
        list of duplicates with its digest."""
        is_file = self.model.partition(":")[0] not in VARIANTS and os.path.exists(self.model)
        return {
            **dataclasses.asdict(self),
            "model": os.path.abspath(self.model) if is_file else without_secrets(self.model),
            "dataset": locate_dataset(self.dataset),
            "without": self.without and describe_file(self.without),
        }


def describe_file(path):
    """A file's path, and the digest of what it holds if it is there: a run does not go on with another list."""
    try:
        return f"{path} (SHA-256 {sha256(path)})"
    except OSError:
        return path


def parameters_of_settings(defaults: dict[str, Any], without: Sequence[str] = ()):
    """The fields of `Settings` that are options, as parameters of a function, with other defaults where given."""
    hints = get_type_hints(Settings, include_extras=True)
    for field in dataclasses.fields(Settings):
        if get_origin(hints[field.name]) is Annotated and field.name not in without:
            default = defaults.get(field.name, field.default)
            default = inspect.Parameter.empty if default is dataclasses.MISSING else default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
            )


def with_options_of(
    function: Callable, only: Sequence[str] | None = None, without: Sequence[str] = (), **defaults
) -> Callable[[Callable], Callable]:
    """A decorator for a command that hands its arguments on: its options are its own, `function`'s and `Settings`'.

    Typer reads the options of a command off its signature; required ones come first. `only` names the fields of
    `Settings` that are options of the command, None for all; `without` those that are not.
    """

    def decorate(command):
        fields = [p for p in parameters_of_settings(defaults, without) if only is None or p.name in only]
        own = [p for f in (function, command) for p in inspect.signature(f).parameters.values()]
        options = [*fields, *(p for p in own if p.kind is p.KEYWORD_ONLY)]
        command.__signature__ = inspect.Signature(sorted(options, key=lambda p: p.default is not p.empty))
        return command

    return decorate

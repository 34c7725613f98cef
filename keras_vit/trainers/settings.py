"""What a training can be told: each field of `Settings` is an argument of `keras_vit.finetune` and `pretrain`, and an
option of the commands. Imports no Keras."""

import dataclasses
import inspect
import numbers
import os
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from keras_vit.data.augment.masked_patches import PatchTarget
from keras_vit.data.augment.rows import find_augmentation
from keras_vit.data.datasets.schemes import describe_schemes, find_scheme, locate_dataset
from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown
from keras_vit.files import sha256
from keras_vit.models.config import PositionEmbeddingKind, PositionEmbeddingPlace
from keras_vit.models.variants import VARIANTS
from keras_vit.text import without_secrets
from keras_vit.training.errors import COUNT, POSITIVE, Range, require_within
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.recipes import SEARCHABLE, RecipeChanges
from keras_vit.training.scaling import FAMILIES

Objective = Literal["labels", "masked-patches"]
Split = Literal["train", "train+validation"]
Strategy = Literal["auto", "tpu", "multi_worker", "mirrored", "one_device"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
MASKED_PATCHES = ("objective", "patch_target", "corruption_rate")  # arguments of `pretrain` alone
LAYER_DECAY = Range(2.0**-126, 1, "in (0, 1], such as 0.75")
STOCHASTIC_DEPTH = Range(0, 1 - 2.0**-24, "in [0, 1), such as 0.1")
SEED = Range(0, 2**32 - 1, "from 0 to 2 ** 32 - 1", whole=True)
BACKBONE = "backbone"  # of `freeze`: all but the head
KINDS = {float: numbers.Real, int: numbers.Integral, list: (list, tuple)}  # what a value of a type may be


def require_fields(settings):
    """Refuses a value that is not of its field's type, its words or its range, as the row of the field says."""
    for name, row in get_type_hints(type(settings), include_extras=True).items():
        hint, *about = get_args(row) if get_origin(row) is Annotated else [row]
        value, words, kinds = getattr(settings, name), [], []
        for kind in get_args(hint) if get_origin(hint) in (types.UnionType, Union) else [hint]:
            if get_origin(kind) is Literal:
                words += get_args(kind)
            else:
                kinds.append(get_origin(kind) or kind)
        if value in words or (value is None and types.NoneType in kinds):
            continue
        if words:
            raise ConfigError(f"{name} must be {' or '.join(words)}. Received: {value!r}.")
        if not isinstance(value, tuple(KINDS.get(kind, kind) for kind in kinds)):
            expected = " or ".join(kind.__name__ for kind in kinds if kind is not types.NoneType)
            raise ConfigError(f"{name} must be of type {expected}. Received: {value!r}.")
        for allowed in about[1:]:
            require_within(allowed, **{name: value})


def parse_value(name, text):
    """The value of a recipe's field that a text means: a number, a word, or for a field that may be None "none"."""
    kind = int if name == "steps" else get_type_hints(RecipeChanges)[name]
    kinds = get_args(kind) or (kind,)
    if types.NoneType in kinds and text.casefold() == "none":
        return None
    if str in kinds:
        return text
    try:
        return float(text) if float in kinds else int(text)
    except ValueError as error:
        expected = "a number" if float in kinds else "a whole number"
        raise ConfigError(f"{name} must be {expected}. Received: {text!r} among the values to search.") from error


def parse_search(texts: list[str]) -> dict[str, list]:
    """{field: values} of texts such as "dropout_rate=0,0.1".

    Raises:
        ConfigError: for a text of another form, a field named twice, or a value of another kind.
        UnknownNameError: for a field that a recipe does not have.

    >>> parse_search(["weight_decay=none,0.1", "dropout_rate=0,0.1"])
    {'weight_decay': [None, 0.1], 'dropout_rate': [0.0, 0.1]}
    """
    grid = {}
    for text in texts:
        name, equals, values = text.replace(" ", "").partition("=")
        name = name.replace("-", "_")
        if not equals or not all(values.split(",")):
            raise ConfigError(f"Expected a field and its values, such as dropout_rate=0,0.1. Received: {text!r}.")
        if name not in SEARCHABLE:
            raise UnknownNameError(describe_unknown("field of a recipe to search", name, SEARCHABLE))
        if name in grid:
            raise ConfigError(f"Give all values of {name} in one text, with commas between them.")
        grid[name] = [parse_value(name, value) for value in values.split(",")]
    return grid


def describe_file(path):
    """A file's path, and the digest of what it holds if it is there: a run does not go on with another list."""
    try:
        return f"{path} (SHA-256 {sha256(path)})"
    except OSError:
        return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for; None leaves the choice to `choices`, the recipe or the model.

    Type, default, meaning and range stand beside each field: one check of them serves Python and the command line. A
    field without a meaning is no argument. `plan.recipe_for` makes a recipe of them.

    Raises:
        ConfigError: if a value is not one that its field may have, or two settings contradict each other.
        UnknownNameError, DataError: if there is no recipe, augmentation or kind of dataset of that name.

    >>> Settings(dataset="folder:photos", model="ViT-B/16", epochs=10).split
    'train'
    """

    dataset: Annotated[str, describe_schemes()]
    model: Annotated[
        str,
        ("A variant of `keras-vit list`; to fine-tune, also a name with a tag, a checkpoint or the folder of a run."),
    ]
    pretrain: bool = False
    recipe: Annotated[
        str | None,
        "The recipe to train by, such as finetune-pets or bit-hyperrule; by default the dataset's own.",
    ] = None
    split: Annotated[Split, "The images to train on. With train+validation, no images are held out."] = "train"
    examples: Annotated[
        int | None, "How many of these images to train on, chosen at random; fewer are among more of one seed.", COUNT
    ] = None
    test: Annotated[
        bool,
        (
            "Evaluate on the test split, once, at the end: the weights of the best epoch, or the last ones where "
            "no images are held out."
        ),
    ] = False
    epochs: Annotated[float | None, "Passes over the training images, in place of the recipe's number.", POSITIVE] = (
        None
    )
    steps: Annotated[int | None, "Updates of the weights, in place of the recipe's number.", COUNT] = None
    patience: Annotated[
        int | None, "Epochs without a better one on what is held out, after which the run ends early.", COUNT
    ] = None
    batch_size: Annotated[
        int | None,
        (
            "Images per update, over all devices together. Steps and learning rate follow, so that the number of "
            "images seen stays. By default the recipe's, or less where the dataset is small."
        ),
        COUNT,
    ] = None
    learning_rate: Annotated[
        float | None, "The peak learning rate, used as it is given; by default the recipe's.", POSITIVE
    ] = None
    image_size: Annotated[
        int | None,
        (
            "Height and width of the model's input in pixels; by default the recipe's on the paper's datasets "
            "(384, for example), otherwise the model's."
        ),
        COUNT,
    ] = None
    augmentation: Annotated[
        str | None,
        "none, inception, bit, light1, medium2, strong1 and the like; by default the dataset's own.",
    ] = None
    microbatches: Annotated[
        int | None,
        (
            "How many parts each device's batch is computed in, one after the other, to save memory; by default "
            "as many as make parts of 32 images of 224 x 224 pixels."
        ),
        COUNT,
    ] = None
    freeze: Annotated[
        str | None,
        (
            "What does not learn: a number freezes the embeddings and the first so many encoder blocks (of a "
            "ResNet the stem and the first stages); backbone freezes all but the head, a linear probe. Faster, in less "
            "memory, and safer where pictures are few."
        ),
    ] = None
    lora: Annotated[
        int | None,
        (
            "LoRA of this rank, such as 8: two thin factors beside each kernel of attention and MLP, and the "
            "head, learn in place of all weights (1 or 2 % of them). They are added to the kernels in whatever is "
            "saved. It wants a higher learning rate."
        ),
        COUNT,
    ] = None
    layer_decay: Annotated[
        float | None,
        (
            "Each layer learns at this times the rate of the one above it, such as 0.75: the lower ones, which "
            "fit other pictures too, change least."
        ),
        LAYER_DECAY,
    ] = None
    stochastic_depth: Annotated[
        float | None,
        (
            "Share of the images, such as 0.1, for which the last encoder block is skipped in training; less in "
            "those before it. For long trainings, against learning by heart."
        ),
        STOCHASTIC_DEPTH,
    ] = None
    remat: Annotated[
        bool,
        (
            "Compute the blocks' inner values again for the gradient in place of keeping them: larger batches fit "
            "into memory, for about a third more time."
        ),
    ] = False
    class_weights: Annotated[
        Literal["balanced"] | None,
        "balanced: images of rare classes count more, so that every class counts alike.",
    ] = None
    grid_search: Annotated[
        bool,
        "First train once at each learning rate of the recipe, and take the best one.",
    ] = False
    search: Annotated[
        list[str] | None,
        (
            "First train once with each value of a field of the recipe, such as dropout_rate=0,0.1 or "
            "weight_decay=none,0.1, and take the best; several of these, and the grid search, are tried in all "
            "combinations."
        ),
    ] = None
    strategy: Annotated[Strategy, "The devices to train on: auto takes all accelerators of this machine."] = "auto"
    precision: Annotated[Precision, "What is computed in; the mixed ones on devices that compute in these."] = "float32"
    objective: Annotated[
        Objective | None,
        "labels, which is the default, or masked-patches: learns without labels, by predicting patches.",
    ] = None
    patch_target: Annotated[
        PatchTarget | None,
        (
            "With masked-patches, what is predicted of a corrupted patch: mean-colour, which is the default, "
            "colours-4x4 or pixels."
        ),
    ] = None
    corruption_rate: Annotated[
        float | None,
        "With masked-patches, the share of the patches that is corrupted; by default 0.5. BERT's is 0.15.",
    ] = None
    seed: Annotated[int, "The number that weights, order, augmentation and dropout are drawn from.", SEED] = 0
    without: Annotated[
        str | None,
        "A list of near-duplicates of these images, as `keras-vit deduplicate` writes it, to leave out.",
    ] = None
    position_embedding: Annotated[
        PositionEmbeddingKind | None,
        "Of a model to pretrain: 1d, the paper's, what Appendix D.4 tries beside it, or big_vision's sincos2d.",
    ] = None
    position_embedding_at: Annotated[
        PositionEmbeddingPlace | None,
        "Where 1d and 2d position embeddings are added, of a model to pretrain; by default at the stem.",
    ] = None

    def __post_init__(self):
        require_fields(self)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        self.require_objective()
        self.require_kit()
        if self.patience is not None and self.split != "train":
            raise ConfigError(f"With split={self.split!r} no images are held out that patience could judge by.")
        self.require_names()
        parse_search(self.search or [])

    def require_names(self):
        """Refuses a dataset, an augmentation or a recipe that there is not, before TensorFlow is imported."""
        find_scheme(self.dataset)
        if self.augmentation is not None:
            find_augmentation(self.augmentation)
        recipes = (*FAMILIES, *RECIPES)
        if self.recipe is not None and self.recipe.casefold() not in map(str.casefold, recipes):
            raise UnknownNameError(describe_unknown("recipe", self.recipe, recipes, "keras-vit recipes shows all."))

    def require_objective(self):
        """Refuses settings of masked patches where these are not trained, and the reverse."""
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
                "it out here, and give it when the run is fine-tuned."
            )
        if masked and not self.pretrain:
            raise ConfigError(
                "Masked patches pre-train a model from random weights: pretrain it, and fine-tune the run."
            )

    def require_kit(self):
        """Refuses settings of the fine-tuning kit that contradict each other."""
        if self.freeze is not None and self.freeze != BACKBONE and not self.freeze.isdecimal():
            raise ConfigError(
                f"freeze must be {BACKBONE}, or how many of the first blocks stay. Received: {self.freeze!r}."
            )
        if self.freeze == BACKBONE and (self.lora or self.layer_decay or self.stochastic_depth or self.remat):
            raise ConfigError(
                f"freeze={BACKBONE} trains the head alone, without lora, layer_decay, stochastic_depth or remat. Leave "
                "these out, or freeze a number of blocks."
            )

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


def parameters_of_settings(without: Sequence[str] = (), **defaults: Any) -> list[inspect.Parameter]:
    """The fields of `Settings` that have a meaning, as parameters of a function, with other defaults where given."""
    hints = get_type_hints(Settings, include_extras=True)
    found = []
    for field in dataclasses.fields(Settings):
        if get_origin(hints[field.name]) is Annotated and field.name not in without:
            default = defaults.get(field.name, field.default)
            default = inspect.Parameter.empty if default is dataclasses.MISSING else default
            kind = inspect.Parameter.KEYWORD_ONLY
            found.append(inspect.Parameter(field.name, kind, default=default, annotation=hints[field.name]))
    return found


def with_settings(without: Sequence[str] = (), **defaults: Any) -> Callable[[Callable], Callable]:
    """A decorator for a function that hands its keyword arguments on to `Settings`: it has these, with their meanings.

    Where its docstring says SETTINGS, the arguments are listed. `without` names the fields that it does not take.

    >>> inspect.signature(with_settings(epochs=3)(lambda *, out, **settings: out)).parameters["epochs"].default
    3
    """

    def decorate(function):
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = [p for p in parameters_of_settings(without, **defaults) if p.name not in [o.name for o in own]]
        lines = []
        for parameter in taken:
            meaning, *allowed = parameter.annotation.__metadata__
            lines.append(f"        {parameter.name}: {meaning}" + "".join(f" It is {r.text}." for r in allowed))
        shown = [p.replace(annotation=p.annotation.__origin__) for p in taken]
        function.__signature__ = inspect.Signature([*own, *shown])
        function.__doc__ = (function.__doc__ or "").replace("        SETTINGS", "\n".join(lines))
        return function

    return decorate

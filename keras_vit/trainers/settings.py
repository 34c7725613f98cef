"""The settings of a training: each field of `Settings` is an argument of `keras_vit.finetune` and `pretrain`, and an
option of the commands. Imports no Keras."""

import contextlib
import dataclasses
import inspect
import numbers
import os
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from keras_vit.data.augment.augmentations import find_augmentation
from keras_vit.data.augment.masked_patches import PatchTarget
from keras_vit.data.datasets.schemes import describe_schemes, find_scheme, locate_dataset
from keras_vit.errors import (
    COUNT,
    POSITIVE,
    ConfigError,
    Range,
    UnknownNameError,
    describe_unknown,
    require_within,
    without_secrets,
)
from keras_vit.files import sha256
from keras_vit.models.config import PositionEmbeddingKind, PositionEmbeddingPlace
from keras_vit.models.variants import VARIANTS
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.recipes import LAYER_DECAY, SEARCHABLE, SHARE, RecipeChanges
from keras_vit.training.scaling import FAMILIES, unknown_recipe

Objective = Literal["labels", "masked-patches"]
Task = Literal["classification", "segmentation"]
Split = Literal["train", "train+validation"]
AugmentOn = Literal["host", "device"]
Strategy = Literal["auto", "jax", "tpu", "multi_worker", "mirrored", "one_device"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
MASKED_PATCHES = ("objective", "patch_target", "corruption_rate")  # arguments of `pretrain` alone
SEED = Range(0, 2**32 - 1, "from 0 to 2 ** 32 - 1", whole=True)
BACKBONE = "backbone"  # of `freeze`: all but the head
KINDS = {float: numbers.Real, int: numbers.Integral}  # accepted kinds of values


def normalize_fields(settings):
    """Gives values of numpy, a tuple to search and a number of blocks to freeze the types that config.json keeps."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, np.generic):
            value = value.item()
        if field.name == "search" and isinstance(value, tuple):
            value = list(value)
        if field.name == "freeze" and isinstance(value, int):
            value = str(value)
        object.__setattr__(settings, field.name, value)


def require_fields(settings):
    """Refuses a value that does not fit the type, the choices or the range of its field."""
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
    """Reads the value of a recipe's field from text: a number, a word, or "none" if the field may be None."""
    kind = int if name == "steps" else get_type_hints(RecipeChanges)[name]
    kinds = get_args(kind) or (kind,)
    words = [word for each in kinds for word in get_args(each)]
    if text in words:
        return text
    if types.NoneType in kinds and text.casefold() == "none":
        return None
    if str in kinds:
        return text
    expected = " or ".join(words) or ("a number" if float in kinds else "a whole number")
    with contextlib.suppress(ValueError):
        if not words:
            return float(text) if float in kinds else int(text)
    raise ConfigError(f"{name} must be {expected}. Received: {text!r} among the values to search.")


def parse_search(texts: list[str]) -> dict[str, list]:
    """{field: values}, read from texts such as "dropout_rate=0,0.1".

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


def record_model(name):
    """A model's name without secrets, or the absolute path of its file."""
    path = os.path.expanduser(name)
    is_file = name.partition(":")[0] not in VARIANTS and os.path.exists(path)
    return os.path.abspath(path) if is_file else without_secrets(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run; for None, `choices`, the recipe or the model decides.

    Each field has its type, default, meaning and range beside it, so that one check serves Python and the command line.
    A field without a meaning is no argument. `plan.recipe_for` makes a recipe from the settings.

    Raises:
        ConfigError: if a field may not have its value, or two settings contradict each other.
        UnknownNameError, DataError: if no recipe, augmentation or kind of dataset has that name.

    >>> Settings(dataset="folder:photos", model="ViT-B/16", epochs=10).split
    'train'
    """

    dataset: Annotated[str, describe_schemes()]
    model: Annotated[
        str,
        "A variant of `keras-vit list`; to fine-tune, also a name with a tag, a checkpoint or the folder of a run.",
    ]
    pretrain: bool = False
    task: Annotated[
        Task | None,
        "classification, or segmentation: a class for each pixel, learned from masks:FOLDER, with which it is the "
        "default.",
    ] = None
    recipe: Annotated[
        str | None,
        "The recipe to train by, such as finetune-pets or bit-hyperrule; by default the dataset's own.",
    ] = None
    split: Annotated[Split, "The images to train on. With train+validation, no images are held out."] = "train"
    examples: Annotated[
        int | None,
        "How many of these images to train on, chosen at random; with one seed, a larger choice contains a smaller.",
        COUNT,
    ] = None
    test: Annotated[
        bool,
        "Evaluate once on the test split, at the end: the weights of the best epoch, or the last weights if no "
        "images are held out.",
    ] = False
    epochs: Annotated[float | None, "Passes over the training images, in place of the recipe's number.", POSITIVE] = (
        None
    )
    steps: Annotated[int | None, "Updates of the weights, in place of the recipe's number.", COUNT] = None
    patience: Annotated[
        int | None, "End the run early after so many epochs without a better one on the held-out images.", COUNT
    ] = None
    batch_size: Annotated[
        int | None,
        "Images per update, on all devices together. Steps and learning rate change with it, so that the model "
        "sees as many images. By default the recipe's, or less if the dataset is small.",
        COUNT,
    ] = None
    learning_rate: Annotated[
        float | None, "The peak learning rate, not scaled by the batch size; by default the recipe's.", POSITIVE
    ] = None
    image_size: Annotated[
        int | None,
        "Height and width of the model's input in pixels; by default the recipe's on the paper's datasets "
        "(384, for example), otherwise the model's.",
        COUNT,
    ] = None
    augmentation: Annotated[
        str | None,
        "none, inception, bit, light1, medium2, strong1 and the like; by default the dataset's own.",
    ] = None
    augment_on: Annotated[
        AugmentOn,
        "host, or device: RandAugment, mixup and cutmix on the GPU, if the processors are too slow to do these as "
        "well as to decode images.",
    ] = "host"
    microbatches: Annotated[
        int | None,
        "Compute each device's batch in so many parts, one after the other, to save memory; by default a part "
        "has at most the pixels of 32 images of 224 x 224.",
        COUNT,
    ] = None
    teacher: Annotated[
        str | None,
        "Distillation: the model whose answers are learned in place of labels, of the same classes; a name, a "
        "checkpoint or the folder of a run. Give many epochs.",
    ] = None
    freeze: Annotated[
        str | None,
        "Weights to keep as they are: a number freezes the embeddings and that many of the first encoder blocks "
        "(in a ResNet, the stem and first stages); backbone freezes all but the head (a linear probe). This is "
        "faster, takes less memory, and is safer with few images.",
    ] = None
    lora: Annotated[
        int | None,
        "LoRA of this rank, such as 8: train only the head and a low-rank update of each kernel of attention "
        "and MLP, 1 or 2 % of the weights. Saved files have the updates added to the kernels. LoRA needs a higher "
        "learning rate.",
        COUNT,
    ] = None
    layer_decay: Annotated[
        float | None,
        "Layer-wise decay of the learning rate, such as 0.75: each layer has this times the rate of the layer "
        "above it, so that the lowest, most general layers change least.",
        LAYER_DECAY,
    ] = None
    stochastic_depth: Annotated[
        float | None,
        "The share of images, such as 0.1, for which training skips the last encoder block; it falls to 0 at the "
        "first block. Long trainings overfit less with it.",
        SHARE,
    ] = None
    remat: Annotated[
        bool,
        "Recompute the activations inside the blocks for the gradient, instead of keeping them: larger batches "
        "fit into memory, and training takes about a third longer.",
    ] = False
    class_weights: Annotated[
        Literal["balanced"] | None,
        "balanced: images of rare classes count more, so that all classes count the same.",
    ] = None
    grid_search: Annotated[
        bool,
        "First train once at each learning rate of the recipe, and take the best one.",
    ] = False
    search: Annotated[
        list[str] | None,
        "First train once with each value of a field of the recipe, such as dropout_rate=0,0.1 or "
        "weight_decay=none,0.1, and take the best; several of these, and the grid search, are tried in all "
        "combinations.",
    ] = None
    strategy: Annotated[Strategy, "The devices to train on: auto takes all accelerators that it finds."] = "auto"
    precision: Annotated[Precision, "What to compute in; a device must support the mixed types."] = "float32"
    objective: Annotated[
        Objective | None,
        "labels (the default), or masked-patches: learn without labels, by predicting corrupted patches.",
    ] = None
    patch_target: Annotated[
        PatchTarget | None,
        "With masked-patches, what to predict for each corrupted patch: mean-colour (the default), colours-4x4 or "
        "pixels.",
    ] = None
    corruption_rate: Annotated[
        float | None,
        "With masked-patches, the share of patches to corrupt; 0.5 by default. BERT's is 0.15.",
    ] = None
    seed: Annotated[int, "The seed of initial weights, order of images, augmentation and dropout.", SEED] = 0
    without: Annotated[
        str | None,
        "A list of near-duplicates, written by `keras-vit deduplicate`, to leave out of the training images.",
    ] = None
    position_embedding: Annotated[
        PositionEmbeddingKind | None,
        "For a model to pretrain: 1d (the paper's), another of Appendix D.4, big_vision's sincos2d or DINOv3's rope.",
    ] = None
    position_embedding_at: Annotated[
        PositionEmbeddingPlace | None,
        "Where a model to pretrain adds its 1d or 2d position embeddings; by default at the stem.",
    ] = None

    def __post_init__(self):
        normalize_fields(self)
        require_fields(self)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        self.require_objective()
        self.require_augment_on()
        self.require_kit()
        if self.patience is not None and self.split != "train":
            raise ConfigError(f"patience needs held-out images; split={self.split!r} has none. Leave one of them out.")
        self.require_names()
        self.require_task()
        parse_search(self.search or [])

    def require_names(self):
        """Refuses an unknown dataset, augmentation or recipe before TensorFlow is imported."""
        find_scheme(self.dataset)
        if self.augmentation is not None:
            find_augmentation(self.augmentation)
        if self.recipe is not None and self.recipe.casefold() not in map(str.casefold, (*FAMILIES, *RECIPES)):
            raise unknown_recipe(self.recipe)

    def require_task(self):
        """Refuses masks for another task than segmentation, and segmentation without masks."""
        asked = self.task or ("segmentation" if self.segments else "classification")
        if (asked == "segmentation") != self.segments:
            raise ConfigError(
                f"task=segmentation learns from masks:FOLDER, a folder with images/ and masks/. Received: task={asked} "
                f"and {self.dataset}. Give such a folder, or leave out the task."
            )
        if self.segments and (self.objective == "masked-patches" or self.class_weights or self.teacher):
            raise ConfigError(
                "Masks have a class for each pixel. Leave out objective=masked-patches, class_weights and teacher."
            )

    def require_objective(self):
        """Refuses settings of masked patches without that objective, and settings that it cannot use."""
        masked = self.objective == "masked-patches"
        told = {"patch_target": self.patch_target, "corruption_rate": self.corruption_rate}
        names = [name for name, value in told.items() if value is not None]
        if str(self.recipe).casefold().startswith("pretrain-masked-patches"):
            names.append(f"recipe={self.recipe}")
        if names and not masked:
            raise ConfigError(f"{names[0]} is for masked patches: give objective=masked-patches too.")
        kept = [
            name
            for name in ("freeze", "lora", "class_weights", "teacher")
            if masked and getattr(self, name) is not None
        ]
        if kept:
            raise ConfigError(
                f"{kept[0]} needs a model with classes, but masked patches pre-train a model without any. Leave it out "
                "here, and give it when you fine-tune the run."
            )
        if masked and not self.pretrain:
            raise ConfigError(
                "Masked patches pre-train a model from random weights. Use pretrain, then fine-tune the run."
            )

    def require_augment_on(self):
        """Refuses to augment on the device what is needed on the host."""
        needs = "objective=masked-patches" if self.objective == "masked-patches" else self.teacher and "The teacher"
        if needs and self.augment_on == "device":
            raise ConfigError(f"{needs} needs the augmented images on the host. Leave out augment_on=device.")

    def require_kit(self):
        """Refuses settings of the fine-tuning kit that contradict each other."""
        if self.freeze is not None and self.freeze != BACKBONE and not self.freeze.isdecimal():
            raise ConfigError(
                f"freeze must be {BACKBONE}, or a number of first blocks to freeze. Received: {self.freeze!r}."
            )
        if self.freeze == BACKBONE and (self.lora or self.layer_decay or self.stochastic_depth or self.remat):
            raise ConfigError(
                f"freeze={BACKBONE} trains the head alone, without lora, layer_decay, stochastic_depth or remat. Leave "
                "these out, or freeze a number of blocks."
            )

    @property
    def variant(self) -> str:
        """The name of the model without its tag."""
        return self.model.partition(":")[0]

    @property
    def segments(self) -> bool:
        """Whether each pixel gets a class."""
        return self.dataset.startswith("masks:")

    @property
    def searches(self) -> bool:
        """Whether values for fields of the recipe are searched before the training."""
        return self.grid_search or bool(self.search)

    def as_recorded(self) -> dict[str, Any]:
        """The settings as stored in a run's files: absolute paths, and addresses without secrets."""
        return {
            **dataclasses.asdict(self),
            "model": record_model(self.model),
            "teacher": self.teacher and record_model(self.teacher),
            "dataset": locate_dataset(self.dataset),
            "without": self.without and os.path.abspath(self.without),
        }

    def digests(self) -> dict[str, str]:
        """{setting: SHA-256} of the files that a resumed run must find as they were."""
        paths = {"teacher": self.teacher, "without": self.without}
        return {name: sha256(path) for name, path in paths.items() if path is not None and os.path.isfile(path)}


def parameters_of_settings(without: Sequence[str] = (), **defaults: Any) -> list[inspect.Parameter]:
    """The fields of `Settings` that have a meaning, as parameters of a function; `defaults` replace their own."""
    hints = get_type_hints(Settings, include_extras=True)
    found = []
    for field in dataclasses.fields(Settings):
        if get_origin(hints[field.name]) is Annotated and field.name not in without:
            default = defaults.get(field.name, field.default)
            default = inspect.Parameter.empty if default is dataclasses.MISSING else default
            kind = inspect.Parameter.KEYWORD_ONLY
            found.append(inspect.Parameter(field.name, kind, default=default, annotation=hints[field.name]))
    return found


# The arguments that `finetune` and `pretrain` name themselves.
OWN_ARGUMENTS = """\
        dataset: a name of `keras_vit.data.load`, such as "folder:photos"; a run that is resumed knows its own.
        out: folder of the run, which is made.
        resume: continue the run in that folder, bit for bit; epochs or steps prolong it.
        every: steps between checkpoints.
        tell: is called with each sentence on what happens; with None only the devices are printed."""


def with_settings(without: Sequence[str] = (), **defaults: Any) -> Callable[[Callable], Callable]:
    """A decorator that gives a function the fields of `Settings` as keyword arguments, with their meanings.

    ARGUMENTS in its docstring becomes a list of OWN_ARGUMENTS and these. `without` names fields that it does not take.

    >>> inspect.signature(with_settings(epochs=3)(lambda *, out, **settings: out)).parameters["epochs"].default
    3
    """

    def decorate(function):
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = [p for p in parameters_of_settings(without, **defaults) if p.name not in [o.name for o in own]]
        lines = [OWN_ARGUMENTS]
        for parameter in taken:
            meaning, *allowed = parameter.annotation.__metadata__
            lines.append(f"        {parameter.name}: {meaning}" + "".join(f" It is {r.text}." for r in allowed))
        shown = [p.replace(annotation=p.annotation.__origin__) for p in taken]
        function.__signature__ = inspect.Signature([*own, *shown])
        function.__doc__ = (function.__doc__ or "").replace("        ARGUMENTS", "\n".join(lines))
        return function

    return decorate

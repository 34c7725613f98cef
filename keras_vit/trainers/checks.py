"""What makes a training impossible, found before TensorFlow is imported and anything is written. Imports no Keras."""

import types
from pathlib import Path
from typing import get_args, get_type_hints

from keras_vit.data.datasets.schemes import require_dataset, would_read
from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown
from keras_vit.models.config import variant
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.trainers.settings import Settings
from keras_vit.training.recipes import SEARCHABLE, RecipeChanges
from keras_vit.training.runs.folder import RunFolder, model_of
from keras_vit.zoo.names import registry


def require_outside_dataset(out, dataset):
    """Refuses a run's folder that would be a class, with the run's own images, when the data are read again."""
    if would_read(dataset, out):
        raise ConfigError(
            f"The run's folder {out} lies among the class folders of {dataset}, and would be read as one. "
            "Choose a folder outside of it."
        )


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
        raise ConfigError(f"{name} must be {expected}. Received: {text!r} in --search {name}=...") from error


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
            raise ConfigError(f"Give all values of {name} in one --search, with commas between them.")
        grid[name] = [parse_value(name, value) for value in values.split(",")]
    return grid


def require_inputs(settings: Settings) -> None:
    """Refuses a dataset, a field to search or a model that there is not.

    Raises:
        KerasVitError: with the sentence.
    """
    require_dataset(settings.dataset)
    parse_search(settings.search or [])
    model = model_of(settings.model)
    if settings.pretrain:
        variant(str(model).partition(":")[0])
    else:
        registry.resolve(choose_checkpoint(model))


def require_possible(settings: Settings, out: Path, resume: bool) -> None:
    """Refuses a dataset, a folder or a model with which no run can begin, or with `resume` go on.

    Raises:
        KerasVitError: for a folder of images or a model that there is not, or a run's folder that cannot be used.
    """
    require_outside_dataset(out, settings.dataset)
    RunFolder(out).check(resume)
    require_inputs(settings)

"""The options of the commands that train: for each field of `Settings` its heading in help, name and completion."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from typer import Option

from keras_vit.commands.parsing import complete_augmentation, complete_dataset, complete_place, complete_recipe
from keras_vit.trainers.settings import parameters_of_settings

# Options with a heading in help; the usual ones have none, and help shows them first.
SCHEDULE, STOPPING = "Schedule", "Stopping and resuming"
Schedule = partial(Option, rich_help_panel=SCHEDULE)
Stopping = partial(Option, rich_help_panel=STOPPING)
HEADINGS = {
    "Data": ("task", "split", "examples", "test", "image_size", "augmentation", "class_weights", "teacher", "without"),
    "Weights": ("freeze", "lora", "layer_decay", "stochastic_depth", "position_embedding", "position_embedding_at"),
    SCHEDULE: ("recipe", "steps", "batch_size", "grid_search", "search", "seed"),
    "Memory and machines": ("microbatches", "remat", "strategy", "precision"),
    STOPPING: ("patience",),
    "Masked patches": ("objective", "patch_target", "corruption_rate"),
}
COMPLETIONS = {
    "dataset": complete_dataset,
    "model": complete_place,
    "teacher": complete_place,
    "recipe": complete_recipe,
    "augmentation": complete_augmentation,
}


def spell_option(name: str) -> str:
    """The name of the option for a field of `Settings`.

    >>> spell_option("dataset"), spell_option("learning_rate")
    ('--data', '--learning-rate')
    """
    return "--data" if name == "dataset" else f"--{name.replace('_', '-')}"


def option_of(parameter):
    """Makes the parameter of a command from one of `Settings`: `--learning-rate` from learning_rate."""
    name, kind = parameter.name, parameter.annotation.__origin__
    meaning = parameter.annotation.__metadata__[0]
    arguments = {"autocompletion": COMPLETIONS.get(name)}
    arguments["rich_help_panel"] = next((heading for heading, names in HEADINGS.items() if name in names), None)
    spelling = [spell_option(name)] if kind is bool or name == "dataset" else []
    if name == "search":
        arguments["metavar"] = "FIELD=VALUE,..."
    if name == "model":
        meaning += " Also as an argument, without `--model`."
    return parameter.replace(annotation=Annotated[kind, Option(*spelling, help=meaning, **arguments)])


def with_options_of(
    *functions: Callable, only: Sequence[str] | None = None, without: Sequence[str] = (), **defaults
) -> Callable[[Callable], Callable]:
    """A decorator that adds the options of `functions` and of `Settings` to a command's own.

    Typer reads the options from the signature; required ones come first. The command gets the fields of `Settings`
    named in `only` (None: all of them), except those named in `without`.
    """

    def decorate(command):
        fields = [option_of(p) for p in parameters_of_settings(without, **defaults) if only is None or p.name in only]
        own = [p for f in (*functions, command) for p in inspect.signature(f).parameters.values()]
        options = [*fields, *(p for p in own if p.kind is p.KEYWORD_ONLY)]
        command.__signature__ = inspect.Signature(sorted(options, key=lambda p: p.default is not p.empty))
        return command

    return decorate

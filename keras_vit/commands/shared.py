"""Shared by several commands: options, also those of `Settings`; checks before any work; importing Keras; progress."""

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from keras_vit.commands.parsing import complete_from, complete_place
from keras_vit.console import Console
from keras_vit.data.augment.augmentations import AUGMENTATIONS
from keras_vit.data.datasets.schemes import DATASETS, describe_schemes
from keras_vit.errors import LARGEST, ConfigError
from keras_vit.files import local_path
from keras_vit.trainers.settings import parameters_of_settings
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.runs.run_folder import model_of, require_writable
from keras_vit.training.scaling import FAMILIES
from keras_vit.zoo.names import registry

complete_recipe = complete_from((*FAMILIES, *RECIPES))
complete_augmentation = complete_from(AUGMENTATIONS)
complete_dataset = complete_from(f"{row.name}:" if row.argument else row.name for row in DATASETS.values())

# Options that several commands have.
Model = Annotated[
    str,
    typer.Argument(
        help="A name that `keras-vit list` shows, a checkpoint, or the folder of a run. Also as `--model MODEL`.",
        autocompletion=complete_place,
    ),
]
ANY_MODEL = "A name that `keras-vit list` shows, a checkpoint, the folder of a run, a bundle, or an exported file."
AnyModel = Annotated[str, typer.Argument(help=f"{ANY_MODEL} Also as `--model MODEL`.", autocompletion=complete_place)]
AskedModel = Annotated[str, typer.Option("--model", help=ANY_MODEL, autocompletion=complete_place)]
Data = Annotated[str, typer.Option("--data", help=describe_schemes(), autocompletion=complete_dataset)]
BatchSize = Annotated[int, typer.Option(min=1, max=LARGEST, help="Images at a time; this changes only the speed.")]
Like = Annotated[
    str | None,
    typer.Option(
        help="For an exported file without its own preprocessing (a SavedModel outside its bundle): the model, run or "
        "bundle to take the preprocessing from.",
        autocompletion=complete_place,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")]
# Options with a heading in help; the usual ones have none, and help shows them first.
SCHEDULE, STOPPING = "Schedule", "Stopping and resuming"
Schedule = partial(typer.Option, rich_help_panel=SCHEDULE)
Stopping = partial(typer.Option, rich_help_panel=STOPPING)
HEADINGS = {
    "Data": ("task", "split", "examples", "test", "image_size", "augmentation", "class_weights", "teacher", "without"),
    "Weights": ("freeze", "lora", "layer_decay", "stochastic_depth", "position_embedding", "position_embedding_at"),
    SCHEDULE: ("recipe", "steps", "batch_size", "grid_search", "search", "seed"),
    "Memory and machines": ("microbatches", "remat", "augment_on", "strategy", "precision"),
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


def try_folder(out: Path | None) -> Path | None:
    """A callback of options: refuses a folder in which nothing can be written, before any work."""
    if out is not None:
        out = local_path(out)
        require_writable(out)
    return out


def try_file(out: Path | None) -> Path | None:
    """A callback like `try_folder`, for a file."""
    if out is not None:
        out = local_path(out)
        if out.is_dir():
            raise ConfigError(f"{out} is a folder. Expected a file to write.")
        require_writable(out.absolute().parent)
    return out


ToFolder = partial(typer.Option, callback=try_folder)
ToFile = partial(typer.Option, callback=try_file)


def require_model(name: str, weights: str | None = None) -> str | os.PathLike:
    """What `zoo.load` takes for a name, checkpoint, run or export; refuses any other before TensorFlow is imported."""
    from keras_vit.export.opening import find_artefact

    place, path = Path(os.path.expanduser(name)), model_of(name, weights)
    if not (place.is_dir() and find_artefact(place)):
        registry.resolve(str(path))
    return path


@contextlib.contextmanager
def standard_error_closed():
    """Discards output to standard error, also that of C++ code."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def skip_unreadable():
    """A function that prints the name of an unreadable image, and the list to which it adds the name."""
    unreadable = []

    def skip(image, error):
        unreadable.append(image)
        print(f"keras-vit: {error}", file=sys.stderr)

    return skip, unreadable


def import_keras(find_devices: bool = True) -> None:
    """Imports Keras, and finds its devices, without the output of TensorFlow's C++ code.

    Several workers must find each other before the devices are found; a training does so itself.
    """
    with standard_error_closed():
        try:
            import keras
        except ValueError as error:
            raise ConfigError(f"{error}. Set KERAS_BACKEND to tensorflow, jax or torch.") from error
        if find_devices and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.list_logical_devices()


@contextlib.contextmanager
def show_count(noun: str, total: int | None, wanted: bool = True) -> Iterator[Callable[..., None]]:
    """Yields a function of (number done, number of all); if standard error is a terminal, it shows a bar."""
    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), noun, BarColumn(bar_width=20), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def show_text(text: str) -> Iterator[Callable[[str], None]]:
    """Shows a text on standard error, and the time that has passed; yields a function that shows another text."""
    columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda text: progress.update(task, description=text)


def option_of(parameter):
    """Makes the parameter of a command from one of `Settings`: `--learning-rate` from learning_rate."""
    name, kind = parameter.name, parameter.annotation.__origin__
    meaning = parameter.annotation.__metadata__[0]
    arguments: dict[str, Any] = {"autocompletion": COMPLETIONS.get(name)}
    arguments["rich_help_panel"] = next((heading for heading, names in HEADINGS.items() if name in names), None)
    spelling = [f"--{name.replace('_', '-')}"] if kind is bool else []  # alone, without a --no-...
    if name == "dataset":
        spelling = ["--data"]
    if name == "search":
        arguments["metavar"] = "FIELD=VALUE,..."
    if name == "model":
        meaning += " Also as an argument, without `--model`."
    return parameter.replace(annotation=Annotated[kind, typer.Option(*spelling, help=meaning, **arguments)])


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

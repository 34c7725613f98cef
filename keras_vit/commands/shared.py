"""Shared by several commands: options, checks before any work, a quiet import of Keras, a progress bar."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.commands.parsing import complete_dataset, complete_place
from keras_vit.data.datasets.schemes import describe_schemes
from keras_vit.files import require_local
from keras_vit.training.runs.folder import model_of, require_writable
from keras_vit.zoo.names import registry

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
BatchSize = Annotated[int, typer.Option(min=1, help="Images at a time; this changes only the speed.")]
Like = Annotated[
    str | None,
    typer.Option(
        help="For an exported file without its own preprocessing (a SavedModel outside its bundle): the model, run or "
        "bundle to take the preprocessing from.",
        autocompletion=complete_place,
    ),
]


def try_folder(out: Path | None) -> Path | None:
    """A callback of options: refuses a folder in which nothing can be written, before any work."""
    if out is not None:
        require_writable(out)
    return out


def try_file(out: Path | None) -> Path | None:
    """A callback like `try_folder`, for a file."""
    if out is not None:
        require_local(out)
        require_writable(out.absolute().parent)
    return out


def require_model(name: str, weights: str | None = None) -> None:
    """Refuses, before TensorFlow is imported, a model that is neither a name, a checkpoint, a run nor an export.

    Raises:
        KerasVitError: as `training.runs.folder.model_of` and `zoo.names.registry.resolve`.
    """
    from keras_vit.export.opening import find_artefact

    place = Path(os.path.expanduser(name))
    if not (place.is_dir() and find_artefact(place)):
        registry.resolve(str(model_of(name, weights)))


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
        import keras

        if find_devices and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.list_logical_devices()


@contextlib.contextmanager
def show_count(noun: str, total: int | None, wanted: bool = True) -> Iterator[Callable[..., None]]:
    """Yields a function of (number done, number of all); if standard error is a terminal, it shows a bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from keras_vit.console import Console

    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), noun, BarColumn(bar_width=20), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)

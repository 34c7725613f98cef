"""What the run in a folder was begun with, and whether it can go on as it is asked to. Imports no Keras."""

import dataclasses
from pathlib import Path
from typing import Any

from keras_vit.commands.training.settings import Settings
from keras_vit.data.datasets.image_files import quote_some
from keras_vit.errors import ConfigError
from keras_vit.training.errors import RunError
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.runs.files import read_small_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """What the config.json of a run says; `classes` are None in one that does not name them."""

    folder: Path
    settings: dict[str, Any]
    batch_size: int
    learning_rate: float
    classes: list[str] | None


def read_begun(folder: Path) -> Begun:
    """Reads the config.json of the run in `folder`.

    Raises:
        RunError: when it is missing or damaged.
    """
    try:
        config = dict(read_small_json(folder / "config.json"))
        batch_size, learning_rate = (config["recipe"][name] for name in ("batch_size", "learning_rate"))
        require_counts(batch_size=batch_size)
        require_positive(learning_rate=learning_rate)
        return Begun(
            folder=folder,
            settings=dict(config["settings"]),
            batch_size=int(batch_size),
            learning_rate=float(learning_rate),
            classes=names_of_classes(config.get("classes")),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(
            f"{folder / 'config.json'} does not say what the run was begun with ({error!r}). Restore the run's own "
            "file, or choose another folder."
        ) from error


def names_of_classes(classes):
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise ValueError("its classes are not a list of names")
    return classes


def require_same_settings(settings: Settings, begun: Begun) -> Settings:
    """The settings, with the batch size and learning rate that the run was begun with.

    The default batch follows the number of devices, and the rate may have been searched for; a run changes neither.

    Raises:
        ConfigError: when a setting differs.
    """
    for name, value in settings.as_recorded().items():
        if begun.settings.get(name) != value:
            raise ConfigError(
                f"The run in {begun.folder} was begun with {name}={begun.settings.get(name)!r}. Received: "
                f"{name}={value!r}. Resume it with the settings it was begun with, or choose another folder."
            )
    return dataclasses.replace(settings, batch_size=begun.batch_size, learning_rate=begun.learning_rate)


def require_same_classes(examples, begun: Begun) -> None:
    """Refuses to go on with classes that are not those the run was begun with."""
    before, now = begun.classes, list(examples.class_names)
    if before not in (None, now):
        gone, new = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
        raise ConfigError(
            f"The run in {begun.folder} was begun with {len(before)} classes, now {examples.name} has {len(now)}: "
            f"{quote_some(gone) or 'none'} gone, {quote_some(new) or 'none'} new. Resume it with the classes "
            "it was begun with, or choose another folder."
        )

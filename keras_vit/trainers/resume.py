"""Reads the settings of a run that has begun, and checks that it can continue with new ones. Imports no Keras."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.data.datasets.schemes import locate_dataset
from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown, quote_some
from keras_vit.trainers.settings import MASKED_PATCHES, Settings
from keras_vit.training.errors import RunError
from keras_vit.training.runs.checkpoints import Checkpoints
from keras_vit.training.runs.folder import CHECKPOINTS, read_config
from keras_vit.zoo.fetch.download import find_fetched

LENGTHS = ("epochs", "steps")  # give one of them, or none
CHANGEABLE = (*LENGTHS, "patience")  # may change after a run has begun
MODELS = {False: "ViT-B/16", True: "ViT-S/16"}  # the defaults of fine-tuning and pre-training
EVERY = 200  # steps between checkpoints


def require_fetched(name, model, folder):
    """Refuses an address in the config.json of `folder`, perhaps a stranger's, unless its file is in the cache.

    `name` is the setting, "model" or "teacher", whose value is `model`.
    """
    if "://" in model and find_fetched(model) is None:
        raise ConfigError(
            f"The run in {folder} was begun with {model}, an address that was never fetched here, and is not fetched "
            f"because of a file in a folder. If you trust it, resume with {name}={model!r} too."
        )


def recall_settings(folder: Path, typed: Mapping[str, Any]) -> Settings:
    """The settings that the run in `folder` began with, replaced by those typed now.

    Raises:
        RunError: when there is no run, or its config.json is damaged.
        ConfigError: if a setting may not change after a saved step, or config.json names an address never fetched here.
    """
    if not (folder / "config.json").is_file():
        raise RunError(f"There is no run in {folder} to resume. Begin one: give a dataset and a model.")
    begun = read_config(folder, to_resume=True)
    known = {field.name for field in dataclasses.fields(Settings)}
    recorded = {name: value for name, value in begun["settings"].items() if name in known}
    for name in ("model", "teacher"):
        if name not in typed:
            require_fetched(name, str(recorded.get(name)), folder)
    if any(typed.get(name) is not None for name in LENGTHS):
        recorded |= dict.fromkeys(LENGTHS)
    try:
        settings = Settings(**(recorded | dict(typed)))
        if Checkpoints(folder / CHECKPOINTS).steps():
            require_same_settings(settings, folder, begun)
        return settings
    except TypeError as error:
        raise RunError(
            f"{folder / 'config.json'} is not the record of what the run was begun with: {error}."
        ) from error


def choose_settings(folder: Path, given: Mapping[str, Any], pretrain: bool, resume: bool) -> Settings:
    """The settings of a training with these fields; with `resume`, completed by those of the run in `folder`.

    Raises:
        UnknownNameError: for an unknown field.
        ConfigError: when nothing says what to train on, or the settings contradict each other.
        RunError: as for `recall_settings`.
    """
    known = {field.name for field in dataclasses.fields(Settings)} - {"pretrain", *(() if pretrain else MASKED_PATCHES)}
    for name in given:
        if name not in known:
            raise UnknownNameError(describe_unknown("argument", name, known))
    given = {name: value for name, value in given.items() if name != "dataset" or value is not None}
    if "model" in given:
        given["model"] = os.fspath(given["model"])
    if resume and (folder / "config.json").is_file():
        return recall_settings(folder, {**given, "pretrain": pretrain})
    if "dataset" not in given:
        what = f"There is no run in {folder} to resume" if resume else "Nothing says what to train on"
        raise ConfigError(f"{what}. Give a dataset, such as folder:photos.")
    return Settings(**{"model": MODELS[pretrain], **given, "pretrain": pretrain})


def is_same_setting(name, before, now):
    return before == now or (name == "dataset" and isinstance(before, str) and locate_dataset(before) == now)


def require_same_settings(settings: Settings, folder: Path, begun: Mapping[str, Any]) -> Settings:
    """Checks settings against the run in `folder`; returns them with that run's batch size and learning rate.

    The default batch size depends on the number of devices, and the rate may come from a search; neither changes within
    a run. Its length and its patience may change.

    Raises:
        ConfigError: when another setting differs.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for name, now in settings.as_recorded().items():
        before = begun["settings"].get(name, defaults[name])
        if name not in CHANGEABLE and not is_same_setting(name, before, now):
            raise ConfigError(
                f"The run in {folder} was begun with {name}={before!r}. Received: {name}={now!r}. Resume it as "
                "it was begun, by its folder alone, or choose another folder."
            )
    digests = settings.digests()
    if begun.get("digests", digests) != digests:
        raise ConfigError(
            f"The file of `teacher` or `without` is not the one that the run in {folder} was begun with. Put that one "
            "back, or choose another folder."
        )
    batch_size, rate = begun["recipe"]["batch_size"], float(begun["recipe"]["learning_rate"])
    return dataclasses.replace(settings, batch_size=batch_size, learning_rate=rate)


def require_same_classes(examples, folder: Path, begun: Mapping[str, Any]) -> None:
    """Refuses to continue with other classes, or another number of images, than the run in `folder` began with."""
    before, now = begun.get("classes"), list(examples.class_names)
    if before not in (None, now):
        gone, new = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
        raise ConfigError(
            f"The run in {folder} was begun with {len(before)} classes, now {examples.name} has {len(now)}: "
            f"{quote_some(gone) or 'none'} gone, {quote_some(new) or 'none'} new. Resume it with the classes "
            "it was begun with, or choose another folder."
        )
    images = begun["recipe"].get("examples")
    if images not in (None, examples.num_examples):
        raise ConfigError(
            f"The run in {folder} was begun with {images:,} images to train on, now {examples.name} has "
            f"{examples.num_examples:,}. Put back those that were there, or begin in another folder; "
            f"model={str(folder)!r} then starts from this run's weights, once it has finished."
        )


def describe_continuation(folder: Path, begun: Mapping[str, Any], recipe, start: int, ends: list[int]) -> str:
    """A sentence on where the run in `folder` continues, and at which learning rate if its length has changed.

    Raises:
        ConfigError: when it has already trained for longer.
    """
    epoch = sum(end <= start for end in ends) + 1
    if start > recipe.total_steps:
        raise ConfigError(
            f"The run in {folder} has already done {start:,} steps, more than {recipe.total_steps:,}. Give "
            "more epochs or steps, or choose another folder."
        )
    if start == recipe.total_steps:
        return f"The run has done all of its {start:,} steps: its last files are written again."
    said = f"The run goes on at step {start:,} of {recipe.total_steps:,}, in epoch {epoch} of {len(ends)}."
    steps = begun.get("total_steps", recipe.total_steps)
    if steps == recipe.total_steps:
        return said
    rate = float(recipe.make_schedule()(start))
    return (
        f"{said} It was begun with {steps:,} steps: from here on its learning rate is that of a run of "
        f"{recipe.total_steps:,} steps, {rate:.2g} now."
    )

"""Chooses the settings that are not given: by the run that a training resumes, by the dataset, by the model.

Imports no Keras. docs/training.md says to users which recipe, checkpoint and size are chosen.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.data.datasets.schemes import bare_name, locate_dataset
from keras_vit.errors import ConfigError, RunError, UnknownNameError, describe_unknown, quote_some
from keras_vit.models.variants import VARIANTS, variant
from keras_vit.trainers.settings import MASKED_PATCHES, Settings, parse_search
from keras_vit.training.recipe_rows import PHOTOS
from keras_vit.training.runs.checkpoints import Checkpoints
from keras_vit.training.runs.history import count_epochs_without_gain, read_rows
from keras_vit.training.runs.run_folder import CHECKPOINTS, model_of, read_config
from keras_vit.zoo.fetch.download import find_fetched
from keras_vit.zoo.names.rows import checkpoints

# The paper's datasets (section 4.1) and their recipes of Table 4.
FINE_TUNING = {
    "imagenet2012": "finetune-imagenet",
    "cifar10": "finetune-cifar10",
    "cifar100": "finetune-cifar100",
    "oxford_iiit_pet": "finetune-pets",
    "oxford_flowers102": "finetune-flowers",
    "vtab": "finetune-vtab",
}
OWN_ROW = ("ViT-L/16", "ViT-H/14")  # on ImageNet at 512 and 518 pixels (section 4.1)
# Tags of weights before any fine-tuning: the paper's own, then those of others.
PRETRAINED = ("i21k", "augreg-i21k", "bit-m")

LENGTHS = ("epochs", "steps")  # give one of them, or none
CHANGEABLE = (*LENGTHS, "patience")  # may change after a run has begun
MODELS = {False: "ViT-B/16", True: "ViT-S/16"}  # the defaults of fine-tuning and pre-training
EVERY = 200  # steps between checkpoints


def choose_recipe(dataset: str, model: str, pretrain: bool, objective: str | None = None) -> tuple[str, bool]:
    """(name of a recipe, whether the paper trains on that dataset).

    >>> choose_recipe("cifar100", "ViT-B/16", pretrain=False), choose_recipe("digits", "R50x1", pretrain=True)
    (('finetune-cifar100', True), ('bit-i1k', False))
    """
    name, model = bare_name(dataset).partition("/")[0], model.partition(":")[0]  # "vtab" for each of its tasks
    jft, imagenet = name.startswith("jft"), name == "imagenet2012"
    if objective == "masked-patches":  # Appendix B.1.2: a million steps on JFT, a tenth of that on any other dataset
        return ("pretrain-masked-patches", True) if jft else ("pretrain-masked-patches-100k", imagenet)
    if not pretrain:
        recipe = FINE_TUNING.get(name, PHOTOS.name)
        return f"{recipe}-{model}" if imagenet and model in OWN_ROW else recipe, name in FINE_TUNING
    resnet = variant(model).family == "ResNet"  # BiT's recipes; else Table 3's, on other datasets that of ImageNet
    if jft:
        return "pretrain-jft", True
    if name == "imagenet21k":
        return "bit-i21k" if resnet else "pretrain-imagenet21k", True
    return "bit-i1k" if resnet else "pretrain-imagenet", imagenet


def choose_checkpoint(model: str) -> str:
    """The checkpoint to fine-tune: for a bare variant its weights of ImageNet-21k, not those tuned on ImageNet-1k.

    >>> choose_checkpoint("ViT-B/16"), choose_checkpoint("ViT-S/16"), choose_checkpoint("ViT-B/16:sam")
    ('ViT-B/16:i21k', 'ViT-S/16:augreg-i21k', 'ViT-B/16:sam')
    """
    tags = {row.tag for row in checkpoints() if row.variant == model}
    return next((f"{model}:{tag}" for tag in PRETRAINED if tag in tags), model)


def round_to_patches(size: int, model: str) -> int:
    """Rounds a size down to whole patches, as in the authors' code, or to whole cells of an AxialResNet.

    >>> round_to_patches(384, "ViT-H/14"), round_to_patches(384, "ViT-B/16")
    (378, 384)
    """
    known = VARIANTS.get(model.partition(":")[0])
    return size if known is None else size - size % known.config.size_step


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
        RunError: when its config.json is damaged.
        ConfigError: if a setting may not change after a saved step, or config.json names an address never fetched here.
    """
    begun = read_config(folder, to_resume=True)
    known = {field.name for field in dataclasses.fields(Settings)}
    recorded = {name: value for name, value in begun["settings"].items() if name in known}
    typed = dict(typed)
    for name in ("model", "teacher"):
        if typed.get(name) is not None:
            typed[name] = str(model_of(typed[name]))
        elif name not in typed:
            require_fetched(name, str(recorded.get(name)), folder)
    if any(typed.get(name) is not None for name in LENGTHS):
        recorded |= dict.fromkeys(LENGTHS)
    try:
        settings = Settings(**(recorded | typed))
        if Checkpoints(folder / CHECKPOINTS).steps():
            require_same_settings(settings, folder, begun)
        return settings
    except TypeError as error:
        raise RunError(f"{folder / 'config.json'} is not the record of the run's settings: {error}.") from error


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
    paths = [name for name in ("model", "teacher", "without") if isinstance(given.get(name), os.PathLike)]
    given |= {name: os.fspath(given[name]) for name in paths}
    if resume and (folder / "config.json").is_file():
        return recall_settings(folder, {**given, "pretrain": pretrain})
    if "dataset" not in given:
        what = f"There is no run in {folder} to resume" if resume else "Nothing says what to train on"
        raise ConfigError(f"{what}. Give a dataset: --data folder:photos, in Python dataset='folder:photos'.")
    return Settings(**{"model": MODELS[pretrain], **given, "pretrain": pretrain})


def require_same_settings(settings: Settings, folder: Path, begun: Mapping[str, Any]) -> Settings:
    """Checks settings against the run in `folder`; returns them with that run's batch size and learning rate.

    The default batch size depends on the number of devices, and the rate may come from a search; neither changes within
    a run. Its length and its patience may change.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for name, now in settings.as_recorded().items():
        before = begun["settings"].get(name, defaults[name])
        if name == "dataset" and isinstance(before, str):
            before = locate_dataset(before)
        if name not in CHANGEABLE and before != now:
            command = f" (keras-vit {'pretrain' if before else 'finetune'})" if name == "pretrain" else ""
            raise ConfigError(
                f"The run in {folder} was begun with {name}={before!r}{command}. Received: {name}={now!r}. Resume it "
                "as it was begun, by its folder alone, or choose another folder."
            )
    digests = settings.digests()
    if begun.get("digests", digests) != digests:
        raise ConfigError(
            f"The file of `teacher` or `without` has changed since the run in {folder} began. Put the former file "
            "back, or choose another folder."
        )
    batch_size, rate = begun["recipe"]["batch_size"], float(begun["recipe"]["learning_rate"])
    return dataclasses.replace(settings, batch_size=batch_size, learning_rate=rate)


def recall_found(settings: Settings, begun: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the search of a run found, as config.json holds them; without its steps if the length changes."""
    names = {*parse_search(settings.search or []), *(["learning_rate"] if settings.grid_search else [])}
    if any(getattr(settings, name) != begun["settings"].get(name) for name in LENGTHS):
        names.discard("steps")
    return {name: begun["recipe"][name] for name in names if name in begun["recipe"]}


def require_same_classes(examples, folder: Path, begun: Mapping[str, Any]) -> None:
    """Refuses to continue with other classes or images to train on than the run in `folder` began with."""
    before, now = begun.get("classes"), list(examples.class_names)
    if before not in (None, now):
        gone, new = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
        raise ConfigError(
            f"The run in {folder} was begun with {len(before)} classes, now {examples.name} has {len(now)}: "
            f"{quote_some(gone) or 'none'} gone, {quote_some(new) or 'none'} new. Resume it with the classes "
            "it was begun with, or choose another folder."
        )
    require_as_many(examples, begun["recipe"].get("examples"), "to train on", folder)


def require_as_many(examples, images: int | None, use: str, folder: Path) -> None:
    """Refuses to continue the run in `folder` with another number of images than it began with."""
    if images not in (None, examples.num_examples):
        raise ConfigError(
            f"The run in {folder} was begun with {images:,} images {use}, now {examples.name} has "
            f"{examples.num_examples:,}. Put back those that were there, or begin in another folder; "
            f"model={str(folder)!r} then starts from this run's weights, once it has finished."
        )


def describe_continuation(
    folder: Path, begun: Mapping[str, Any], recipe, start: int, ends: list[int], patience: int | None
) -> str:
    """A sentence on where the run in `folder` continues, and at which learning rate if its length has changed.

    Raises:
        ConfigError: when the run has done more steps than the recipe has.
    """
    epoch = sum(end <= start for end in ends) + 1
    if start > recipe.total_steps:
        raise ConfigError(
            f"The run in {folder} has already done {start:,} steps, more than {recipe.total_steps:,}. Give "
            "more epochs or steps, or choose another folder."
        )
    if start == recipe.total_steps:
        return f"The run has done all of its {start:,} steps: its last files are written again."
    rows = read_rows(folder / "metrics.csv", start)
    if patience is not None and count_epochs_without_gain(rows, begun.get("monitor", "")) >= patience:
        return f"The run has ended: its best epoch is {patience} or more ago. A larger patience lets it go on."
    said = f"The run goes on at step {start:,} of {recipe.total_steps:,}, in epoch {epoch} of {len(ends)}."
    steps = begun.get("total_steps", recipe.total_steps)
    if steps == recipe.total_steps:
        return said
    rate = float(recipe.make_schedule()(start))
    return (
        f"{said} It was begun with {steps:,} steps: from here on its learning rate is that of a run of "
        f"{recipe.total_steps:,} steps, {rate:.2g} now."
    )

"""The entries of a model card on a model's origin, training data and accuracy."""

import os
from pathlib import Path
from typing import Any

from keras_vit.errors import KerasVitError, without_secrets
from keras_vit.evaluation.paper import name_variant
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.training.runs.run_folder import FILES, find_row, read_config
from keras_vit.zoo.names.registry import resolve
from keras_vit.zoo.names.rows import PublicCheckpoint

# The fields of an architecture; others, such as the size of images or the number of classes, are of one use of it.
ARCHITECTURE = ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "backbone", "depths", "width_factor")


def name_architecture(config: ViTConfig | ResNetConfig) -> str:
    """The variant that has this configuration's architecture, or else the architecture's fields.

    >>> name_architecture(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=3, image_size=16).config)
    'ViT-Test/4'
    """
    made = {field: getattr(config, field) for field in ARCHITECTURE if hasattr(config, field)}
    fields = ", ".join(f"{field} {value}" for field, value in made.items() if value is not None)
    return name_variant(config) or fields


def describe_source(name: str) -> str:
    """The source of a model: an address without its password, a name, or only the name of a file."""
    if "://" in str(name):
        return without_secrets(name)
    return Path(name).name if Path(name).exists() else str(name)


def find_checkpoint(name: str) -> PublicCheckpoint | None:
    """The row of the registry for a name; None for an unknown name and for a file."""
    try:
        found = resolve(name)
    except KerasVitError:
        return None
    return found if isinstance(found, PublicCheckpoint) else None


def describe_dataset(dataset: str) -> str:
    """The name of a dataset, without the path of its folder.

    >>> describe_dataset("folder:/home/ann/photos"), describe_dataset("cifar10")
    ('folder:photos', 'cifar10')
    """
    scheme, _, place = dataset.partition(":")
    return f"{scheme}:{Path(place).name}" if place.startswith("/") else dataset


def describe_beginning(settings):
    """A description of the weights that a run began with."""
    if settings["pretrain"]:
        return f"{settings['model']}, random"
    model = settings["model"]
    path = Path(model)
    is_run = path.name in FILES and "://" not in model
    return f"the run {path.parent.name}" if is_run else describe_source(choose_checkpoint(model))


def describe_accuracy(path, config, dataset):
    """The accuracy of the weights in a run's file on held-out images, for `write_card`; None if unknown."""
    monitor = config["monitor"]
    row = find_row(path)
    if row is None or monitor == "val_loss" or not config.get("held_out"):
        return None
    measured = {monitor.removeprefix("val_"): float(row[monitor]), "images": config["held_out"]}
    return {"dataset": dataset, "split": "validation", **measured}


def read_dataset(path: str | os.PathLike) -> str | None:
    """The dataset of the run that wrote the weights in a file; None for a file of no run."""
    return read_config(Path(path).parent).get("settings", {}).get("dataset")


def name_model(path: str | os.PathLike, config: ViTConfig | ResNetConfig) -> dict[str, str]:
    """{"name": ...} for the weights of a run, as names like "last" and "1" say nothing; else {}.

    >>> name_model("runs/1/last.weights.npz", model.config)  # doctest: +SKIP
    {'name': 'ViT-B/16 on photos'}
    """
    dataset = read_dataset(path) if Path(path).name in FILES else None
    if dataset is None:
        return {}
    architecture = name_variant(config) or type(config).__name__.removesuffix("Config")
    return {"name": f"{architecture} on {Path(dataset.partition(':')[2] or dataset).stem}"}


def describe_run(path: Path) -> dict[str, Any]:
    """Entries on a run's weights in the file `path`: "trained_on", "weights_from" and "evaluated".

    There are none for a file that no run wrote, or that is damaged.
    """
    if path.name not in FILES:
        return {}
    config = read_config(path.parent)
    try:
        settings, recipe = config["settings"], config["recipe"]
        dataset = describe_dataset(settings["dataset"])
        return {
            "trained_on": f"{recipe['examples']:,} images of {dataset}, by the recipe {recipe['name']}",
            "weights_from": describe_beginning(settings),
            "evaluated": describe_accuracy(path, config, dataset),
        }
    except (KeyError, TypeError, KerasVitError):  # a field is missing, or metrics.csv is damaged
        return {}


def describe_provenance(
    name: str, path: str | os.PathLike, config: ViTConfig | ResNetConfig, licence: str | None = None
) -> dict[str, Any]:
    """The entries of model.json that do not follow from the model itself; `export.card.write_card` shows them.

    Args:
        name: the model's name, as given to the command.
        path: the result of `model_of` for that name: a file of a run, if the name is a run's.
        config: the model's configuration.
        licence: the licence that the user states; None for that of public weights.
    """
    known = find_checkpoint(name)
    return {
        **(known.history if known else {}),
        **name_model(path, config),
        **describe_run(Path(path)),
        "source": describe_source(name),
        "architecture": name_architecture(config),
        "licence": licence or (known.licence if known else None),
    }

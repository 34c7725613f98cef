"""What a model card says of a model's past: where it comes from, what it was trained on, how good it is there."""

from pathlib import Path
from typing import Any

from keras_vit.errors import KerasVitError
from keras_vit.models.config import VARIANTS, ResNetConfig, ViTConfig
from keras_vit.zoo.fetch.urls import public_form
from keras_vit.zoo.names.registry import resolve

# The fields that make an architecture; others are of a use of it, such as the size of images or the number of classes.
ARCHITECTURE = ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "backbone", "depths", "width_factor")


def name_architecture(config: ViTConfig | ResNetConfig) -> str:
    """The variant that has this configuration's architecture, else the fields that make it.

    >>> name_architecture(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=3, image_size=16).config)
    'ViT-Test/4'
    """
    made = {field: getattr(config, field) for field in ARCHITECTURE if hasattr(config, field)}
    for row in VARIANTS.values():
        if isinstance(row.config, type(config)) and all(getattr(row.config, f) == made[f] for f in made):
            return row.name
    return ", ".join(f"{field} {value}" for field, value in made.items() if value is not None)


def describe_source(name: str) -> str:
    """Where a model came from: an address without its password, a name, or a file's name alone."""
    if "://" in str(name):
        return public_form(str(name))
    return Path(name).name if Path(name).exists() else str(name)


def find_licence(name: str) -> str | None:
    """The licence of public weights of that name; None where no row of the registry has one."""
    try:
        return getattr(resolve(name), "licence", None)
    except KerasVitError:
        return None


def describe_provenance(name: str, config: ViTConfig | ResNetConfig, licence: str | None = None) -> dict[str, Any]:
    """The entries of model.json that the model itself does not know; `export.card.write_card` shows them.

    Args:
        name: of the model, as the command was given it.
        config: of the model.
        licence: what the user states; None for that of public weights.
    """
    return {
        "source": describe_source(name),
        "architecture": name_architecture(config),
        "licence": licence or find_licence(name),
    }

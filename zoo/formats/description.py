"""The description of its model that `zoo.save` writes into every file: {"class_name": ..., "config": {...}}."""

from dataclasses import fields

from keras_vit.errors import ConfigError
from keras_vit.models.axial.config import AxialResNetConfig, AxialViTConfig
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing, preprocessing_of
from keras_vit.zoo.formats.checkpoint import Fault

CONFIGS = {
    "VisionTransformer": ViTConfig,
    "ResNet": ResNetConfig,
    "AxialVisionTransformer": AxialViTConfig,
    "AxialResNet": AxialResNetConfig,
}


def serialize_model(model):
    """A model as its class and arguments, as Keras writes them into `.keras` files, but for what concerns training."""
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "dtype", "trainable")}
    return {"class_name": type(model).__name__, "config": config}


def read_description(description):
    """(config, preprocessing, labels) of a model's description, checked: our own constructors are all that runs."""
    try:
        values = dict(description["config"])
        kind = CONFIGS[description["class_name"]]
        config = kind(**{field.name: values[field.name] for field in fields(kind)})
        stated = values.get("preprocessing")
        preprocessing = preprocessing_of(stated) if stated else None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"does not describe a model of this package: {error!r}.") from error
    if isinstance(preprocessing, Preprocessing) and len(preprocessing.mean) != config.num_channels:
        raise Fault(
            f"describes a model of {config.num_channels} channels and its preprocessing of {len(preprocessing.mean)}."
        )
    return config, preprocessing, read_labels(values.get("labels"), config.num_classes)


def read_labels(labels, num_classes):
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_classes:
        raise Fault(f"describes a model of {num_classes} classes and does not name each of them once.")
    return tuple(map(str, labels))

"""Builds the model of a configuration."""

from collections.abc import Sequence

import keras

from keras_vit.models.axial.resnet import AxialResNet
from keras_vit.models.axial.vit import AxialVisionTransformer
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
from keras_vit.models.resnet import ResNet
from keras_vit.models.vit import VisionTransformer

MODELS = {cls.config_class: cls for cls in (VisionTransformer, ResNet, AxialVisionTransformer, AxialResNet)}


def build(
    config: ViTConfig | ResNetConfig,
    preprocessing: Preprocessing | UnknownPreprocessing | dict | None = None,
    labels: Sequence[str] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str | None = None,
) -> VisionTransformer | ResNet:
    """Builds the model of a configuration, of the class that fits it, with random weights and a zero head.

    >>> build(keras_vit.models.variant("ViT-Ti/16").config).count_params()
    5717416
    """
    cls = MODELS[type(config)]
    return cls(config, preprocessing=preprocessing, labels=labels, dtype=dtype, name=name)

"""From a configuration to its model."""

import dataclasses

from keras_vit.models.config import ResNetConfig
from keras_vit.models.resnet import ResNet
from keras_vit.models.vit import VisionTransformer


def build(config, preprocessing=None, labels=None, dtype=None, name=None):
    """The `VisionTransformer` or `ResNet` of a configuration, with random weights and a zero head.

    >>> build(keras_vit.models.variant("ViT-Ti/16").config).count_params()
    5717416
    """
    cls = ResNet if isinstance(config, ResNetConfig) else VisionTransformer
    return cls(**dataclasses.asdict(config), preprocessing=preprocessing, labels=labels, dtype=dtype, name=name)

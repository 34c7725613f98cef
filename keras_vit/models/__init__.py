"""The paper's models and the table of their variants. Importing it imports no Keras until a model is asked for."""

from keras_vit import _lazy
from keras_vit.models.config import VARIANTS, BackboneConfig, ResNetConfig, Variant, ViTConfig, variant
from keras_vit.models.preprocessing import Preprocessing

__all__ = [
    "VARIANTS",
    "BackboneConfig",
    "Preprocessing",
    "ResNet",
    "ResNetConfig",
    "Variant",
    "ViTConfig",
    "VisionTransformer",
    "build",
    "variant",
]

__getattr__, __dir__ = _lazy.attributes(
    __name__,
    {
        "VisionTransformer": "keras_vit.models.vit",
        "ResNet": "keras_vit.models.resnet",
        "build": "keras_vit.models.building",
    },
)

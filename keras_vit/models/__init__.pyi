from .building import build
from .config import VARIANTS, BackboneConfig, ResNetConfig, Variant, ViTConfig, variant
from .preprocessing import Preprocessing
from .resnet import ResNet
from .vit import VisionTransformer

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

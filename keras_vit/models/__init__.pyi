from .axial import AxialResNet, AxialVisionTransformer
from .building import build
from .config import (
    VARIANTS,
    AxialResNetConfig,
    AxialViTConfig,
    BackboneConfig,
    ResNetConfig,
    Variant,
    ViTConfig,
    variant,
)
from .preprocessing import Preprocessing
from .resnet import ResNet
from .vit import VisionTransformer

__all__ = [
    "VARIANTS",
    "AxialResNet",
    "AxialResNetConfig",
    "AxialViTConfig",
    "AxialVisionTransformer",
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

from .axial.config import AxialResNetConfig, AxialViTConfig
from .axial.resnet import AxialResNet
from .axial.vit import AxialVisionTransformer
from .config import BackboneConfig, ResNetConfig, ViTConfig
from .folding import fold
from .preprocessing import Preprocessing
from .resnet import ResNet
from .variants import VARIANTS, Variant, build, variant
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
    "fold",
    "variant",
]

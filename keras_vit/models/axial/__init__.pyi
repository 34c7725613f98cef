from .config import AxialResNetConfig, AxialViTConfig
from .resnet import AxialBottleneck, AxialResNet, PositionSensitiveAttention
from .vit import AxialEncoderBlock, AxialSelfAttention, AxialVisionTransformer

__all__ = [
    "AxialBottleneck",
    "AxialEncoderBlock",
    "AxialResNet",
    "AxialResNetConfig",
    "AxialSelfAttention",
    "AxialViTConfig",
    "AxialVisionTransformer",
    "PositionSensitiveAttention",
]

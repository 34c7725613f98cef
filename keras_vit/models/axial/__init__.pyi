from .attention import AxialEncoderBlock, AxialSelfAttention
from .bottleneck import AxialBottleneck, PositionSensitiveAttention
from .config import AxialResNetConfig, AxialViTConfig
from .models import AxialResNet, AxialVisionTransformer

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

from .config import AxialResNetConfig as AxialResNetConfig
from .config import AxialViTConfig as AxialViTConfig
from .resnet import AxialBottleneck as AxialBottleneck
from .resnet import AxialResNet as AxialResNet
from .resnet import PositionSensitiveAttention as PositionSensitiveAttention
from .vit import AxialEncoderBlock as AxialEncoderBlock
from .vit import AxialSelfAttention as AxialSelfAttention
from .vit import AxialVisionTransformer as AxialVisionTransformer

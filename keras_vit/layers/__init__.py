"""The layers of the paper: patches, positions, attention, encoder block; standardized convolution, norms, units."""

from keras_vit import _registration
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.bottleneck import PostActivationBottleneck, PreActivationBottleneck
from keras_vit.layers.convolution import GroupNormalization, StandardizedConv2D
from keras_vit.layers.elementary import GELU, Dropout, LayerNormalization
from keras_vit.layers.encoder import MLP, EncoderBlock, LayerScale
from keras_vit.layers.patches import ClassToken, PatchEmbedding, Registers
from keras_vit.layers.pooling import AttentionPooling, AveragePatches, PatchTokens, TakeClassToken
from keras_vit.layers.positions import (
    PositionEmbedding,
    PositionEmbedding2D,
    RelativePositionLogits,
    RotaryPositions,
    SineCosineEmbedding2D,
)

__all__ = [
    "GELU",
    "MLP",
    "AttentionPooling",
    "AveragePatches",
    "ClassToken",
    "Dropout",
    "EncoderBlock",
    "GroupNormalization",
    "LayerNormalization",
    "LayerScale",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "PatchTokens",
    "PositionEmbedding",
    "PositionEmbedding2D",
    "PostActivationBottleneck",
    "PreActivationBottleneck",
    "Registers",
    "RelativePositionLogits",
    "RotaryPositions",
    "SineCosineEmbedding2D",
    "StandardizedConv2D",
    "TakeClassToken",
]

_registration.register()

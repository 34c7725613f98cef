"""The names of timm's tensors, as rows."""

from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.torch.rows import (
    BLOCK,
    attention_rows,
    backbone_rows,
    conv_rows,
    dense_rows,
    norm_rows,
    resnet_rows,
)

TIMM_VIT = (
    ("cls_token", "cls", "same"),
    ("pos_embed", POSITIONS, "same"),
    *dense_rows("patch_embed.proj", "embedding", "conv"),
    *norm_rows("blocks.{i}.norm1", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(*(f"blocks.{{i}}.attn.{name}" for name in ("q", "k", "v", "proj"))),
    *norm_rows("blocks.{i}.norm2", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("blocks.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("blocks.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("norm", "Transformer/encoder_norm"),
    *dense_rows("pre_logits.fc", "pre_logits"),
    *dense_rows("head", "head"),
    *backbone_rows(
        ("patch_embed.backbone.stem.conv", "patch_embed.backbone.stem.norm"),
        "patch_embed.backbone.stages.{b}.blocks.{u}",
    ),
)
# The bare stem of R+ViT-Ti/16 goes by shorter names.
TIMM_STEM = (*conv_rows("patch_embed.backbone.conv", "conv_root"), *norm_rows("patch_embed.backbone.norm", "gn_root"))
TIMM_BIT = resnet_rows("stem.conv", "stages.{b}.blocks.{u}", "norm", ("head.fc", "conv"))

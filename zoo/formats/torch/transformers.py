"""The names of transformers' tensors, as rows."""

from keras_vit.zoo.formats.architecture import POSITIONS
from keras_vit.zoo.formats.torch.rows import (
    BLOCK,
    attention_rows,
    backbone_rows,
    dense_rows,
    norm_rows,
    resnet_rows,
)

BIT_IN_VIT = "embeddings.patch_embeddings.backbone.bit"
# transformers renamed the blocks in its version 5.
HF_VIT = (
    ("embeddings.cls_token", "cls", "same"),
    ("embeddings.position_embeddings", POSITIONS, "same"),
    *dense_rows("embeddings.patch_embeddings.projection", "embedding", "conv"),
    *norm_rows("layers.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(*(f"layers.{{i}}.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj"))),
    *norm_rows("layers.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("layers.{i}.mlp.fc1", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("layers.{i}.mlp.fc2", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("encoder.layer.{i}.layernorm_before", f"{BLOCK}/LayerNorm_0"),
    *attention_rows(
        *(f"encoder.layer.{{i}}.attention.attention.{name}" for name in ("query", "key", "value")),
        "encoder.layer.{i}.attention.output.dense",
    ),
    *norm_rows("encoder.layer.{i}.layernorm_after", f"{BLOCK}/LayerNorm_2"),
    *dense_rows("encoder.layer.{i}.intermediate.dense", f"{BLOCK}/MlpBlock_3/Dense_0"),
    *dense_rows("encoder.layer.{i}.output.dense", f"{BLOCK}/MlpBlock_3/Dense_1"),
    *norm_rows("layernorm", "Transformer/encoder_norm"),
    *dense_rows("pooler.dense", "pre_logits"),
    *dense_rows("classifier", "head"),
    *backbone_rows(
        (f"{BIT_IN_VIT}.embedder.convolution", f"{BIT_IN_VIT}.embedder.norm"),
        BIT_IN_VIT + ".encoder.stages.{b}.layers.{u}",
    ),
)
HF_BIT = resnet_rows("embedder.convolution", "encoder.stages.{b}.layers.{u}", "norm", ("classifier.1", "flat conv"))

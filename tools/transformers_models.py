"""Models of transformers by class and small configuration: the rows of tools/family_table.py."""

from random_models import import_transformers

TOWER = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}
DINO = TOWER | {"mlp_ratio": 2}
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 40,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
QUICK = {"hidden_act": "quick_gelu"}
EXACT = {"hidden_act": "gelu"}
FIVE = {"num_labels": 5}
PROJECTED = {"projection_dim": 20}
QUICK_PAIR = {"vision_config": TOWER | QUICK, "text_config": TEXT | QUICK} | PROJECTED
SIGLIP_PAIR = {"vision_config": TOWER, "text_config": TEXT | {"projection_size": 48}}
GATED = {"use_gated_mlp": True, "hidden_act": "silu"}
TANH = {"hidden_act": "gelu_pytorch_tanh"}
DECODER = {"decoder_hidden_size": 48, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 4}
OTHER_NUMERICS = EXACT | {"layer_norm_eps": 3e-6}
RELATIVE = {"use_relative_position_bias": True}
# (class, what the row is about, its configuration)
ROWS = (
    ("ViTForImageClassification", "", TOWER | FIVE),
    ("ViTForImageClassification", "tanh GELU, another epsilon", TOWER | FIVE | TANH | {"layer_norm_eps": 1e-6}),
    ("ViTForImageClassification", "quick GELU", TOWER | FIVE | QUICK),
    ("ViTForImageClassification", "no biases of q, k, v", TOWER | FIVE | {"qkv_bias": False}),
    ("ViTForImageClassification", "rectangular images", TOWER | FIVE | {"image_size": (16, 40)}),
    ("ViTForImageClassification", "one channel", TOWER | FIVE | {"num_channels": 1}),
    ("ViTModel", "", TOWER),
    ("ViTMSNForImageClassification", "", TOWER | FIVE),
    ("ViTMAEForPreTraining", "", TOWER | DECODER),
    ("IJepaForImageClassification", "", TOWER | FIVE),
    ("DeiTForImageClassification", "", TOWER | FIVE),
    ("DeiTForImageClassificationWithTeacher", "", TOWER | FIVE),
    ("BeitForImageClassification", "", TOWER | FIVE | RELATIVE),
    ("BeitForImageClassification", "positions shared", TOWER | FIVE | {"use_shared_relative_position_bias": True}),
    ("Data2VecVisionForImageClassification", "", TOWER | FIVE | RELATIVE),
    ("Dinov2Model", "", DINO),
    ("Dinov2Model", "SwiGLU", DINO | {"use_swiglu_ffn": True}),
    ("Dinov2Model", "tanh GELU", DINO | TANH),
    ("Dinov2Model", "no biases of q, k, v", DINO | {"qkv_bias": False}),
    ("Dinov2ForImageClassification", "", DINO | FIVE),
    ("Dinov2WithRegistersModel", "", DINO),
    ("Dinov2WithRegistersModel", "SwiGLU, 7 registers", DINO | {"use_swiglu_ffn": True, "num_register_tokens": 7}),
    ("Dinov2WithRegistersForImageClassification", "", DINO | FIVE),
    ("DINOv3ViTModel", "", TOWER | {"num_register_tokens": 4}),
    ("DINOv3ViTModel", "gated MLP", TOWER | GATED | {"num_register_tokens": 4}),
    ("DINOv3ViTModel", "no registers", TOWER | {"num_register_tokens": 0}),
    ("DINOv3ViTModel", "no biases of q, k, v", TOWER | GATED | {"query_bias": False, "value_bias": False}),
    ("DINOv3ViTModel", "bias of keys", TOWER | {"key_bias": True}),
    ("DINOv3ViTModel", "no biases of the MLP", TOWER | {"mlp_bias": False}),
    ("DINOv3ViTModel", "another period", TOWER | {"rope_theta": 30.0}),
    ("DINOv3ViTModel", "rectangular images", TOWER | {"image_size": (16, 40)}),
    ("CLIPModel", "quick GELU", QUICK_PAIR),
    ("CLIPModel", "exact GELU", QUICK_PAIR | {"vision_config": TOWER | EXACT}),
    ("CLIPVisionModelWithProjection", "quick GELU", TOWER | QUICK | PROJECTED),
    ("CLIPVisionModelWithProjection", "exact GELU, another epsilon", TOWER | OTHER_NUMERICS | PROJECTED),
    ("CLIPVisionModel", "quick GELU", TOWER | QUICK),
    ("CLIPForImageClassification", "quick GELU", QUICK_PAIR | FIVE),
    ("SiglipModel", "", SIGLIP_PAIR),
    ("SiglipVisionModel", "", TOWER),
    ("SiglipVisionModel", "exact GELU, another epsilon", TOWER | OTHER_NUMERICS),
    ("SiglipVisionModel", "no whole number of patches", TOWER | {"image_size": 35}),
    ("SiglipVisionModel", "no head", TOWER | {"vision_use_head": False}),
    ("SiglipForImageClassification", "", SIGLIP_PAIR | FIVE),
    ("Siglip2Model", "NaFlex", SIGLIP_PAIR),
    ("MetaClip2Model", "", QUICK_PAIR),
    ("Aimv2VisionModel", "", TOWER),
    ("ChineseCLIPVisionModel", "quick GELU", TOWER | QUICK),
    ("SamVisionModel", "", TOWER | {"window_size": 2, "global_attn_indexes": [1]}),
)  # fmt: skip


def build(row):
    """The untrained model of a row."""
    name, _, options = row
    model_class = getattr(import_transformers(), name)
    return model_class(model_class.config_class(**options))


def answer(model, pixels, **options):
    """A row per image, as `zoo.load` reads such a model: an image's projected vector, logits, or its pooled token."""
    call = getattr(model, "get_image_features", model)
    found = call(pixel_values=pixels, **options)
    for name in ("image_embeds", "logits", "pooler_output"):
        values = getattr(found, name, None)
        if values is not None:
            return values
    return found[0][:, 0]

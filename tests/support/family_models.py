"""Tiny models that have, together, every option of the family's encoders."""

import keras
import numpy as np

from keras_vit import models

SIZES = {"image_size": (16, 24), "patch_size": 4, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 20}
OPTIONS = {
    "clip": {"pre_norm": True, "patch_bias": False, "activation": "quick_gelu", "head_bias": False},
    "siglip": {"classifier": "map", "image_size": (18, 27), "drop_remainder": True},
    "zero-shot": {"classifier": "map", "representation_size": 10, "unit_vectors": True, "qkv_bias": "none"},
    "dinov2": {
        "classifier": "token+gap",
        "class_token_position": False,
        "layer_scale": 0.5,
        "num_registers": 2,
        "gated_mlp": True,
        "activation": "silu",
    },
    "sbb": {"classifier": "gap", "norm_after_pool": True, "num_registers": 1, "layer_scale": 0.5},
    "dinov3": {
        "classifier": "gap",
        "class_token": True,
        "position_embedding": "rope",
        "qkv_bias": "qv",
        "num_registers": 2,
        "layer_scale": 0.5,
    },
}


def made(option, **fields):
    """(the model of a row, images for it); no weight is at an initial value that hides it."""
    keras.utils.set_random_seed(0)
    model = models.VisionTransformer(**{**SIZES, "num_classes": 3, **OPTIONS[option], **fields})
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.2, variable.shape))
    return model, rng.normal(size=(2, *model.config.image_size, 3)).astype("float32")

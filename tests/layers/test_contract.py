"""Every public layer and model keeps the contract of tests/support/contract.py."""

import importlib.resources
import subprocess
import sys

import contract
import keras
import numpy as np
import pytest
from slowness import mark_but, slow_but

from keras_vit import layers, models
from keras_vit.models import axial

VIT = {"image_size": (32, 48), "hidden_size": 32, "num_layers": 2, "num_heads": 2, "mlp_dim": 48}
EPSILONS = {"group_norm_epsilon": 1e-4, "kernel_variance_epsilon": 1e-8}
BACKBONE = {"depths": (1, 1), "width_factor": 0.5, **EPSILONS, "kernel_std_epsilon": 1e-3}
PREPROCESSING = {
    "image_size": (32, 48),
    "crop": 0.9,
    "interpolation": "bicubic",
    "mean": (0.4,),
    "std": (0.2,),
    "crop_mode": "squash",
}
UNIT = {"filters": 32, "strides": 2, **EPSILONS, "kernel_std_epsilon": 1e-3}

OPTIONS = {
    "image_size": (33, 50),
    "patch_size": (8, 16),
    "num_classes": 3,
    "activation": "quick_gelu",
    "gated_mlp": True,
    "pre_norm": True,
    "patch_bias": False,
    "head_bias": False,
    "qkv_bias": "none",
    "layer_scale": 0.5,
    "num_registers": 2,
    "classifier": "map",
    "class_token": True,
    "class_token_position": False,
    "drop_remainder": True,
    "position_interpolation": "dinov2",
    "unit_vectors": True,
}

# Of every argument a value that is not its default, in one of the class's cases.
PLACED = {"prefix_tokens": 1, "interpolation": "bicubic"}  # matter to images of any size alone
CASES = {
    "PatchEmbedding": (layers.PatchEmbedding, {"hidden_size": 24, "patch_size": (8, 16)}, (32, 48, 3)),
    "PatchEmbedding of CLIP": (
        layers.PatchEmbedding,
        {"hidden_size": 24, "patch_size": (8, 16), "patch_bias": False, "drop_remainder": True, "has_free_size": True},
        (33, 50, 3),
    ),
    "Registers": (layers.Registers, {"num_registers": 3, "first": 1}, (6, 16)),
    "RotaryPositions": (layers.RotaryPositions, {"grid": (2, 3), "num_heads": 2, "prefix_tokens": 1}, (7, 16)),
    "LayerScale": (layers.LayerScale, {"initial": 0.5}, (6, 16)),
    "AveragePatches": (layers.AveragePatches, {"prefix_tokens": 2, "beside_token": True}, (6, 16)),
    "AttentionPooling": (
        layers.AttentionPooling,
        {
            "num_heads": 2,
            "mlp_dim": 24,
            "prefix_tokens": 2,
            "layer_norm_epsilon": 1e-5,
            "dropout_rate": 0.1,
            "gelu_approximate": False,
            "activation": "silu",
            "gated_mlp": True,
        },
        (6, 16),
    ),
    "ClassToken": (layers.ClassToken, {}, (6, 16)),
    "PositionEmbedding": (layers.PositionEmbedding, {"grid": (1, 5), **PLACED}, (6, 16)),
    "PositionEmbedding2D": (layers.PositionEmbedding2D, {"grid": (2, 3), **PLACED}, (7, 16)),
    "SineCosineEmbedding2D": (layers.SineCosineEmbedding2D, {"grid": (2, 3), **PLACED}, (7, 16)),
    "RelativePositionLogits": (layers.RelativePositionLogits, {"num_patches": 6}, (2, 7, 8)),
    "Dropout": (layers.Dropout, {"rate": 0.3, "noise_shape": (None, 1, 16), "seed": 1}, (6, 16)),
    "TakeClassToken": (layers.TakeClassToken, {}, (6, 16)),
    "PatchTokens": (layers.PatchTokens, {"prefix_tokens": 2}, (6, 16)),
    "LayerNormalization": (layers.LayerNormalization, {"epsilon": 1e-3}, (6, 16)),
    "GELU": (layers.GELU, {"approximate": False}, (6, 16)),
    "MultiHeadSelfAttention": (layers.MultiHeadSelfAttention, {"num_heads": 4, "dropout_rate": 0.1}, (6, 16)),
    "MultiHeadSelfAttention relative": (
        layers.MultiHeadSelfAttention,
        {"num_heads": 4, "relative_patches": 5},
        (6, 16),
    ),
    "MultiHeadSelfAttention rotary": (
        layers.MultiHeadSelfAttention,
        {"num_heads": 2, "rotary_grid": (2, 2), "prefix_tokens": 2, "qkv_bias": "qv"},
        (6, 16),
    ),
    "MLP gated": (layers.MLP, {"mlp_dim": 24, "activation": "silu", "gated_mlp": True}, (6, 16)),
    "MLP": (layers.MLP, {"mlp_dim": 24, "dropout_rate": 0.1, "gelu_approximate": False}, (6, 16)),
    "EncoderBlock": (
        layers.EncoderBlock,
        {
            "num_heads": 2,
            "mlp_dim": 24,
            "dropout_rate": 0.1,
            "attention_dropout_rate": 0.2,
            "gelu_approximate": False,
            "layer_norm_epsilon": 1e-5,
            "relative_patches": 6,
            "stochastic_depth_rate": 0.3,
        },
        (6, 16),
    ),
    "EncoderBlock of DINOv3": (
        layers.EncoderBlock,
        {
            "num_heads": 2,
            "mlp_dim": 24,
            "activation": "silu",
            "gated_mlp": True,
            "layer_scale": 0.5,
            "rotary_grid": (2, 2),
            "prefix_tokens": 2,
            "qkv_bias": "qv",
        },
        (6, 16),
    ),
    "StandardizedConv2D": (
        layers.StandardizedConv2D,
        {"filters": 8, "kernel_size": 3, "strides": 2, "padding": "same", "std_epsilon": 1e-5},
        (9, 12, 4),
    ),
    "StandardizedConv2D fixed": (
        layers.StandardizedConv2D,
        {"filters": 8, "kernel_size": 7, "strides": 2, "padding": "fixed", "variance_epsilon": 1e-8},
        (9, 12, 4),
    ),
    "GroupNormalization": (
        layers.GroupNormalization,
        {"groups": 4, "epsilon": 1e-3, "gamma_initializer": keras.initializers.serialize(keras.initializers.Zeros())},
        (5, 6, 8),
    ),
    "PreActivationBottleneck": (layers.PreActivationBottleneck, UNIT, (9, 8, 64)),
    "PostActivationBottleneck": (layers.PostActivationBottleneck, UNIT, (9, 8, 64)),
    "AxialSelfAttention": (
        axial.AxialSelfAttention,
        {"axis": "column", "grid": (2, 3), "num_heads": 4, "dropout_rate": 0.1},
        (6, 16),
    ),
    "AxialEncoderBlock": (
        axial.AxialEncoderBlock,
        {"axis": "column", "grid": (2, 3), "num_heads": 2, "mlp_dim": 24, "gelu_approximate": False},
        (7, 16),
    ),
    "PositionSensitiveAttention": (
        axial.PositionSensitiveAttention,
        {"axis": "column", "num_heads": 4, "group_norm_epsilon": 1e-3},
        (4, 6, 64),
    ),
    "AxialBottleneck": (
        axial.AxialBottleneck,
        {**UNIT, "num_heads": 4, "group_norm_epsilon": 1e-3},
        (8, 4, 64),
    ),
    "ViT": (
        models.VisionTransformer,
        {
            **VIT,
            "patch_size": (8, 16),
            "num_classes": 3,
            "representation_size": 20,
            "dropout_rate": 0.1,
            "attention_dropout_rate": 0.2,
            "gelu_approximate": False,
            "layer_norm_epsilon": 1e-5,
            "stochastic_depth_rate": 0.3,
            "probabilities": "sigmoid",
            "labels": ("a", "b", "c"),
        },
        (32, 48, 3),
    ),
    "ViT gap": (
        models.VisionTransformer,
        {
            **VIT,
            "classifier": "gap",
            "norm_after_pool": True,
            "num_classes": 0,
            "num_channels": 1,
            "preprocessing": PREPROCESSING,
        },
        (32, 48, 1),
    ),
    "ViT with every option": (models.VisionTransformer, {**VIT, **OPTIONS, "position_embedding": "1d"}, (33, 50, 3)),
    "ViT of any size": (
        models.VisionTransformer,
        {**VIT, "image_size": (None, None), "stored_size": (32, 48)},
        (32, 48, 3),
    ),
    "ViT of DINOv3": (
        models.VisionTransformer,
        {
            **VIT,
            "patch_size": (8, 16),
            "classifier": "token+gap",
            "position_embedding": "rope",
            "qkv_bias": "qv",
            "num_registers": 2,
            "layer_scale": 0.5,
        },
        (32, 48, 3),
    ),
    "hybrid": (
        models.VisionTransformer,
        {**VIT, "patch_size": (1, 1), "num_classes": 3, "backbone": BACKBONE},
        (32, 48, 3),
    ),
    "ViT shared": (
        models.VisionTransformer,
        {
            **VIT,
            "patch_size": (8, 16),
            "num_classes": 3,
            "position_embedding": "2d",
            "position_embedding_at": "every-layer-shared",
        },
        (32, 48, 3),
    ),
    "ResNet": (
        models.ResNet,
        {
            "image_size": (33, 48),
            "depths": (1, 1),
            "width_factor": 0.5,
            "num_classes": 2,
            "num_channels": 1,
            **EPSILONS,
            "probabilities": "sigmoid",
            "preprocessing": {**PREPROCESSING, "image_size": (33, 48)},
            "labels": ("a", "b"),
        },
        (33, 48, 1),
    ),
    "ResNet of pixels": (
        models.ResNet,
        {"image_size": (33, 48), "depths": (1, 1), "width_factor": 0.5, "num_classes": 2, "classifier": "patches"},
        (33, 48, 3),
    ),
    "ViT of pixels": (
        models.VisionTransformer,
        {**VIT, "patch_size": (8, 16), "num_classes": 3, "class_token": True, "classifier": "patches"},
        (32, 48, 3),
    ),
    "Axial-ViT": (
        models.AxialVisionTransformer,
        {
            **VIT,
            "patch_size": (8, 16),
            "num_classes": 3,
            "representation_size": 20,
            "dropout_rate": 0.1,
            "attention_dropout_rate": 0.2,
            "gelu_approximate": False,
            "layer_norm_epsilon": 1e-5,
            "position_embedding": "2d",
            "position_embedding_at": "every-layer",
            "stochastic_depth_rate": 0.3,
            "probabilities": "sigmoid",
            "labels": ("a", "b", "c"),
        },
        (32, 48, 3),
    ),
    "Axial-ViT gap": (
        models.AxialVisionTransformer,
        {
            **VIT,
            "classifier": "gap",
            "norm_after_pool": True,
            "num_classes": 0,
            "num_channels": 1,
            "preprocessing": PREPROCESSING,
        },
        (32, 48, 1),
    ),
    "Axial-ViT with every option": (
        models.AxialVisionTransformer,
        {**VIT, **OPTIONS, "num_registers": 0, "classifier": "token+gap"},
        (33, 50, 3),
    ),
    "axial hybrid": (
        models.AxialVisionTransformer,
        {**VIT, "patch_size": (1, 1), "num_classes": 3, "backbone": BACKBONE},
        (32, 48, 3),
    ),
    "AxialResNet": (
        models.AxialResNet,
        {
            "image_size": (32, 48),
            "depths": (1, 1),
            "width_factor": 0.5,
            "num_classes": 2,
            "num_channels": 1,
            "num_heads": 4,
            "group_norm_epsilon": 1e-3,
            "kernel_variance_epsilon": 1e-8,
            "kernel_std_epsilon": 1e-3,
            "probabilities": "sigmoid",
            "preprocessing": PREPROCESSING,
            "labels": ("a", "b"),
        },
        (32, 48, 1),
    ),
    "AxialResNet of pixels": (
        models.AxialResNet,
        {"image_size": (32, 48), "depths": (1, 1), "width_factor": 0.5, "num_classes": 2, "classifier": "patches"},
        (32, 48, 3),
    ),
}
every_case = pytest.mark.parametrize("case", CASES)
# They take seconds to trace, and are made of the layers, or are another of the kind, of those that stay.
SLOW = (
    "Axial-ViT with every option",
    "axial hybrid",
    "Axial-ViT",
    "Axial-ViT gap",
    "AxialResNet",
    "AxialResNet of pixels",
    "ResNet of pixels",
    "hybrid",
    "ViT gap",
    "ViT shared",
    "AxialBottleneck",
    "PostActivationBottleneck",
)
TOLD = ("Axial-ViT with every option", "AxialResNet", "hybrid")  # the slow ones that have what the other slow ones have
quick_cases = pytest.mark.parametrize("case", slow_but(CASES, *(case for case in CASES if case not in SLOW)))


def test_nothing_is_left_out():
    public = {name for room in (layers, models, axial) for name in room.__all__ if is_keras(getattr(room, name))}
    assert public == {cls.__name__ for cls, _, _ in CASES.values()}


def is_keras(thing):
    return isinstance(thing, type) and issubclass(thing, keras.layers.Layer)


@pytest.mark.parametrize("cls", dict.fromkeys(cls for cls, _, _ in CASES.values()), ids=lambda cls: cls.__name__)
def test_every_argument_is_tried_with_another_value_than_its_default(cls):
    given = [arguments for other, arguments, _ in CASES.values() if other is cls]
    for name, default in contract.own_arguments(cls).items():
        refused = cls is axial.AxialVisionTransformer and name in ("num_registers", "stored_size")
        assert refused or any(arguments.get(name, default) != default for arguments in given), name


@every_case
def test_config(case):
    contract.check_config(*CASES[case])


@pytest.mark.slow
@quick_cases
def test_symbolic_equals_eager(case):
    contract.check_symbolic_equals_eager(*CASES[case])


@quick_cases
def test_mixed_precision(case):
    contract.check_mixed_precision(*CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", mark_but(pytest.mark.long, CASES, *(x for x in CASES if x not in SLOW), *TOLD))
def test_fit(case):
    contract.check_fit(*CASES[case])


@pytest.mark.slow
def test_saved_in_a_new_process(tmp_path):
    expected = {case: contract.save_case(*CASES[case], tmp_path, case.replace(" ", "_")) for case in CASES}
    contract.load_cases(tmp_path)
    for case, outputs in expected.items():
        loaded = np.load(tmp_path / f"{case.replace(' ', '_')}.out.npy")
        np.testing.assert_allclose(loaded, outputs, rtol=1e-5, atol=1e-6, err_msg=case)


EACH_IN_A_FORK = """
import os, sys
import {first}
for use in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        sys.exit(exec(use))
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["keras_vit, tensorflow", "tensorflow, keras_vit", "keras_vit, keras"])
def test_imports_in_any_order(first, tmp_path):
    path = tmp_path / "model.keras"
    models.VisionTransformer(**VIT, patch_size=8).save(path)
    uses = ("keras_vit.layers.MLP", f"import keras; keras.saving.load_model({str(path)!r})")
    subprocess.run([sys.executable, "-c", EACH_IN_A_FORK.format(first=first), *uses], check=True)


def test_keras_keeps_its_files_after_our_classes_are_registered():
    assert any(path.name == "__init__.py" for path in importlib.resources.files("keras").iterdir())

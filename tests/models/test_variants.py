"""The table of variants: exact parameter counts, and sentences for impossible configurations."""

import re

import keras
import pytest
from slowness import mark_but, slow_but

from keras_vit import models, zoo
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.models import VARIANTS, BackboneConfig, ResNetConfig, ViTConfig, cost

# One of every kind; .ci/long builds the others, whose numbers the formula has.
BUILT = ("ViT-Test/4", "ViT-H/14", "R+ViT-Ti/16", "R50+ViT-B/16", "R50x1", "R20x0.5", "Axial-ViT-B/32", "AxialResNet50")


# From the papers and timm's listing; tests/zoo/test_registry.py has those of the variants with weights.
WITHOUT_WEIGHTS = {
    "ViT-Test/4": 206_376,
    "ViT-b/32": 22_878_952,  # ViT-S/32 but for its heads
    "R50+ViT-B/32": 110_945_832,
    "R50+ViT-L/16": 316_483_624,
    "R50x2": 97_988_712,
    "R152x1": 60_185_128,
    "R200x3": 568_633_000,
    "Axial-ViT-B/32": 173_277_160,
    "Axial-ViT-B/16": 171_620_584,
    "AxialResNet50": 19_373_640,
}


def count_shape(num_layers, hidden_size, mlp_dim, patch_size, size=224):
    """The weights of a ViT with 1,000 classes at 224 pixels, tensor by tensor, as the authors' files hold them."""
    d, m, p = hidden_size, mlp_dim, patch_size
    attention = {"query": d * d + d, "key": d * d + d, "value": d * d + d, "out": d * d + d}
    block = {"LayerNorm_0": 2 * d, **attention, "LayerNorm_2": 2 * d, "Dense_0": d * m + m, "Dense_1": m * d + d}
    tokens = {"embedding": p * p * 3 * d + d, "cls": d, "pos_embedding": ((size // p) ** 2 + 1) * d}
    return sum({**tokens, "norm": 2 * d, "head": d * 1000 + 1000}.values()) + num_layers * sum(block.values())


def count_resnet(depths, width):
    """The weights of a BiT ResNet with 1,000 classes, tensor by tensor, as the authors' files hold them."""
    before, count = width, 7 * 7 * 3 * width
    for stage, depth in enumerate(depths):
        inner = width * 2**stage
        outer = 4 * inner
        for unit in range(depth):
            convolutions = {"a": before * inner, "b": 9 * inner * inner, "c": inner * outer}
            norms = {"a": 2 * before, "b": 2 * inner, "c": 2 * inner}
            count += sum(convolutions.values()) + sum(norms.values()) + (before * outer if unit == 0 else 0)
            before = outer
    return count + 2 * before + 1000 * before + 1000


# Those of small images, ours: ViT-Mini/4 averages, so that it has no class token nor a position for it.
SMALL = {
    "ViT-Mini/4": count_shape(6, 96, 192, 4, size=28) - 2 * 96,
    "R20x0.5": count_resnet((2, 2, 2), 32),
}


# Figure 8's ViTs are named by what they are.
SHAPES = {
    name: tuple(map(int, re.findall(r"\d+", name))) for name in VARIANTS if re.fullmatch(r"ViT-(\d+x){2}\d+/\d+", name)
}


@pytest.mark.parametrize(("name", "count"), [*WITHOUT_WEIGHTS.items(), *SMALL.items()])
def test_parameters_of_variants_without_weights(name, count):
    assert VARIANTS[name].parameters == count


def test_every_variant_has_a_number_here_or_weights():
    with_weights = {row.variant for row in zoo.list(pretrained=True) if row.url != "local"}
    assert set(VARIANTS) - set(WITHOUT_WEIGHTS) - set(SHAPES) - set(SMALL) == with_weights


def test_small_variants_are_for_small_images():
    sizes = {name: VARIANTS[name].config.image_size for name in SMALL}
    assert sizes == {"ViT-Mini/4": (28, 28), "R20x0.5": (56, 56)}
    assert VARIANTS["ViT-Mini/4"].config.classifier == "gap"


def test_figure_8_scales_one_dimension_at_a_time():
    """Appendix D.2: 8 layers, D 1024, MLP 2048, patches of 32; all of them have heads of 64 channels."""
    base = (8, 1024, 2048, 32)
    changed = [[i for i in range(4) if sizes[i] != base[i]] for sizes in SHAPES.values()]
    assert {tuple(axes) for axes in changed if len(axes) <= 1} == {(), (0,), (1,), (2,), (3,)}
    assert max(len(axes) for axes in changed) == 4 and (64, 1024, 2048, 32) in SHAPES.values()
    for name, sizes in SHAPES.items():
        config = VARIANTS[name].config
        assert (config.num_layers, config.hidden_size, config.mlp_dim, config.patch_size[0]) == sizes
        assert config.hidden_size // config.num_heads == 64
        assert VARIANTS[name].parameters == count_shape(*sizes)


def test_figure_4s_b_is_half_of_b():
    half, whole = VARIANTS["ViT-b/32"].config, VARIANTS["ViT-B/32"].config
    for field in ("hidden_size", "mlp_dim"):
        assert 2 * getattr(half, field) == getattr(whole, field)
    assert (half.num_layers, half.num_heads, half.patch_size) == (whole.num_layers, whole.num_heads, whole.patch_size)


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_those_of_the_formula(name):
    assert VARIANTS[name].parameters == cost.count_parameters(VARIANTS[name].config)


@pytest.mark.parametrize("name", mark_but(pytest.mark.long, VARIANTS, *BUILT))
def test_parameters_of_the_model(name):
    # Inside the scope variables get their shapes but no values: the largest row would need 4 GB.
    with keras.StatelessScope(initialize_variables=False):
        counted = models.build(VARIANTS[name].config).count_params()
    keras.utils.clear_session()  # else the next scope gives them their values
    assert counted == VARIANTS[name].parameters


@pytest.mark.parametrize(
    "name", slow_but(["ViT-Test/4", "ViT-Ti/16", "R+ViT-Ti/16", "R50x1"], "ViT-Test/4", "R+ViT-Ti/16")
)
def test_a_variant_is_a_model(name):
    model = zoo.load(name, weights=None)
    assert model.count_params() == VARIANTS[name].parameters
    size = model.config.image_size
    logits = keras.ops.convert_to_numpy(model(keras.ops.ones((1, *size, 3))))
    assert logits.shape == (1, 1000)
    assert not logits.any(), "a new head is zero"


@pytest.mark.parametrize("given", ["R50x1", models.variant("R50x1"), None, {"depths": (1,)}])
def test_what_is_no_configuration_is_not_built(given):
    sentence = rf"build takes a configuration, such as variant\('R50x1'\).config. Received: {re.escape(repr(given))}. "
    with pytest.raises(ConfigError, match=sentence):
        models.build(given)


def test_blocks_are_named_layers():
    model = zoo.load("ViT-Test/4", weights=None)
    features = keras.Model(model.input, model.get_layer("encoderblock_2").output)
    assert features(keras.ops.ones((2, 32, 32, 3))).shape == (2, 65, 64)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownNameError, match="Here it is called ViT-B/16"):
        zoo.load("vit-b16", weights=None)
    with pytest.raises(ConfigError, match=r"'hiden_size'. Did you mean hidden_size"):
        zoo.load("ViT-B/16", weights=None, hiden_size=5)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"image_size": 225},
            r"image_size=\(225, 225\) with patches of 16x16 pixels; the nearest size .* \(224, 224\)",
        ),
        ({"image_size": (224, 100)}, r"nearest size that fits is \(224, 96\)"),
        ({"num_heads": 7}, "divisible by num_heads"),
        ({"classifier": "mean"}, r"must be one of token, gap, token\+gap, map, patches. Received: classifier='mean'"),
        ({"classifier": "token", "class_token": False}, "reads the class token. Received: class_token=False"),
        ({"activation": "relu"}, "activation must be one of gelu, quick_gelu, silu"),
        ({"qkv_bias": "k"}, "qkv_bias must be one of qkv, qv, none"),
        ({"num_registers": -1}, "num_registers must be a whole number, 0"),
        ({"layer_scale": "1"}, "layer_scale must be a number, or None"),
        ({"gated_mlp": 1}, "gated_mlp must be True or False"),
        ({"position_embedding": "rope", "hidden_size": 12, "num_heads": 2}, "rope needs heads of 4, 8, 12"),
        ({"position_embedding": "rope", "class_token_position": False}, "needs 1d embeddings that are added at"),
        ({"image_size": 230}, "nearest size that fits is"),
        ({"image_size": 15, "drop_remainder": True}, "whole number of patches"),
        ({"backbone": {}, "drop_remainder": True}, "models without a backbone, which pads images"),
        ({"dropout_rate": 1.0}, r"in \[0, 1\)"),
        ({"num_layers": 0}, "must be a positive"),
        ({"num_layers": True}, "num_layers must be a positive whole number. Received: num_layers=True"),
        ({"hidden_size": 1e300}, "hidden_size must be a positive whole number"),
        ({"mlp_dim": "3072"}, "mlp_dim must be a positive whole number. Received: mlp_dim='3072'"),
        ({"representation_size": 0}, "representation_size must be a positive"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon must be in"),
        ({"image_size": 224.0}, r"image_size must be a positive whole number, or two of them \(height, width\)"),
        ({"image_size": None}, "image_size must be a positive whole number"),
        ({"patch_size": (16, 16, 3)}, r"Received: patch_size=\(16, 16, 3\)"),
        ({"backbone": "R50"}, "backbone must be a BackboneConfig"),
        (
            {"position_embedding": "3d"},
            "one of none, 1d, 2d, relative, sincos2d, rope. Received: position_embedding='3d",
        ),
        ({"position_embedding_at": "end"}, "must be one of stem, every-layer, every-layer-shared. Received"),
        (
            {"position_embedding": "none", "position_embedding_at": "every-layer"},
            "says where 1d and 2d embeddings are added. Received: position_embedding='none'",
        ),
        (
            {"position_embedding": "2d", "hidden_size": 9, "num_heads": 3},
            "an even hidden_size. Received: hidden_size=9",
        ),
        (
            {"position_embedding": "sincos2d", "hidden_size": 10, "num_heads": 2},
            "sincos2d needs a hidden_size of 8, 12, 16, ... Received: hidden_size=10",
        ),
        ({"num_classes": -1}, "0 or more"),
        ({"backbone": BackboneConfig(depths=(3, 4, 6, 3))}, "patches of 512x512"),
    ],
)
def test_impossible_vit(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ViTConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"depths": ()}, "at least one stage"),
        ({"depths": (1, 0)}, "positive ints"),
        ({"width_factor": 0.3}, "multiple of the 32 groups"),
        ({"depths": 3}, "one per stage. Received: depths=3"),
        ({"width_factor": "2"}, "multiple of the 32 groups"),
        ({"image_size": 0}, "image_size must be a positive whole number"),
        ({"group_norm_epsilon": -1}, "group_norm_epsilon must be in"),
    ],
)
def test_impossible_resnet(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ResNetConfig(**fields)


def test_a_model_is_not_saved_in_keras_old_format(tmp_path):
    with pytest.raises(ConfigError, match="could not load this model from its old format. .* Save it as a .keras"):
        models.ResNet(image_size=32, depths=(1,), num_classes=2).save(tmp_path / "model.h5")
    assert not list(tmp_path.iterdir())


def test_labels_name_each_class_once():
    with pytest.raises(ConfigError, match="3 labels, 2 classes"):
        models.ResNet(image_size=32, depths=(1,), num_classes=2, labels=("a", "b", "c"))
    with pytest.raises(ConfigError, match="a list of names. Received: the string 'ab'"):
        models.ResNet(image_size=32, depths=(1,), num_classes=2, labels="ab")

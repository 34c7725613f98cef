"""The table of variants: exact parameter counts, and sentences for impossible configurations."""

import keras
import pytest

from keras_vit import models, zoo
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.models import VARIANTS, BackboneConfig, ResNetConfig, ViTConfig, cost

# One of every size and kind; the others are built by `pytest -m slow`.
BUILT = (
    *("ViT-Test/4", "ViT-Ti/16", "ViT-S/32", "ViT-B/30", "ViT-L/16", "ViT-H/14"),
    *("R+ViT-Ti/16", "R26+ViT-S/32", "R50+ViT-B/16", "R50x1", "R101x3", "R152x2"),
    *("Axial-ViT-B/32", "AxialResNet50"),
)
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name not in BUILT]


# From the papers and timm's listing; tests/zoo/test_registry.py has those of the variants with weights.
WITHOUT_WEIGHTS = {
    "ViT-Test/4": 206_376,
    "R50+ViT-B/32": 110_945_832,
    "R50+ViT-L/16": 316_483_624,
    "R50x2": 97_988_712,
    "R152x1": 60_185_128,
    "R200x3": 568_633_000,
    "Axial-ViT-B/32": 173_277_160,
    "Axial-ViT-B/16": 171_620_584,
    "AxialResNet50": 19_373_640,
}


@pytest.mark.parametrize(("name", "count"), WITHOUT_WEIGHTS.items())
def test_parameters_of_variants_without_weights(name, count):
    assert VARIANTS[name].parameters == count


def test_every_variant_has_a_number_here_or_weights():
    assert set(VARIANTS) - set(WITHOUT_WEIGHTS) == {row.variant for row in zoo.list(pretrained=True)}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_those_of_the_formula(name):
    assert VARIANTS[name].parameters == cost.count_parameters(VARIANTS[name].config)


@pytest.mark.parametrize("name", [*BUILT, *OTHERS])
def test_parameters_of_the_model(name):
    # Inside the scope variables get their shapes but no values: the largest row would need 4 GB.
    with keras.StatelessScope(initialize_variables=False):
        counted = models.build(VARIANTS[name].config).count_params()
    keras.utils.clear_session()  # else the next scope gives them their values
    assert counted == VARIANTS[name].parameters


@pytest.mark.parametrize("name", ["ViT-Test/4", "ViT-Ti/16", "R+ViT-Ti/16", "R50x1"])
def test_a_variant_is_a_model(name):
    model = zoo.load(name, weights=None)
    assert model.count_params() == VARIANTS[name].parameters
    size = model.config.image_size
    logits = keras.ops.convert_to_numpy(model(keras.ops.ones((1, *size, 3))))
    assert logits.shape == (1, 1000)
    assert not logits.any(), "a new head is zero"


def test_blocks_are_named_layers():
    model = zoo.load("ViT-Test/4", weights=None)
    features = keras.Model(model.input, model.get_layer("encoderblock_2").output)
    assert features(keras.ops.ones((2, 32, 32, 3))).shape == (2, 65, 64)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean ViT-B/16"):
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
        ({"classifier": "map"}, "must be 'token' or 'gap'"),
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
        ({"num_classes": -1}, "0 \\(for features\\) or more"),
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


def test_labels_name_each_class_once():
    with pytest.raises(ConfigError, match="3 labels, 2 classes"):
        models.ResNet(image_size=32, depths=(1,), num_classes=2, labels=("a", "b", "c"))
    with pytest.raises(ConfigError, match="a list of names. Received: the string 'ab'"):
        models.ResNet(image_size=32, depths=(1,), num_classes=2, labels="ab")

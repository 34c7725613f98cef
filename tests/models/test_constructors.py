"""A model's constructor takes a configuration or its fields, and says what they are."""

import dataclasses
import inspect
import pkgutil

import pytest

from keras_vit import models
from keras_vit.errors import ConfigError
from keras_vit.models.variants import MODELS

SMALL = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}


def test_a_configuration_its_fields_and_their_order_make_the_same_model():
    config = models.ViTConfig(**SMALL, num_classes=3)
    for model in (
        models.VisionTransformer(config),
        models.VisionTransformer(**SMALL, num_classes=3),
        models.VisionTransformer(16, 8, 16, 2, 2, 24, num_classes=3),
    ):
        assert model.config == config
        assert [tuple(weight.shape) for weight in model.weights][-2:] == [(16, 3), (3,)]


def test_fields_change_a_configuration():
    model = models.VisionTransformer(models.ViTConfig(**SMALL), num_classes=5, labels=[*"abcde"])
    assert (model.config.num_classes, model.config.hidden_size, model.output_shape) == (5, 16, (None, 5))
    assert models.VisionTransformer(model.config, labels=range(5)).labels == tuple("01234")
    free = models.VisionTransformer(model.config, image_size=(None, None)).config
    assert free.stored_size == (16, 16) and models.VisionTransformer(free, image_size=24).config.stored_size is None


def test_an_unknown_or_contradicting_field_is_refused():
    with pytest.raises(TypeError, match="VisionTransformer: got an unexpected keyword argument 'hiden_size'"):
        models.VisionTransformer(hiden_size=16)
    with pytest.raises(ConfigError, match="must be divisible by num_heads"):
        models.VisionTransformer(models.ViTConfig(**SMALL), num_heads=3)
    with pytest.raises(ConfigError, match="class_token must be True, False or None. Received: class_token=0"):
        models.VisionTransformer(**SMALL, class_token=0)
    with pytest.raises(ConfigError, match="image_size must be"):
        models.VisionTransformer(models.ResNetConfig())


@pytest.mark.parametrize("config_class", MODELS, ids=lambda kind: kind.__name__)
def test_signature_and_documentation_have_every_field(config_class):
    model_class, fields = pkgutil.resolve_name(MODELS[config_class]), dataclasses.fields(config_class)
    parameters = inspect.signature(model_class).parameters
    assert [*parameters][: len(fields)] == [field.name for field in fields]
    assert all(parameters[field.name].default == field.default for field in fields)
    assert "Annotated" not in str(inspect.signature(model_class)) and "FIELDS" not in model_class.__doc__
    if model_class is not models.AxialVisionTransformer:  # whose documentation names what differs from ViT's
        assert all(f"\n        {field.name}: " in model_class.__doc__ for field in fields)

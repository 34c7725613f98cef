"""A model's constructor takes a configuration or its fields, and says what they are."""

import dataclasses
import inspect
import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from shaking import shaken

from keras_vit import models, zoo
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


def test_a_size_of_numpy_is_a_size():
    with pytest.raises(ConfigError, match="image_size must be a positive whole number, or two of them"):
        models.VisionTransformer(image_size=np.array([8, 8, 8]))
    model = zoo.load("ViT-Test/4", weights=None, num_classes=2, image_size=np.int64(16))
    assert model.config.image_size == (16, 16)


def test_labels_that_are_set_name_each_class_once():
    model = models.ResNet(image_size=None, depths=(1,), num_classes=2)
    model.labels = ["cat", "dog"]
    with pytest.raises(ConfigError, match="labels must name each class once. Received: 3 labels, 2 classes"):
        model.labels = ["cat", "dog", "hen"]
    assert model.labels == ("cat", "dog")


def test_a_clone_of_keras_computes_the_same():
    model = zoo.load("ViT-Test/4", weights=None, num_classes=3)
    for weight in model.weights:
        weight.assign(weight + 0.1)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    images = np.random.default_rng(0).uniform(-1, 1, (2, *model.input_shape[1:])).astype("float32")
    np.testing.assert_allclose(clone(images), model(images), atol=1e-6)


@pytest.mark.parametrize("config_class", MODELS, ids=lambda kind: kind.__name__)
def test_signature_and_documentation_have_every_field(config_class):
    model_class, fields = pkgutil.resolve_name(MODELS[config_class]), dataclasses.fields(config_class)
    parameters = inspect.signature(model_class).parameters
    assert [*parameters][: len(fields)] == [field.name for field in fields]
    assert all(parameters[field.name].default == field.default for field in fields)
    assert "Annotated" not in str(inspect.signature(model_class)) and "FIELDS" not in model_class.__doc__
    if model_class is not models.AxialVisionTransformer:  # whose documentation names what differs from ViT's
        assert all(f"\n        {field.name}: " in model_class.__doc__ for field in fields)


@pytest.mark.parametrize("name", ["ViT-Test/4", "R20x0.5"])
def test_a_model_is_called_with_images_and_not_as_its_constructor(name):
    model = shaken(zoo.load(name, weights=None, image_size=32, num_classes=3))
    assert inspect.signature(model) == inspect.signature(keras.Model(model.inputs, model.outputs))
    for kind in ("uint8", "float32"):
        images = np.random.default_rng(0).uniform(0, 2, (2, *model.input_shape[1:])).astype(kind)
        traced = tf.function(model, input_signature=[tf.TensorSpec((None, *images.shape[1:]), kind)])
        np.testing.assert_allclose(traced(images), model(images), atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "is_warned_of"),
    [
        ("sparse_categorical_crossentropy", True),
        (keras.losses.SparseCategoricalCrossentropy(), True),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), False),
        ("mean_squared_error", False),
    ],
)
def test_a_loss_that_takes_probabilities_is_warned_of(loss, is_warned_of, recwarn):
    model = models.VisionTransformer(**SMALL, num_classes=3)
    model.compile("sgd", loss)
    model.fit(np.zeros((2, 16, 16, 3), "float32"), np.zeros((2, 1), "float32"), verbose=0)
    assert any("takes probabilities" in str(warning.message) for warning in recwarn) == is_warned_of

"""What each name of a vector is, against numpy on the tokens of the encoder."""

import gc
import weakref

import keras
import numpy as np
import pytest

from keras_vit import models, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.models.vectors import choose_vector, vector_model, vector_reader, vectors_of

IMAGES = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
MODELS = {  # fields of a small ViT, the vectors that it has, and the one that it gives where none is named
    "a classifier": ({"num_classes": 7}, ("token", "gap", "token+gap"), "features"),
    "no head": ({"num_classes": 0, "classifier": "gap"}, ("gap",), "output"),
    "a projection": ({"num_classes": 9, "head_bias": False}, ("token", "gap", "token+gap"), "output"),
    "registers": ({"num_classes": 7, "num_registers": 2, "classifier": "token+gap"}, ("token", "gap"), "features"),
    "attention pooling": ({"num_classes": 0, "classifier": "map"}, ("gap",), "output"),
    "a norm after the mean": ({"num_classes": 0, "classifier": "gap", "norm_after_pool": True}, ("gap",), "output"),
    "a tanh layer": ({"num_classes": 7, "representation_size": 5}, ("token", "gap"), "features"),
}


def randomized(model):
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.1, weight.shape))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_vectors_are_what_their_names_say(name):
    fields, known, chosen = MODELS[name]
    model = randomized(zoo.load("ViT-Test/4", weights=None, **fields))
    config = model.config
    tokens = keras.Model(model.inputs[0], model.get_layer("encoder_norm").output)(IMAGES)
    assert set(known) < set(vectors_of(model)) and choose_vector(model, None) == chosen
    token, patches = np.asarray(tokens)[:, 0], np.asarray(tokens)[:, config.prefix_tokens :]
    expected = {"token": token, "gap": patches.mean(1), "output": np.asarray(model(IMAGES))}
    expected["token+gap"] = np.concatenate([token, expected["gap"]], 1)
    expected["features"] = np.asarray(model.features(IMAGES))
    for vector in vectors_of(model):
        found = vector_model(model, vector)
        np.testing.assert_allclose(np.asarray(found(IMAGES)), expected[vector], atol=1e-5, err_msg=vector)
        assert vector_model(model, vector) is found, "compiled once"
    if config.num_classes:
        head = model.get_layer("head")
        logits = expected["features"] @ np.asarray(head.kernel) + (np.asarray(head.bias) if head.use_bias else 0)
        np.testing.assert_allclose(logits, expected["output"], atol=1e-4)
    if not config.has_class_token:
        with pytest.raises(ConfigError, match="has no vector 'token'. It has: output, features, gap"):
            vector_model(model, "token")


def test_a_resnet_has_the_vector_that_its_head_reads():
    model = models.ResNet(image_size=(32, 32), depths=(1, 1), num_classes=5)
    assert vectors_of(model) == ("output", "features") and vector_model(model).output_shape == (None, 512)


def test_models_that_classify_pixels_have_vectors_of_images_alone():
    vit = zoo.load("ViT-Test/4", weights=None, num_classes=3, classifier="patches", class_token=True)
    assert vectors_of(vit) == ("token", "gap", "token+gap") and choose_vector(vit, None) == "gap"
    assert vector_model(vit).output_shape == (None, 64) and vit.features(IMAGES).shape == (3, 64, 64)
    resnet = models.ResNet(image_size=(32, 32), depths=(1,), num_classes=5, classifier="patches")
    with pytest.raises(ConfigError, match='classifies each pixel: .* Load the model with classifier="gap"'):
        vector_model(resnet)


@pytest.mark.slow
def test_vectors_are_those_of_the_model_as_it_is_now():
    model = zoo.load("ViT-Test/4", weights=None, num_classes=3)
    before = vector_reader(model)(IMAGES)
    training.enable_lora(model, 2)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.1)
    after = vector_reader(model)(IMAGES)
    np.testing.assert_allclose(after, np.asarray(model.features(IMAGES)), atol=1e-5)
    assert np.abs(after - before).max() > 0.01


@pytest.mark.slow
def test_a_model_goes_with_its_vectors():
    model = zoo.load("ViT-Test/4", weights=None)
    gone = weakref.ref(model)
    vector_model(model, "gap"), vector_model(model, "features")
    del model
    gc.collect()
    assert gone() is None

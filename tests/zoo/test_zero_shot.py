"""keras_vit.zoo.zero_shot: a classifier from class vectors, against numpy in float64 and transformers' logits."""

import keras
import numpy as np
import pytest
from slowness import slow_but

import keras_vit
from keras_vit import zoo
from keras_vit.errors import ConfigError

pytestmark = pytest.mark.usefixtures("forked_converters")
IMAGES = np.random.default_rng(0).normal(0, 0.5, (3, 32, 32, 3)).astype("float32")


def model_of_vectors(width, **fields):
    """A model with random weights that gives vectors (n, width): without a head for 0."""
    keras.utils.set_random_seed(0)
    model = zoo.load("ViT-Test/4", weights=None, num_classes=width, **fields)
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.1, weight.shape))
    return model


def draw_vectors(width, count=4):
    return np.random.default_rng(2).normal(0, 3, (count, width))


def cosines(vectors, class_vectors):
    vectors, class_vectors = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, class_vectors))
    return vectors.astype("float64") @ class_vectors.T


@pytest.fixture(scope="module", params=(0, 10))
def pair(request):
    """(an embedding model, class vectors, the classifier of them)."""
    model = model_of_vectors(request.param)
    vectors = draw_vectors(model.output_shape[-1])
    classifier = zoo.zero_shot(model, vectors, scale=20.0, bias=-3.0, labels=["a", "b", "c", "d"])
    return model, vectors, classifier


def test_logits_are_scaled_cosines(pair):
    model, vectors, classifier = pair
    expected = 20 * cosines(np.asarray(model(IMAGES)), vectors) - 3
    np.testing.assert_allclose(np.asarray(classifier(IMAGES)), expected, atol=2e-5)
    assert classifier.labels == ("a", "b", "c", "d") and classifier.preprocessing == model.preprocessing


def test_a_folded_model_gives_the_same_classifier(pair):
    model, vectors, _ = pair
    made = [zoo.zero_shot(each, vectors, scale=20.0) for each in (model, keras_vit.models.fold(model))]
    np.testing.assert_array_equal(*(np.asarray(classifier(IMAGES)) for classifier in made))


def test_other_classes_replace_those_of_a_classifier(pair):
    model, vectors, classifier = pair
    again = zoo.zero_shot(classifier, 2 * vectors[:2], scale=5.0, bias=[1.0, 2.0], probabilities="sigmoid")
    expected = 5 * cosines(np.asarray(model(IMAGES)), vectors[:2]) + [1, 2]
    np.testing.assert_allclose(np.asarray(again(IMAGES)), expected, atol=1e-5)
    assert again.config.probabilities == "sigmoid" and again.labels is None


def test_a_classifier_without_its_head_is_a_model_of_vectors_again(pair, tmp_path):
    _, vectors, classifier = pair
    zoo.save(classifier, tmp_path / "model.npz")
    headless = zoo.load(tmp_path / "model.npz", num_classes=0)
    again = zoo.zero_shot(headless, vectors, scale=20.0, bias=-3.0)
    np.testing.assert_allclose(np.asarray(again(IMAGES)), np.asarray(classifier(IMAGES)), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["keras", "weights.h5", "npz", "safetensors"])
def test_a_saved_classifier_is_the_same(pair, ending, tmp_path):
    classifier = pair[2]
    zoo.save(classifier, tmp_path / f"model.{ending}")
    loaded = zoo.load(tmp_path / f"model.{ending}")
    np.testing.assert_array_equal(np.asarray(loaded(IMAGES)), np.asarray(classifier(IMAGES)))
    assert loaded.config == classifier.config and loaded.labels == classifier.labels


@pytest.mark.parametrize("name", slow_but(["model.onnx", "model.tflite", "saved_model"], "model.onnx"))
def test_exports_are_the_classifier(pair, name, tmp_path):
    report = keras_vit.export.convert(pair[2], tmp_path / name)
    assert report.max_rel_diff < 1e-5 and report.top1_agreement == 1


@pytest.mark.slow
def test_int8_and_float16_agree(pair, tmp_path):
    for kind in ("float16", "int8"):
        assert keras_vit.export.convert(pair[2], tmp_path / f"{kind}.onnx", quantize=kind).cosine > 0.99


@pytest.mark.slow
def test_it_predicts_and_fine_tunes(pair, tmp_path):
    ((label, _),) = keras_vit.predict(pair[2], np.zeros((40, 50, 3), "uint8"), top=1)
    assert label in ("a", "b", "c", "d")
    zoo.save(pair[2], tmp_path / "model.keras")
    tuned = zoo.load(tmp_path / "model.keras", num_classes=2)
    assert not tuned.config.unit_vectors and tuned.config.representation_size is None
    assert np.asarray(tuned(IMAGES)).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize(
    "change, message",
    [
        ({"class_vectors": np.ones((3, 7))}, r"\(n, 10\). Received: the shape \(3, 7\)"),
        ({"class_vectors": np.zeros((3, 10))}, "Row 0"),
        ({"class_vectors": np.full((3, 10), np.nan)}, "finite"),
        ({"class_vectors": np.ones(10)}, "Received: the shape"),
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"scale": float("inf")}, "scale must be a positive number"),
        ({"bias": [1.0, 2.0]}, "one for each of 4"),
        ({"labels": ["a"]}, "labels must name each class once"),
        ({"class_vectors": [["a"] * 12]}, "class_vectors must be numbers"),
        ({"probabilities": "max"}, "probabilities must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"class_vectors": draw_vectors(10), "scale": 1.0} | change
    with pytest.raises(ConfigError, match=message):
        zoo.zero_shot(model_of_vectors(10), arguments.pop("class_vectors"), **arguments)


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda: zoo.load("R50x1", weights=None), "Received: a ResNet"),
        (lambda: zoo.load("ViT-Test/4", weights=None, representation_size=8), "a tanh layer"),
        (lambda: zoo.load("ViT-Test/4", weights=None, labels=["a", "b"]), "a head of 2 classes"),
    ],
)
def test_models_that_give_no_vectors_are_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        zoo.zero_shot(model(), np.ones((2, 64)), scale=1.0)

"""Accuracy, intervals, calibration and per-class scores, against scikit-learn, SciPy and sums done by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from keras_vit import data, evaluation, zoo
from keras_vit.errors import ConfigError
from keras_vit.evaluation.scores import measure_calibration


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (23, 36), (9999, 10000), (50, 100), (0, 500)])
def test_interval_is_wilsons(right, count):
    expected = scipy.stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(evaluation.Share(right, count).interval, expected, atol=1e-12)


def stub(logits, labels, batch, weights=None):
    """A model of those logits, and examples of those labels."""
    weights = np.ones(len(labels), "float32") if weights is None else weights

    def batches(batch_size, preprocessing):
        numbers = np.arange(len(labels))
        return tf.data.Dataset.from_tensor_slices((numbers, labels, weights)).batch(batch)

    classes = logits.shape[-1]
    names = tuple(f"c{i}" for i in range(classes))
    kinds = {"masked": False, "multi_label": False}
    examples = SimpleNamespace(name="stub", num_classes=classes, class_names=names, evaluation=batches, **kinds)

    config = SimpleNamespace(num_classes=classes, probabilities="softmax", classifier="token")

    def predict(numbers):
        return logits[np.asarray(numbers)]

    return SimpleNamespace(config=config, preprocessing=None, predict_on_batch=predict), examples


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 203)
    logits = rng.normal(size=(203, 7)).astype("float32") * 2  # class 6 has no example
    logits[np.arange(203), labels] += 1.5
    return logits, labels


def test_against_scikit_learn(drawn):
    logits, labels = drawn
    found = evaluation.evaluate(*stub(logits, labels, 32))
    predicted = logits.argmax(-1)
    assert found.top1.value == pytest.approx(sklearn.metrics.accuracy_score(labels, predicted))
    assert found.top5.value == pytest.approx(sklearn.metrics.top_k_accuracy_score(labels, logits, k=5, labels=range(7)))
    np.testing.assert_array_equal(found.confusion, sklearn.metrics.confusion_matrix(labels, predicted, labels=range(7)))
    precision, recall, f1, count = sklearn.metrics.precision_recall_fscore_support(
        labels, predicted, labels=range(7), zero_division=0
    )
    assert [score.count for score in found.classes] == list(count)
    np.testing.assert_allclose([score.precision for score in found.classes], precision)
    assert found.classes[6].recall is None
    np.testing.assert_allclose([score.recall for score in found.classes[:6]], recall[:6])
    np.testing.assert_allclose([score.f1 or 0 for score in found.classes], f1)
    assert found.classes[6].f1 == 0  # it was predicted, and never right
    assert found.images_per_second > 0


def test_classes_are_matched_by_name(drawn):
    """A folder may have its classes in another order than the model, and not all of them."""
    logits, labels = drawn
    expected = evaluation.evaluate(*stub(logits, labels, 32))
    model, examples = stub(logits, np.array([3, 5, 0, 1, 4, 2])[labels], 32)
    model.labels, examples.class_names = tuple(f"c{i}" for i in range(7)), ("c2", "c3", "c5", "c0", "c4", "c1")
    examples.num_classes = 6
    found = evaluation.evaluate(model, examples)
    assert found.classes == expected.classes and found.top5 == expected.top5
    np.testing.assert_array_equal(found.confusion, expected.confusion)
    model.labels = (*model.labels[:6], "c6", "crane", "crane")  # as in ImageNet's list; no example is one
    model.config.num_classes = 9
    model.predict_on_batch = lambda numbers: np.pad(logits[np.asarray(numbers)], ((0, 0), (0, 2)), constant_values=-99)
    again = evaluation.evaluate(model, examples)
    assert again.top1 == expected.top1 and again.top5 == expected.top5
    examples.class_names = ("c2", "c3", "c5", "c0", "c4", "zebra")
    with pytest.raises(ConfigError, match="9 classes, stub has 6. Its labels have no 'zebra'"):
        evaluation.evaluate(model, examples)


def test_several_right_classes_are_matched_by_name():
    labels = np.array([[0, 1, 1], [1, 0, 0]], "float32")
    model, examples = stub(np.array([[3, 2, 1], [3, 2, 1]], "float32"), labels, 2)
    model.labels, examples.class_names = ("a", "b", "c"), ("c", "a", "b")
    assert (evaluation.evaluate(model, examples).top1.right, evaluation.evaluate(model, examples).top1.count) == (1, 2)


def test_names_that_differ_are_taken_by_their_order_and_said(drawn, caplog):
    logits, labels = drawn
    model, examples = stub(logits, labels, 32)
    model.labels = tuple(f"synset {i}" for i in range(7))
    assert evaluation.evaluate(model, examples).top1 == evaluation.evaluate(*stub(logits, labels, 32)).top1
    assert "no labels 'c0', 'c1', 'c2', 'c3', 'c4' and 2 more: classes are matched by their order" in caplog.text


def test_padding_is_left_out(drawn):
    logits, labels = drawn
    weights = np.arange(203) % 3 > 0
    kept = evaluation.evaluate(*stub(logits[weights], labels[weights], 32))
    padded = evaluation.evaluate(*stub(logits, labels, 50, weights.astype("float32")))
    assert kept.top1 == padded.top1 and kept.calibration_error == pytest.approx(padded.calibration_error)


@pytest.mark.parametrize("batch", [2, 8])
def test_examples_all_without_a_class(batch):
    labels = np.zeros((5, 7), "float32")
    model, examples = stub(np.zeros((5, 7), "float32"), labels, batch, weights=labels.sum(-1))
    with pytest.raises(ConfigError, match="None of the images of stub that can be read has a class to evaluate by"):
        evaluation.evaluate(model, examples)
    weights = np.float32([0, 0, 1, 0, 0])  # batches without any beside one with one
    model, examples = stub(
        np.zeros((5, 7), "float32"), np.eye(7, dtype="float32")[:5] * weights[:, None], batch, weights
    )
    assert evaluation.evaluate(model, examples).top1.count == 1


def test_examples_of_several_classes():
    """As ImageNet ReaL: any of an example's classes is right, and one without a class has weight 0."""
    logits = np.array([[3, 2, 1, 0, 0, 0], [3, 2, 1, 0, 0, 0], [3, 2, 1, 0.5, 0.4, 0], [3, 2, 1, 0, 0, 0]], "float32")
    labels = np.array([[0, 1, 1, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0] * 6], "float32")
    found = evaluation.evaluate(*stub(logits, labels, 2, np.array([1, 1, 1, 0], "float32")))
    assert (found.top1.right, found.top1.count) == (1, 3)
    assert (found.top5.right, found.top5.count) == (2, 3)
    assert found.classes == () and found.confusion is None


def test_ties_are_no_luck():
    """A model that always says the same is right for the first class alone, as argmax has it."""
    found = evaluation.evaluate(*stub(np.zeros((12, 6), "float32"), np.arange(12) % 6, 5))
    assert found.top1.right == 2 and found.top5.right == 10
    assert [score.count for score in found.classes] == [2] * 6


def test_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.55, 0.56, 1.0])
    right = np.array([True, False, True, True, True])
    bins = {14: [(0.95, 1), (0.95, 0), (1.0, 1)], 8: [(0.55, 1), (0.56, 1)]}
    by_hand = sum(abs(sum(r - c for c, r in members)) for members in bins.values()) / 5
    assert measure_calibration(confidence, right) == pytest.approx(by_hand)
    assert measure_calibration(np.ones(4), np.ones(4, bool)) == 0


def test_a_real_model_and_json():
    model = zoo.load("ViT-Test/4", weights=None, num_classes=10)
    told = []
    found = evaluation.evaluate(model, data.load("digits", "test"), 100, told.append)
    assert told[-1] == found.top1.count == 360
    read = json.loads(json.dumps(found.as_dict()))
    assert read["top1"]["accuracy"] == found.top1.value and len(read["classes"]) == 10
    with pytest.raises(ConfigError, match="has 5 classes, digits has 10"):
        evaluation.evaluate(zoo.load("ViT-Test/4", weights=None, num_classes=5), data.load("digits", "test"))

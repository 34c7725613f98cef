"""Few-shot least squares, against numpy's least squares of the same problem and sums done by hand."""

import subprocess
import sys

import numpy as np
import pytest

from keras_vit import evaluation
from keras_vit.errors import ConfigError


def clusters(seed, examples, width, classes=4):
    """Features of overlapping clusters, so that neither all nor none are classified well."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = np.tile(np.arange(classes), examples // classes)
    features = centres[labels] * 0.7 + rng.normal(size=(len(labels), width)) * rng.uniform(0.1, 3, width) + 5
    return features.astype("float32"), labels


def by_least_squares(train, labels, test, shots, seed, l2):
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(np.flatnonzero(labels == label)) for label in range(labels.max() + 1)]
    chosen = np.concatenate([order[:shots] for order in orders])
    x = train[chosen].astype("float64")
    mean, deviation = x.mean(0), x.std(0) + 1e-5

    def prepared(x):
        return np.hstack([(x - mean) / deviation, np.full((len(x), 1), 100.0)])

    targets = np.where(labels[chosen][:, None] == np.arange(labels.max() + 1), 1.0, -1.0)
    x = prepared(x)
    # A penalty is a row for each weight, which asks for zero.
    rows, wanted = (
        np.vstack([x, l2**0.5 * np.eye(x.shape[1])]),
        np.vstack([targets, np.zeros((x.shape[1], targets.shape[1]))]),
    )
    weights = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    return (prepared(test.astype("float64")) @ weights).argmax(-1)


@pytest.mark.parametrize("shots", [1, 5, 10, 25])
@pytest.mark.parametrize("width", [6, 150])
@pytest.mark.parametrize("seed", [0, 1])
def test_as_ridge_regression(shots, width, seed):
    """With more examples than features, and with fewer."""
    train, labels = clusters(seed, 200, width)
    test, truth = clusters(seed + 10, 400, width)
    predicted = by_least_squares(train, labels, test, shots, seed, 1024)
    accuracy = evaluation.few_shot(train, labels, test, truth, shots=shots, seed=seed)
    assert accuracy == pytest.approx(np.mean(predicted == truth), abs=1e-12)
    assert 0.3 < accuracy < 1


def test_what_is_asked_matters():
    train, labels = clusters(0, 200, 60)
    test, truth = clusters(1, 400, 60)
    found = {
        evaluation.few_shot(train, labels, test, truth, **asked)
        for asked in ({}, {"shots": 3}, {"seed": 1}, {"l2": 1e-3}, {"l2": 1e7})
    }
    assert len(found) == 5


def test_the_order_of_classes_and_a_far_mean_do_not_matter():
    train, labels = clusters(0, 200, 6)
    test, truth = clusters(1, 400, 6)
    plain = evaluation.few_shot(train, labels, test, truth, shots=50)
    renamed = evaluation.few_shot(train * 4 - 100, 3 - labels, test * 4 - 100, 3 - truth, shots=50)
    assert plain == pytest.approx(renamed, abs=0.005)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shots": 11}, "Class 0 has 10 training examples, and 11 shots need 11 of every class"),
        ({"shots": 0}, "shots must be at least 1. Received: 0"),
        ({"train_labels": np.repeat([0, 2], 20)}, "Class 1 has 0 training examples"),
        ({"train_labels": np.zeros(39, int)}, r"Received: shapes \(40, 6\) and \(39,\)"),
        ({"train_labels": np.zeros(40)}, "must be class numbers from 0. Received: float64"),
        ({"test_features": np.zeros((8, 5))}, "Received: 6 and 5"),
        ({"test_features": np.zeros((0, 6)), "test_labels": np.zeros(0, int)}, "at least one example"),
    ],
)
def test_bad_input_is_a_sentence(arguments, sentence):
    train, labels = clusters(0, 40, 6)
    given = {"train_features": train, "train_labels": labels, "test_features": train[:8], "test_labels": labels[:8]}
    with pytest.raises(ConfigError, match=sentence):
        evaluation.few_shot(**{**given, **arguments})


LARGE = """
import pathlib
import re
import numpy as np
from keras_vit import evaluation

labels = np.tile(np.arange(1000), 75)
features = np.empty((75_000, 1280), "float32")
rng, centres = np.random.default_rng(0), np.random.default_rng(1).normal(size=(1000, 1280)).astype("float32")
for i in range(0, 75_000, 1000):
    features[i : i + 1000] = centres + 3 * rng.normal(size=(1000, 1280))
train, test = slice(65_000), slice(65_000, None)
accuracy = evaluation.few_shot(features[train], labels[train], features[test], labels[test], shots=25)
# In GiB; ru_maxrss would begin with that of the parent.
print(accuracy, int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 2**20)
"""


@pytest.mark.long
@pytest.mark.slow
def test_65_000_features_of_1280_fit_in_2_gb():
    """The authors' ImageNet evaluator at the width of ViT-H: 25 shots of 1,000 classes, 10,000 test examples."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    accuracy, gigabytes = map(float, done.stdout.split())
    assert 0.9 < accuracy <= 1 and gigabytes < 2

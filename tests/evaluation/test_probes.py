"""k-NN and linear probes, against scikit-learn and DINO's votes written out; one table over models and probes."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from keras_vit import evaluation
from keras_vit.errors import ConfigError
from keras_vit.evaluation import probes


def clusters(seed, examples, width=12, classes=5, spread=0.9):
    """Features of overlapping clusters, of unequal lengths, so that neither all nor none are classified well."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = rng.integers(classes, size=examples)
    return (centres[labels] + rng.normal(0, spread, (examples, width))) * rng.uniform(0.1, 9, (examples, 1)), labels


@pytest.mark.parametrize("seed", [0, 1])
def test_neighbours_vote_as_scikit_learns_and_as_dinos(seed, monkeypatch):
    train, labels = clusters(seed, 300)
    test, truth = clusters(seed + 10, 200)
    monkeypatch.setattr(probes, "SIMILARITIES", 300 * 7)  # blocks of 7 test examples
    for k, temperature in ((20, 0.07), (1, 0.07), (50, 0.5), (10, 1e-3)):
        found = evaluation.nearest_neighbours(train, labels, test, k=k, temperature=temperature)
        weigh = lambda distances, t=temperature: np.exp(-distances / t)  # noqa: E731
        theirs = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=weigh).fit(train, labels)
        np.testing.assert_array_equal(found, theirs.predict(test))
        assert 0.5 < np.mean(found == truth) < 1
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test)]
    votes = np.zeros((200, 5))
    for i, row in enumerate(unit[1]):
        for j in np.argsort(-(unit[0] @ row))[:20]:
            votes[i, labels[j]] += np.exp(unit[0][j] @ row / 0.07)
    np.testing.assert_array_equal(evaluation.nearest_neighbours(train, labels, test), votes.argmax(1))
    for kind in ("float32", "float16"):
        found = evaluation.nearest_neighbours(train.astype(kind), labels, test.astype(kind))
        assert np.mean(found == votes.argmax(1)) > 0.98


def test_a_probe_is_scikit_learns_regression_with_the_best_penalty_of_the_part_held_out():
    (train, labels), (test, truth) = (clusters(seed, 100, width=4, classes=3) for seed in (0, 10))
    chosen = probes.choose_strength(train, labels, seed=3)
    held = probes.hold_out(labels, 3)
    assert {round(0.2 * n) for n in np.bincount(labels)} == set(np.bincount(labels[held]))

    def score(exponent):
        model = LogisticRegression(C=10.0**exponent, max_iter=1000).fit(train[~held], labels[~held])
        return model.score(train[held], labels[held])

    coarse = {exponent: score(exponent) for exponent in range(-6, 7, 2)}
    assert score(np.log10(chosen)) >= max(coarse.values())
    assert np.log10(chosen) * 8 == pytest.approx(round(np.log10(chosen) * 8), abs=1e-9)
    found = evaluation.linear_probe(train, labels, test, seed=3)
    np.testing.assert_array_equal(found, LogisticRegression(C=chosen, max_iter=1000).fit(train, labels).predict(test))
    assert 0.5 < np.mean(found == truth) < 1


def test_all_probes_of_one_pair_of_features():
    train, test = (clusters(seed, 100, width=4, classes=3) for seed in (0, 10))
    found = evaluation.probe(train, test, shots=(5, 10))
    right = {
        "20-NN": evaluation.nearest_neighbours(*train, test[0]),
        "linear": evaluation.linear_probe(*train, test[0]),
    }
    assert list(found) == ["20-NN", "linear", "5-shot", "10-shot"]
    assert {name: found[name].right for name in right} == {name: (y == test[1]).sum() for name, y in right.items()}
    shots = np.mean([evaluation.few_shot(*train, *test, shots=10, seed=seed) for seed in range(3)])
    assert found["10-shot"].value == pytest.approx(shots, abs=0.5 / 100 + 1e-9)


X, Y = clusters(0, 30)
BAD = {
    "k": (lambda: evaluation.nearest_neighbours(X, Y, X, k=31), "from 1 to the number of training examples, 30"),
    "temperature": (lambda: evaluation.nearest_neighbours(X, Y, X, temperature=0), "temperature positive"),
    "widths": (lambda: evaluation.nearest_neighbours(X, Y, X[:, 1:]), "one width. Received: 12 and 11"),
    "a vector": (lambda: evaluation.linear_probe(X, Y, X[0]), "one width. Received: 12 and no axis"),
    "labels": (lambda: evaluation.linear_probe(X, Y * 1.0, X), "class numbers from 0. Received: float64"),
    "one class": (lambda: evaluation.linear_probe(X, 0 * Y, X), "at least two classes"),
    "one of each": (lambda: evaluation.linear_probe(X, np.arange(30), X), "a class with two examples"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_sentence(name):
    call, sentence = BAD[name]
    with pytest.raises(ConfigError, match=sentence):
        call()

"""Probes of frozen features besides `few_shot`: votes of the nearest neighbours, and logistic regression."""

import warnings
from collections.abc import Sequence

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.frozen_features import SEEDS, few_shot, require_features, require_matching
from keras_vit.evaluation.scores import Share
from keras_vit.models.vectors import unit_vectors

NEIGHBOURS = 20
HELD_OUT = 0.2  # of each class, to choose the penalty of a regression by
SIMILARITIES = 1 << 25  # in memory at a time
STRENGTHS = (-6, -4, -2, 0, 2, 4, 6)  # decimal exponents of C at the begin of the search
FINEST = 1 / 8  # of a decade: the last step of the search (CLIP, arXiv 2103.00020, appendix A.3)
SMALL = 1 << 23  # up to so many feature values, one thread is used
MOST_STEPS = 1000  # of L-BFGS, as in CLIP's


def nearest_neighbours(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    k: int = NEIGHBOURS,
    temperature: float = 0.07,
) -> np.ndarray:
    """Predicts the class of each test example by the votes of its k nearest training examples: int (m,).

    As in DINO's evaluation (arXiv 2104.14294), the nearest have the largest cosines s, and each votes for its class
    with the weight exp(s / temperature). Among classes with equal votes the first wins.

    Args:
        train_features, train_labels: (n, d), and class numbers from 0, (n,), as `extract_features` gives them.
        test_features: (m, d).
        k: number of neighbours.
        temperature: a smaller one gives the nearest more weight.

    Raises:
        ConfigError: for shapes that do not fit, or a k that is not from 1 to n.

    >>> nearest_neighbours(np.eye(3), [0, 1, 2], [[1, 0.1, 0], [0, 0.2, 1]], k=2).tolist()
    [0, 2]
    """
    train, labels, test = require_matching(train_features, train_labels, test_features)
    if not 1 <= k <= len(train) or not temperature > 0:
        raise ConfigError(
            f"k must be from 1 to the number of training examples, {len(train)}, and temperature positive. "
            f"Received: k={k}, temperature={temperature}."
        )
    train, test = unit_vectors(train), unit_vectors(test)
    votes = np.zeros((len(test), labels.max() + 1))
    rows = max(1, SIMILARITIES // len(train))
    for start in range(0, len(test), rows):
        cosines = test[start : start + rows] @ train.T
        nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        cosines = np.take_along_axis(cosines, nearest, axis=1).astype("float64")
        weights = np.exp((cosines - cosines.max(1, keepdims=True)) / temperature)  # the same factor within a row
        places = np.arange(len(cosines))[:, None]
        np.add.at(votes[start : start + rows], (places, labels[nearest]), weights)
    return votes.argmax(1)


def hold_out(labels, seed):
    """A mask (n,) of examples to choose by: a fifth of each class, at least one, but never all."""
    rng, held = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        of_class = rng.permutation(np.flatnonzero(labels == label))
        count = max(1, round(HELD_OUT * len(of_class)))
        held[of_class[: min(count, len(of_class) - 1)]] = True
    return held


def fit_regression(features, labels, strength):
    """scikit-learn's logistic regression with the inverse penalty `strength`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # scikit-learn's own requirement

    # Threads for such small products cost more than they save, 50 times as much if the cores are busy.
    threads = threadpool_limits(1 if features.size < SMALL else None, user_api="blas")
    with warnings.catch_warnings(), threads:
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty of separable classes
        return LogisticRegression(C=strength, max_iter=MOST_STEPS).fit(features, labels)


def find_best(right):
    """The smallest exponent among those with the largest share."""
    return max(sorted(right), key=right.get)


def choose_strength(train: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Chooses the inverse penalty C of `linear_probe`: the one with the best accuracy on the held-out part.

    The search is that of CLIP's authors: 10^-6, 10^-4, ..., 10^6, then both sides of the best one at half the distance,
    and so on down to an eighth of a decade. Among equally good ones the smallest is chosen.
    """
    held = hold_out(labels, seed)
    if not held.any() or len(np.unique(labels[~held])) < 2:
        raise ConfigError(
            "The penalty is chosen by a fifth of the training examples of each class. Expected at least two classes, "
            "and a class with two examples."
        )

    def judge(exponent):
        return fit_regression(train[~held], labels[~held], 10.0**exponent).score(train[held], labels[held])

    right, distance = {float(exponent): judge(exponent) for exponent in STRENGTHS}, 2.0
    while distance > FINEST:
        best, distance = find_best(right), distance / 2
        right |= {e: judge(e) for e in (best - distance, best + distance) if abs(e) <= STRENGTHS[-1]}
    return 10.0 ** find_best(right)


def linear_probe(
    train_features: np.ndarray, train_labels: np.ndarray, test_features: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Predicts the class of each test example by logistic regression on unscaled features: int (m,).

    It is scikit-learn's, of at most 1,000 steps of L-BFGS. `choose_strength` chooses its penalty by a fifth of
    each class; then it is fitted to all training examples.

    Args:
        train_features, train_labels, test_features: as for `nearest_neighbours`.
        seed: seed of the choice of the examples that are held out.

    Raises:
        ConfigError: for shapes that do not fit, fewer than two classes, or no class with two examples.

    >>> linear_probe(np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4), [[1, 0.1, 0], [0, 0.2, 1]]).tolist()
    [0, 2]
    """
    train, labels, test = require_matching(train_features, train_labels, test_features)
    return fit_regression(train, labels, choose_strength(train, labels, seed)).predict(test)


def probe(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], shots: Sequence[int] = (5,)
) -> dict[str, Share]:
    """The test accuracy of each probe on the same features: {its name: a `Share`}.

    Args:
        train, test: features (n, d) and labels (n,), from `extract_features`.
        shots: shots of `few_shot`; its result is the mean over three choices, rounded to whole test examples.

    >>> features = np.repeat(np.eye(3), 6, axis=0), np.repeat([0, 1, 2], 6)
    >>> print(probe(features, features)["linear"])
    100.0% (18 of 18; 95% interval 82.4% to 100.0%)
    """
    test = require_features("test", *test)
    k, count = min(NEIGHBOURS, len(train[1])), len(test[1])
    predicted = {f"{k}-NN": nearest_neighbours(*train, test[0], k=k), "linear": linear_probe(*train, test[0])}
    right = {name: int((classes == test[1]).sum()) for name, classes in predicted.items()}
    for shot in shots:
        mean = np.mean([few_shot(*train, *test, shots=shot, seed=seed) for seed in SEEDS])
        right[f"{shot}-shot"] = round(float(mean) * count)
    return {name: Share(number, count) for name, number in right.items()}

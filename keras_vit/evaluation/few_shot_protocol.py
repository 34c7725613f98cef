"""Few-shot classification by least squares on frozen features (section 4.1), as the authors' evaluator computes it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.features import extract_features, require_features, require_one_width

if TYPE_CHECKING:
    from keras_vit.data import Examples

SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
BIAS = 100.0  # constant feature, so large that the penalty hardly affects its weight
SMALLEST_DEVIATION = 1e-5  # added to each feature's standard deviation
ROWS = 8192  # test features that are classified at a time, in float64


def choose(labels, shots, seed):
    """Indices of `shots` examples of each class, class by class."""
    if shots < 1:
        raise ConfigError(f"shots must be at least 1. Received: {shots}.")
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(np.flatnonzero(labels == label)) for label in range(labels.max() + 1)]
    fewest = min(map(len, orders))
    if fewest < shots:
        label = [len(order) for order in orders].index(fewest)
        raise ConfigError(
            f"Class {label} has {fewest} training examples, and {shots} shots need {shots} of every class. Take fewer "
            "shots, or more training examples."
        )
    return np.concatenate([order[:shots] for order in orders])


def fit(x, labels, l2):
    """Fits ridge regression to x (k, d) by the smaller of two Gram matrices; returns the classifier (n, d) -> (n,).

    scikit-learn's Ridge makes two more copies of x, 0.5 GB for 25 shots of 1,000 classes.
    """
    import scipy.linalg

    mean, deviation = x.mean(0), x.std(0) + SMALLEST_DEVIATION

    def standardized(x):
        return np.pad((x - mean) / deviation, ((0, 0), (0, 1)), constant_values=BIAS)

    def solve(gram, right):
        return scipy.linalg.solve(gram + l2 * np.eye(len(gram)), right, assume_a="pos")

    x, y = standardized(x), 2.0 * np.eye(labels.max() + 1)[labels] - 1.0
    if len(x) >= x.shape[1]:
        weights = solve(x.T @ x, x.T @ y)
    else:  # (X'X + l I)^-1 X' = X' (XX' + l I)^-1
        weights = x.T @ solve(x @ x.T, y)
    return lambda features: np.argmax(standardized(features) @ weights, axis=-1)


def few_shot(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    shots: int = 10,
    seed: int = 0,
    l2: float = 2.0**10,
) -> float:
    """The test accuracy, in [0, 1], of a linear map from features to {-1, 1} per class, fitted to few examples.

    The map is the closed-form solution of a ridge regression. Features are standardized by the moments of the chosen
    examples, and the constant feature 100 is added.

    Args:
        train_features: (n, d), such as those of `model.features`.
        train_labels: class numbers from 0, (n,).
        test_features: (m, d).
        test_labels: (m,).
        shots: examples of each class, chosen by `seed`; the paper's curves have 5 or 10 (Figures 4 and 8).
        seed: seed of the choice. With the same seed, the 5 examples of a class are among its 10.
        l2: the penalty of the squared weights.

    Raises:
        ConfigError: for shapes that do not fit, or a class with fewer training examples than `shots`.

    >>> features = np.repeat(np.eye(3), 5, axis=0)
    >>> labels = np.repeat([0, 1, 2], 5)
    >>> few_shot(features, labels, features, labels, shots=2)
    1.0
    """
    train_features, train_labels = require_features("train", train_features, train_labels)
    test_features, test_labels = require_features("test", test_features, test_labels)
    require_one_width(train_features, test_features)
    chosen = choose(train_labels, shots, seed)
    classify = fit(train_features[chosen].astype("float64"), train_labels[chosen], l2)
    right = sum(
        np.count_nonzero(classify(test_features[i : i + ROWS].astype("float64")) == test_labels[i : i + ROWS])
        for i in range(0, len(test_labels), ROWS)
    )
    return float(right / len(test_labels))


def evaluate_few_shot(
    model: keras.Model,
    train: "Examples",
    test: "Examples",
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    batch_size: int = 64,
    tell: Callable[[int], None] | None = None,
) -> dict[int, list[float]]:
    """Test accuracies in [0, 1] by least squares on frozen features: {shots: [one for each seed]}.

    Args:
        train, test: splits of a dataset, from `keras_vit.data.load`.
        shots: examples of each class.
        seeds: each chooses different examples; the authors use three.
        batch_size, tell: as for `extract_features`, for `train` and then for `test`.

    Raises:
        ConfigError: as for `few_shot`, such as for a class with too few examples.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> train, test = (keras_vit.data.load("digits", split) for split in ("train", "test"))
    >>> len(evaluate_few_shot(model, train, test, shots=[5])[5])
    3
    """
    train_set, test_set = (extract_features(model, split, batch_size, tell) for split in (train, test))
    return {count: [few_shot(*train_set, *test_set, shots=count, seed=seed) for seed in seeds] for count in shots}


class FewShot(keras.callbacks.Callback):
    """Few-shot accuracy while a model trains: the paper's on-the-fly evaluation (section 4.1, Figures 4 and 8).

    Adds "few_shot_5", the mean over the seeds, to the logs, and so to the history, of every `every`-th epoch.

    Args:
        train, test: splits of a dataset, from `keras_vit.data.load`; its classes need not be those of the training.
        shots: examples of each class.
        seeds: seeds of the choices to average over.
        every: epochs between two evaluations; the last epoch is always evaluated.
        batch_size: batch size of the evaluation.

    >>> callback = FewShot(keras_vit.data.load("digits"), keras_vit.data.load("digits", "test"), shots=[5, 10])
    """

    def __init__(
        self,
        train: "Examples",
        test: "Examples",
        shots: Sequence[int] = (5,),
        seeds: Sequence[int] = SEEDS,
        every: int = 1,
        batch_size: int = 64,
    ):
        super().__init__()
        self.train, self.test, self.shots, self.seeds, self.every = train, test, shots, seeds, every
        self.batch_size = batch_size

    def on_epoch_end(self, epoch, logs=None):
        last = epoch + 1 == self.params.get("epochs")
        if logs is None or ((epoch + 1) % self.every and not last):
            return
        found = evaluate_few_shot(self.model, self.train, self.test, self.shots, self.seeds, self.batch_size)
        logs.update({f"few_shot_{count}": float(np.mean(accuracies)) for count, accuracies in found.items()})

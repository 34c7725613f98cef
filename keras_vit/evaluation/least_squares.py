"""Few-shot classification by least squares on frozen features (section 4.1), as the authors' evaluator computes it."""

import numpy as np

from keras_vit.errors import ConfigError

BIAS = 100.0  # the constant feature: so large that the penalty hardly shrinks its weight
SMALLEST_DEVIATION = 1e-5  # added to each feature's standard deviation
ROWS = 8192  # of test features that are classified at a time, in float64


def few_shot(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    shots: int = 10,
    seed: int = 0,
    l2: float = 2.0**10,
) -> float:
    """The test accuracy, in [0, 1], of the linear map from features to {-1, 1} per class that few examples determine.

    The map solves a ridge regression in closed form. Features are standardized with the moments of the chosen
    examples, and get the constant feature 100.

    Args:
        train_features: (n, d), such as `model.features` gives.
        train_labels: class numbers from 0, (n,).
        test_features: (m, d).
        test_labels: (m,).
        shots: examples of each class, chosen by `seed`; the paper's curves have 5 or 10 (Figures 4 and 8).
        seed: of the choice. The same seed chooses 5 examples of a class among its 10.
        l2: the penalty of the squared weights.

    Raises:
        ConfigError: for shapes that do not fit, and for a class with fewer training examples than `shots`.

    >>> features = np.repeat(np.eye(3), 5, axis=0)
    >>> labels = np.repeat([0, 1, 2], 5)
    >>> few_shot(features, labels, features, labels, shots=2)
    1.0
    """
    train_features, train_labels = checked("train", train_features, train_labels)
    test_features, test_labels = checked("test", test_features, test_labels)
    if train_features.shape[1] != test_features.shape[1]:
        raise ConfigError(
            "Training and test features must have one width. "
            f"Received: {train_features.shape[1]} and {test_features.shape[1]}."
        )
    chosen = choose(train_labels, shots, seed)
    classify = fit(train_features[chosen].astype("float64"), train_labels[chosen], l2)
    right = sum(
        np.count_nonzero(classify(test_features[i : i + ROWS].astype("float64")) == test_labels[i : i + ROWS])
        for i in range(0, len(test_labels), ROWS)
    )
    return float(right / len(test_labels))


def checked(split, features, labels):
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ConfigError(
            f"{split}_features must be (n, d), and {split}_labels (n,), of at least one example. "
            f"Received: shapes {features.shape} and {labels.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ConfigError(f"{split}_labels must be class numbers from 0. Received: {labels.dtype} from {labels.min()}.")
    return features, labels


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
    """The classifier (n, d) -> (n,) that ridge regression makes of x (k, d), by the smaller of two Gram matrices."""
    mean, deviation = x.mean(0), x.std(0) + SMALLEST_DEVIATION

    def standardized(x):
        return np.pad((x - mean) / deviation, ((0, 0), (0, 1)), constant_values=BIAS)

    x, y = standardized(x), 2.0 * np.eye(labels.max() + 1)[labels] - 1.0
    if len(x) >= x.shape[1]:
        weights = solve(x.T @ x, x.T @ y, l2)
    else:  # (X'X + l I)^-1 X' = X' (XX' + l I)^-1
        weights = x.T @ solve(x @ x.T, y, l2)
    return lambda features: np.argmax(standardized(features) @ weights, axis=-1)


def solve(gram, right, l2):
    """(gram + l2 I)^-1 right, by eigendecomposition."""
    values, vectors = np.linalg.eigh(gram)
    return vectors @ ((vectors.T @ right) / (values + l2)[:, None])

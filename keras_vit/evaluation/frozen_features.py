"""Frozen features, and few-shot classification on them by least squares (section 4.1), as in the authors' evaluator."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.predictions import predict_batches
from keras_vit.models.preprocessing import require_described
from keras_vit.models.vectors import vector_reader

if TYPE_CHECKING:
    from keras_vit.data import Examples

BEFORE_CROP = 256 / 224  # the authors resize to 256 by 256, and crop the central 224 by 224
SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
PENALTY = 2.0**10
BIAS = 100.0  # constant feature, so large that the penalty hardly affects its weight
SMALLEST_DEVIATION = 1e-5  # added to each feature's standard deviation
ROWS = 8192  # test features that are classified at a time


def require_features(split, features, labels):
    """Checks features (n, d) and class numbers (n,), and returns them as arrays."""
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ConfigError(
            f"{split}_features must be (n, d), and {split}_labels (n,), of at least one example. "
            f"Received: shapes {features.shape} and {labels.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ConfigError(f"{split}_labels must be class numbers from 0. Received: {labels.dtype} from {labels.min()}.")
    return features, labels


def require_matching(train_features, train_labels, test_features):
    """Checks training features and labels, and that test features are (m, d) too; returns the three as arrays."""
    train, labels = require_features("train", train_features, train_labels)
    test = np.asarray(test_features)
    if test.ndim != 2 or train.shape[1] != test.shape[1]:
        received = " and ".join(",".join(map(str, x.shape[1:])) or "no axis" for x in (train, test))
        raise ConfigError(f"Training and test features must have one width. Received: {received}.")
    return train, labels, test


def extract_features(
    model: Any, examples: "Examples", batch_size: int = 64, tell: Callable[[int], None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The features that the head reads, of every example once: float32 (n, d), and labels int (n,).

    Images are resized as in the authors' few-shot evaluation: to a square with 256 / 224 times the model's size,
    without keeping the aspect ratio, and then cropped at the centre.

    Args:
        model: a model of this package, trained or not; or an exported one that gives vectors.
        examples: from `keras_vit.data.load`, with one class each.
        batch_size, tell: as for `evaluate`.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> extract_features(model, keras_vit.data.load("digits", "test"))[0].shape
    (360, 64)
    """
    model = getattr(model, "encoder", model)  # a MaskedPatchModel has one
    require_described(model)
    if examples.masked:
        raise ConfigError(f"Features are judged by one class per example, but {examples.name} has one for each pixel.")
    reader = vector_reader(model, "features")
    batches = examples.evaluation(
        batch_size, dataclasses.replace(model.preprocessing, crop=1 / BEFORE_CROP, crop_mode="squash")
    )
    features, labels, done = np.empty((0, 0), "float32"), [], 0
    for _, _, batch_labels, outputs in predict_batches(reader, batches, tell):
        if batch_labels.ndim > 1:
            raise ConfigError(f"Features are judged by one class per example, but {examples.name} has several.")
        if not done:  # its pages take memory only when written
            features = np.empty((examples.num_examples, outputs.shape[-1]), "float32")
        features[done : done + len(outputs)] = outputs
        labels.append(batch_labels)
        done += len(outputs)
    return features[:done], np.concatenate(labels).astype(int)


def choose(labels, shots, seed, class_names=None):
    """Indices of `shots` examples of each class, class by class; those of the label -1 are never chosen."""
    if shots < 1:
        raise ConfigError(f"shots must be at least 1. Received: {shots}.")
    rng = np.random.default_rng(seed)
    count = len(class_names) if class_names else labels.max() + 1
    orders = [rng.permutation(np.flatnonzero(labels == label)) for label in range(count)]
    fewest = min(map(len, orders))
    if fewest < shots:
        label = [len(order) for order in orders].index(fewest)
        named = class_names[label] if class_names else label
        raise ConfigError(
            f"Class {named} has {fewest} training examples, and {shots} shots need {shots} of every class. Take fewer "
            "shots, or more training examples."
        )
    return np.concatenate([order[:shots] for order in orders])


def fit(x, labels, l2):
    """Fits ridge regression to x (k, d) in float64, by the smaller of two Gram matrices; returns the classifier
    (n, d) -> (n,).

    scikit-learn's Ridge makes two more copies of x, 0.5 GB for 25 shots of 1,000 classes.
    """
    import scipy.linalg

    mean, deviation = x.mean(0, dtype="float64"), x.std(0, dtype="float64") + SMALLEST_DEVIATION

    def standardized(x):
        result = np.full((len(x), x.shape[1] + 1), BIAS)
        np.subtract(x, mean, out=result[:, :-1])
        result[:, :-1] /= deviation
        return result

    def solve(gram, right):
        return scipy.linalg.solve(gram + l2 * np.eye(len(gram)), right, assume_a="pos")

    x, y = standardized(x), np.full((len(x), labels.max() + 1), -1.0)
    y[np.arange(len(x)), labels] = 1.0
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
    l2: float = PENALTY,
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
    test_features, test_labels = require_features("test", test_features, test_labels)
    train_features, train_labels, test_features = require_matching(train_features, train_labels, test_features)
    chosen = choose(train_labels, shots, seed)
    return score(train_features[chosen], train_labels[chosen], test_features, test_labels, l2)


def score(features, labels, test_features, test_labels, l2=PENALTY):
    """The test accuracy of the classifier fitted to all of these features."""
    classify = fit(features, labels, l2)
    right = sum(
        np.count_nonzero(classify(test_features[i : i + ROWS]) == test_labels[i : i + ROWS])
        for i in range(0, len(test_labels), ROWS)
    )
    return float(right / len(test_labels))


def extract_chosen(model, train, shots, seeds, batch_size):
    """The features and labels of all examples that `few_shot` chooses, and {(shots, seed): which of them are chosen}.

    Only their images are read. After an unreadable one, examples are chosen again without it.
    """
    labels = np.array(train.source.labels)
    while True:
        chosen = {(k, seed): choose(labels, k, seed, train.class_names) for k in shots for seed in seeds}
        numbers = np.unique(np.concatenate(list(chosen.values())))
        subset = dataclasses.replace(train, source=train.source.take(numbers))
        features, found = extract_features(model, subset, batch_size)
        if len(found) == len(numbers):
            return features, found, {key: np.searchsorted(numbers, indices) for key, indices in chosen.items()}
        labels[numbers[sorted(subset.unreadable.seen)]] = -1


def evaluate_few_shot(
    model: keras.Model,
    train: "Examples",
    test: "Examples",
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    batch_size: int = 64,
) -> dict[int, list[float]]:
    """Test accuracies in [0, 1] by least squares on frozen features: {shots: [one for each seed]}.

    Args:
        train, test: splits of a dataset, from `keras_vit.data.load`.
        shots: examples of each class.
        seeds: each chooses different examples; the authors use three.
        batch_size: affects only the time.

    Raises:
        ConfigError: as for `few_shot`, such as for a class with too few examples.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> train, test = (keras_vit.data.load("digits", split) for split in ("train", "test"))
    >>> len(evaluate_few_shot(model, train, test, shots=[5])[5])
    3
    """
    stored = train.source.labels  # None for a stream, whose labels are read with its images
    if stored is None or np.ndim(stored) != 1 or train.masked:
        train_set, test_set = (extract_features(model, split, batch_size) for split in (train, test))
        return {count: [few_shot(*train_set, *test_set, shots=count, seed=seed) for seed in seeds] for count in shots}
    features, labels, rows = extract_chosen(model, train, shots, seeds, batch_size)
    test_set = require_features("test", *extract_features(model, test, batch_size))
    return {
        count: [score(features[rows[count, seed]], labels[rows[count, seed]], *test_set) for seed in seeds]
        for count in shots
    }


class FewShot(keras.callbacks.Callback):
    """Few-shot accuracy while a model trains: the paper's on-the-fly evaluation (section 4.1, Figures 4 and 8).

    Adds "few_shot_5", the mean over the seeds, to the logs, and so to the history, of every `every`-th epoch.

    Args:
        train, test, shots, seeds: as for `evaluate_few_shot`; the classes need not be those of the training.
        every: epochs between two evaluations; the last epoch is always evaluated.

    >>> callback = FewShot(keras_vit.data.load("digits"), keras_vit.data.load("digits", "test"), shots=[5, 10])
    """

    def __init__(
        self,
        train: "Examples",
        test: "Examples",
        shots: Sequence[int] = (5,),
        seeds: Sequence[int] = SEEDS,
        every: int = 1,
    ):
        super().__init__()
        self.train, self.test, self.shots, self.seeds, self.every = train, test, shots, seeds, every

    def on_epoch_end(self, epoch, logs=None):
        last = epoch + 1 == self.params.get("epochs")
        if logs is None or ((epoch + 1) % self.every and not last):
            return
        found = evaluate_few_shot(self.model, self.train, self.test, self.shots, self.seeds)
        logs.update({f"few_shot_{count}": float(np.mean(accuracies)) for count, accuracies in found.items()})

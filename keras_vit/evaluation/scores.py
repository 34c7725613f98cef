"""Scores of predictions: shares with intervals, calibration, precision and recall of each class. NumPy alone."""

from dataclasses import asdict, dataclass

import numpy as np

Z95 = 1.959963984540054  # 97.5 % of a normal distribution are below
BINS = 15  # of the calibration error (arXiv 1706.04599, section 3)


@dataclass(frozen=True)
class Share:
    """The share of the examples that were predicted correctly.

    >>> print(Share(23, 36))
    63.9% (23 of 36; 95% interval 47.6% to 77.5%)
    """

    right: int
    count: int

    @property
    def value(self) -> float:
        """In [0, 1]."""
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval: for 95 % of such samples it contains the share of unlimited data."""
        n, p = self.count, self.value
        middle = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
        reach = Z95 / (1 + Z95**2 / n) * np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
        return max(0.0, float(middle - reach)), min(1.0, float(middle + reach))

    def as_dict(self) -> dict:
        """The fields as types of JSON."""
        return {**asdict(self), "accuracy": self.value, "interval_95": list(self.interval)}

    def __str__(self):
        low, high = self.interval
        return f"{self.value:.1%} ({self.right:,} of {self.count:,}; 95% interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class ClassScore:
    """A class: its number of examples, and the shares of its predictions and of its examples that are correct.

    `precision` is None for a class that was never predicted, `recall` for one without examples, and `f1`, the harmonic
    mean of the two, for a class that has neither.
    """

    name: str
    count: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a dataset.

    Args:
        top1: share of examples whose most likely class is correct; if they have several classes, one of these.
        top5: share of examples with a correct class among the five most likely; None for five classes or fewer.
        calibration_error: expected difference between confidence and accuracy, over 15 bins of confidence, in [0, 1].
        classes: one `ClassScore` per class; empty if examples have several classes.
        confusion: counts (true classes, predicted classes); None if `classes` is empty.
        images_per_second: of the model and its input together, without the first batch.
    """

    top1: Share
    top5: Share | None
    calibration_error: float
    classes: tuple[ClassScore, ...]
    confusion: np.ndarray | None
    images_per_second: float | None = None

    def as_dict(self) -> dict:
        """The fields as types of JSON."""
        shares = {name: share.as_dict() for name, share in (("top1", self.top1), ("top5", self.top5)) if share}
        return {
            **shares,
            "calibration_error": self.calibration_error,
            "classes": [asdict(score) for score in self.classes],
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "images_per_second": self.images_per_second,
        }


def measure_calibration(confidence: np.ndarray, right: np.ndarray) -> float:
    """The expected calibration error of confidences (n,) in [0, 1], given whether each was correct, bool (n,)."""
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def count_confusion(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts (true classes, predicted classes) of examples."""
    return np.bincount(labels * num_classes + predicted, minlength=num_classes**2).reshape(num_classes, num_classes)


def share(part, whole):
    """part / whole; None for a whole of 0."""
    return float(part / whole) if whole else None


def score_classes(confusion: np.ndarray, names: tuple) -> tuple[ClassScore, ...]:
    predicted, count, right = confusion.sum(0), confusion.sum(1), confusion.diagonal()
    return tuple(
        ClassScore(str(name), int(n), share(hits, guesses), share(hits, n), share(2 * hits, n + guesses))
        for name, n, guesses, hits in zip(names, count, predicted, right, strict=True)
    )

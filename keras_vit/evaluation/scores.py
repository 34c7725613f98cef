"""Scores of predictions: shares with intervals, calibration, scores of each class; a comparison of models by them."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from keras_vit.pages import write_figure

Z95 = 1.959963984540054  # 97.5 % of a normal distribution are below
BINS = 15  # of the calibration error (arXiv 1706.04599, section 3)
LOSS = 0.005  # of accuracy, compared with the best, that a smaller file may lose


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


@dataclass(frozen=True)
class Candidate:
    """The measurements of a model or an exported file.

    Args:
        name: as it was given; for a bundle with the name of the file in it.
        top1: its accuracy.
        predicted: the most likely class of every example, (n,).
        bytes: size of the file or folder; None for a model without its own file.
        milliseconds: time to predict one image, without preprocessing.
        memory: bytes that its process used to open it and to predict.
    """

    name: str
    top1: Share
    predicted: np.ndarray = field(repr=False)
    bytes: int | None
    milliseconds: float
    memory: int

    def agreement(self, other: "Candidate") -> float:
        """Share of the examples for which both predict the same class."""
        return float(np.mean(self.predicted == other.predicted))

    def as_dict(self, first: "Candidate") -> dict:
        """The fields as types of JSON, with the agreement with `first`."""
        return {
            "name": self.name,
            "top1": self.top1.value,
            "interval": list(self.top1.interval),
            "count": self.top1.count,
            "agreement": self.agreement(first),
            "bytes": self.bytes,
            "milliseconds": self.milliseconds,
            "memory": self.memory,
        }


def size_on_disk(path: str | os.PathLike) -> int | None:
    """Bytes of a file, or of all files in a folder; None if there is neither."""
    path = Path(path)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) or None


def recommend(candidates: Sequence[Candidate]) -> tuple[Candidate, str]:
    """Chooses the smallest candidate within half a point of the best, the fastest of equal sizes; adds a reason.

    >>> small, large = (Candidate(f"{n}.onnx", Share(9, 10), np.zeros(10), n, 1.0, n) for n in (1, 2))
    >>> recommend([large, small])[0].name
    '1.onnx'
    """
    best = max(candidates, key=lambda candidate: candidate.top1.value)
    near = [c for c in candidates if best.top1.right - c.top1.right < LOSS * best.top1.count]
    chosen = min(near, key=lambda c: (c.bytes is None, c.bytes, c.milliseconds))
    lost = 100 * (best.top1.value - chosen.top1.value)
    kept = f"and loses {lost:.2g} points to the best, {best.name}" if lost else "and none is more accurate"
    fastest = min(near, key=lambda c: c.milliseconds)
    faster = "" if fastest is chosen else f" {fastest.name} is faster: {fastest.milliseconds:.1f} ms an image."
    if len(near) == 1:
        return chosen, f"Take {chosen.name}: every other one loses at least {100 * LOSS:g} points."
    return chosen, f"Take {chosen.name}: it is the smallest that loses under {100 * LOSS:g} points, {kept}.{faster}"


def draw_comparison(candidates: Sequence[Candidate], path: str | os.PathLike) -> None:
    """Writes a figure of accuracy, with its interval, over size and over time, with a point for each candidate."""
    with write_figure(path, 11, 4.5) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, unit, read in (
            (axes[0], "size, MB", lambda c: c.bytes and c.bytes / 1e6),
            (axes[1], "time of an image, ms", lambda c: c.milliseconds),
        ):
            for candidate in candidates:
                if (x := read(candidate)) is None:
                    continue
                low, high = (100 * end for end in candidate.top1.interval)
                y = 100 * candidate.top1.value
                axis.errorbar(x, y, [[y - low], [high - y]], fmt="o", capsize=3)
                axis.annotate(candidate.name, (x, y), (6, 4), textcoords="offset points", fontsize=8, parse_math=False)
            axis.set(xlabel=unit, xlim=(0, None))
            axis.margins(x=0.25)
            axis.grid()
        axes[0].set_ylabel("top-1 accuracy, %, with its 95 % interval")

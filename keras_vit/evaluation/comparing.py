"""Compares models and exported files by accuracy, size, time and memory, and recommends one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from keras_vit.evaluation.scores import Share
from keras_vit.pages import write_figure

LOSS = 0.005  # of accuracy, compared with the best, that a smaller file may lose


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
    near = [c for c in candidates if c.top1.value >= best.top1.value - LOSS]
    chosen = min(near, key=lambda c: (c.bytes is None, c.bytes, c.milliseconds))
    lost = 100 * (best.top1.value - chosen.top1.value)
    kept = f"and loses {lost:.1f} points to the best, {best.name}" if lost else "and none is more accurate"
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

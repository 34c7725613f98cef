"""Comparing an artefact with its model: numbers over several pictures and batch sizes."""

import dataclasses
from dataclasses import dataclass

import numpy as np

BATCHES = (1, 3)


@dataclass(frozen=True)
class Difference:
    """See the fields of the same names in `Report`. `varies`: whether the outputs of the pictures differ at all."""

    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    top1_agreement: float | None
    top5_agreement: float | None
    top1_regret: float | None
    varies: bool

    def numbers(self):
        """The fields that a `Report` has."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "varies"}


def difference(expected, received):
    """Compares two lists of outputs (n, ...) of equal shapes; the worst of all outputs counts."""
    pairs = list(zip(expected, received, strict=True))
    absolute = [float(np.abs(a.astype("float64") - b).max(initial=0)) for a, b in pairs]
    # A zero-initialized head gives zeros only; its differences count as they are.
    scales = [float(np.abs(a).max(initial=0)) or 1.0 for a, _ in pairs]
    classes = next(((a, b) for a, b in pairs if a.ndim == 2 and a.shape[1] > 1), None)
    return Difference(
        max_abs_diff=worst(absolute),
        max_rel_diff=worst([d / scale for d, scale in zip(absolute, scales, strict=True)]),
        cosine=min(cosine(a, b) for a, b in pairs),
        top1_agreement=None if classes is None else agreement(*classes, 1),
        top5_agreement=None if classes is None else agreement(*classes, min(5, classes[0].shape[1])),
        top1_regret=None if classes is None else regret(*classes),
        varies=any(
            np.ptp(a, axis=0).max(initial=0) > 1e-4 * scale for (a, _), scale in zip(pairs, scales, strict=True)
        ),
    )


def worst(values):
    """The largest; NaN where any is, which `max` would hide."""
    return float(np.max(values))


def cosine(a, b):
    """Smallest cosine between corresponding pictures; two zero vectors agree.

    Where a picture gives one number, all pictures together make the vector: alone it has only a sign.
    """
    a, b = (x.reshape(1 if x.size == len(x) else len(x), -1).astype("float64") for x in (a, b))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = (norms == 0) & (a == b).all(axis=1)
    return float(np.min(np.where(same, 1.0, (a * b).sum(axis=1) / np.where(norms == 0, 1.0, norms))))


def regret(a, b):
    """How far below its own best the model `a` puts the class that `b` puts first: the worst picture's, over the range
    of all of a's outputs. A near tie that turns costs next to nothing; NaN where `b` has one."""
    a = a.astype("float64")
    if np.isnan(b).any():
        return float("nan")
    lost = a.max(axis=1) - a[np.arange(len(a)), b.argmax(axis=1)]
    return float(lost.max(initial=0) / (np.ptp(a) or 1.0))


def agreement(a, b, k):
    """Mean part of the k best classes that both have."""
    best = [np.argsort(-x, axis=1, kind="stable")[:, :k] for x in (a, b)]
    return float(np.mean([len(set(x) & set(y)) / k for x, y in zip(*best, strict=True)]))

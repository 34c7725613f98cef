"""How far an artefact's outputs are from its model's, in numbers."""

import dataclasses
from dataclasses import dataclass

import numpy as np

BATCHES = (1, 3)


@dataclass(frozen=True)
class Difference:
    """See the fields of the same names in `Report`. `varies`: whether different images have different outputs."""

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


def compare_outputs(expected, received):
    """Compares two lists of outputs (n, ...) of equal shapes; the worst of all outputs counts."""
    pairs = list(zip(expected, received, strict=True))
    absolute = [float(np.abs(a.astype("float64") - b).max(initial=0)) for a, b in pairs]
    # The outputs of a zero-initialized head are all zero: then the absolute difference counts.
    scales = [float(np.abs(a).max(initial=0)) or 1.0 for a, _ in pairs]
    classes = next(((a, b) for a, b in pairs if a.ndim == 2 and a.shape[1] > 1), None)
    return Difference(
        max_abs_diff=largest(absolute),
        max_rel_diff=largest([d / scale for d, scale in zip(absolute, scales, strict=True)]),
        cosine=min(cosine(a, b) for a, b in pairs),
        top1_agreement=None if classes is None else class_agreement(*classes, 1),
        top5_agreement=None if classes is None else class_agreement(*classes, min(5, classes[0].shape[1])),
        top1_regret=None if classes is None else top1_regret(*classes),
        varies=any(
            np.ptp(a, axis=0).max(initial=0) > 1e-4 * scale for (a, _), scale in zip(pairs, scales, strict=True)
        ),
    )


def largest(values):
    """The largest value; NaN if any is, which `max` would hide."""
    return float(np.max(values))


def cosine(a, b):
    """Smallest cosine between corresponding images; two zero vectors agree.

    Where an image has one number as output, all images together make the vector: one number has only a sign.
    """
    a, b = (x.reshape(1 if x.size == len(x) else len(x), -1).astype("float64") for x in (a, b))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    same = (norms == 0) & (a == b).all(axis=1)
    return float(np.min(np.where(same, 1.0, (a * b).sum(axis=1) / np.where(norms == 0, 1.0, norms))))


def top1_regret(a, b):
    """The model's score of its own best class less its score of the artefact's best class, as a share of the range of
    all the model's outputs; the largest of all images.

    Two classes with nearly equal scores may change places at next to no cost. NaN if the artefact's outputs `b` have
    one; `a` are the model's.
    """
    a = a.astype("float64")
    if np.isnan(b).any():
        return float("nan")
    lost = a.max(axis=1) - a[np.arange(len(a)), b.argmax(axis=1)]
    return float(lost.max(initial=0) / (np.ptp(a) or 1.0))


def class_agreement(a, b, k):
    """Mean share of the k best classes that both have in common."""
    best = [np.argsort(-x, axis=1, kind="stable")[:, :k] for x in (a, b)]
    return float(np.mean([len(set(x) & set(y)) / k for x, y in zip(*best, strict=True)]))

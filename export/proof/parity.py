"""How far an artefact's outputs are from its model's, in numbers."""

import dataclasses
from dataclasses import dataclass

import numpy as np

BATCHES = (1, 3)


@dataclass(frozen=True)
class Difference:
    """See the fields of the same names in `Report`. `varies`: whether different images differ in every output."""

    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    top1_agreement: float | None
    top5_agreement: float | None
    top1_regret: float | None
    further_outputs: dict[str, float]
    varies: bool

    def numbers(self):
        """The fields that a `Report` has."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "varies"}


def compare_outputs(expected, received, further_outputs=()):
    """Compares two lists of outputs (n, ...) of equal shapes; the worst of all outputs counts.

    Args:
        further_outputs: the names of the last of them.
    """
    pairs = list(zip(expected, received, strict=True))
    absolute = [largest_difference(a, b) for a, b in pairs]
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
        further_outputs=dict(zip(further_outputs, absolute[len(absolute) - len(further_outputs) :], strict=True)),
        varies=all(
            np.ptp(a, axis=0).max(initial=0) > 1e-4 * scale for (a, _), scale in zip(pairs, scales, strict=True)
        ),
    )


def largest_difference(a, b):
    """Between two arrays (n, ...), an image at a time, since attention weights are large."""
    return largest([float(np.abs(x.astype("float64") - y).max(initial=0)) for x, y in zip(a, b, strict=True)])


def largest(values):
    """The largest value; NaN if any is, which `max` would hide."""
    return float(np.max(values))


def cosine(a, b):
    """Smallest cosine between corresponding images; two zero vectors agree.

    Where an image has one number as output, all images together make the vector: one number has only a sign.
    """
    a, b = (x.reshape(1 if x.size == len(x) else len(x), -1) for x in (a, b))
    return float(np.min([vector_cosine(x.astype("float64"), y.astype("float64")) for x, y in zip(a, b, strict=True)]))


def vector_cosine(x, y):
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return x @ y / norms if norms else float((x == y).all())


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

"""Bounds on the difference between outputs of an artefact and its model: a row for each value of `quantize`."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.formats import Format, Quantize

BATCHES = (1, 3)


@dataclass(frozen=True)
class Difference:
    """See the fields of the same names in `Report`. `varies`: whether every output differs between images."""

    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    top1_agreement: float | None
    top5_agreement: float | None
    top1_regret: float | None
    further_outputs: dict[str, float]
    varies: bool

    def numbers(self):
        """The fields that are also in a `Report`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "varies"}


def compare_outputs(expected, received, further_outputs=(), classify=True):
    """Compares two lists of outputs (n, ...); the worst counts. Only `further_outputs`, the last ones, have names.

    `classify`: whether the first row of numbers for an image is of classes, not a vector.
    """
    pairs = list(zip(expected, received, strict=True))
    absolute = [largest_difference(a, b) for a, b in pairs]
    # The outputs of a zero-initialized head are all zero: then the absolute difference counts.
    scales = [float(np.abs(a).max(initial=0)) or 1.0 for a, _ in pairs]
    classes = next(((a, b) for a, b in pairs if classify and a.ndim == 2 and a.shape[1] > 1), None)
    return Difference(
        max_abs_diff=largest(absolute),
        max_rel_diff=largest([d / scale for d, scale in zip(absolute, scales, strict=True)]),
        cosine=min(cosine(a, b) for a, b in pairs),
        top1_agreement=None if classes is None else class_agreement(*classes, 1),
        top5_agreement=None if classes is None else class_agreement(*classes, min(5, classes[0].shape[1])),
        top1_regret=None if classes is None else top1_regret(*classes),
        further_outputs=dict(zip(further_outputs, absolute[len(absolute) - len(further_outputs) :], strict=True)),
        varies=all(
            np.ptp(a.astype("float64"), axis=0).max(initial=0) > 1e-4 * scale
            for (a, _), scale in zip(pairs, scales, strict=True)
        ),
    )


def largest_difference(a, b):
    """The largest difference between two arrays (n, ...), by image, since attention weights are large."""
    return largest([float(np.abs(x.astype("float64") - y).max(initial=0)) for x, y in zip(a, b, strict=True)])


def largest(values):
    """The largest value; NaN if any value is NaN, unlike `max`."""
    return float(np.max(values))


def cosine(a, b):
    """Smallest cosine between corresponding images; two zero vectors agree.

    If the output is one number per image, the vector is that of all images, since a single number has only a sign.
    """
    a, b = (x.reshape(1 if x.size == len(x) else len(x), -1) for x in (a, b))
    return float(np.min([vector_cosine(x.astype("float64"), y.astype("float64")) for x, y in zip(a, b, strict=True)]))


def vector_cosine(x, y):
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return x @ y / norms if norms else float((x == y).all())


def top1_regret(a, b):
    """The model's score of its own best class minus its score of the artefact's best class, as a share of the range of
    all the model's outputs; the largest of all images.

    If two classes with nearly equal scores change places, it is nearly 0. It is NaN if the artefact's outputs `b` have
    a NaN; `a` are the model's.
    """
    a = a.astype("float64")
    if np.isnan(b).any():
        return float("nan")
    lost = a.max(axis=1) - a[np.arange(len(a)), b.argmax(axis=1)]
    return float(lost.max(initial=0) / (np.ptp(a) or 1.0))


def class_agreement(a, b, k):
    """Mean share of the k best classes that both have in common."""
    best = [np.argsort(-x.astype("float64"), axis=1, kind="stable")[:, :k] for x in (a, b)]
    return float(np.mean([len(set(x) & set(y)) / k for x, y in zip(*best, strict=True)]))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row: whether to calibrate and to choose ways, and how close the outputs must be.

    Args:
        calibrated: whether to measure the ranges of activations on images beforehand.
        finer: whether to store layers that cost too much more finely; see `proof.mixture`.
        max_rel_diff: bound on the difference over the largest output; see `Report`.
        cosine: bound on the smallest cosine between outputs.
        top1_regret: bound on how much lower the model scores the artefact's best class than its own; see `Report`.
    """

    name: Quantize | None
    calibrated: bool = False
    finer: bool = False
    max_rel_diff: float
    cosine: float
    top1_regret: float

    def broken_bounds(self, found: Difference) -> list[str]:
        """A phrase for each bound that `found` exceeds; NaN exceeds all."""
        broken = []
        if not found.max_rel_diff <= self.max_rel_diff:
            broken.append(("largest difference over the largest output", found.max_rel_diff, self.max_rel_diff))
        if not found.cosine >= self.cosine:
            broken.append(("smallest cosine", found.cosine, self.cosine))
        if found.top1_regret is not None and not found.top1_regret <= self.top1_regret:
            broken.append(("top-1 regret", found.top1_regret, self.top1_regret))
        return [f"{words}: {value:.2g} (allowed {bound:g})" for words, value, bound in broken]


IN_INT8: dict[str, Any] = {"finer": True, "max_rel_diff": 0.3, "cosine": 0.96, "top1_regret": 0.12}
KINDS = (
    Kind(name=None, max_rel_diff=2e-4, cosine=0.9999, top1_regret=1e-3),
    # Weights in float16, computed in float32.
    Kind(name="float16", max_rel_diff=3e-2, cosine=0.999, top1_regret=0.03),
    # Weights in int8, ranges of activations measured at run time.
    Kind(name="dynamic", **IN_INT8),
    # Weights and activations of the products in int8, ranges calibrated on images.
    Kind(name="int8", calibrated=True, **IN_INT8),
)


def choose_kind(quantize: str | None, form: Format) -> Kind:
    """The row of a name; ExportError for an unknown one, or a kind that the format `form` lacks."""
    possible = (None, *form.quantize)
    for kind in KINDS:
        if kind.name == quantize and kind.name in possible:
            return kind
    if not form.quantize:
        raise ExportError(
            f"The {form.title} artefact stays in float32: leave out quantize. Received: quantize={quantize!r}."
        )
    choices = ", ".join(repr(choice) for choice in possible)
    raise ExportError(f"{form.name} cannot be quantized as {quantize!r}. Expected one of: {choices}.")

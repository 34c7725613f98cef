"""What `quantize` means: the kinds, what each format can do, and the bounds each must keep."""

from dataclasses import dataclass

from keras_vit.errors import ExportError
from keras_vit.export.proof.parity import Difference


@dataclass(frozen=True)
class Kind:
    """A row: what is stored and computed in how many bits, what the proof demands.

    Args:
        calibrated: whether the ranges of activations are measured on pictures beforehand.
        max_rel_diff: bound on the difference over the largest output; see `Report`.
        cosine: bound on the smallest cosine between outputs.
        top1_regret: bound on how far below its best the model puts the artefact's class, over the range of its outputs.
    """

    name: str | None
    summary: str
    calibrated: bool
    max_rel_diff: float
    cosine: float
    top1_regret: float

    def broken_bounds(self, found: Difference) -> list[str]:
        """What `found` exceeds of the bounds, a phrase each; not-a-number exceeds all."""
        bounds = (
            (found.max_rel_diff <= self.max_rel_diff, "largest difference over the largest output", "max_rel_diff"),
            (found.cosine >= self.cosine, "smallest cosine", "cosine"),
            (found.top1_regret is None or found.top1_regret <= self.top1_regret, "top-1 regret", "top1_regret"),
        )
        broken = [(words, getattr(found, name), getattr(self, name)) for kept, words, name in bounds if not kept]
        return [f"{words}: {value:.2g} (allowed {bound:g})" for words, value, bound in broken]


KINDS = (
    Kind(None, "float32", False, 2e-4, 0.9999, 1e-3),
    Kind("float16", "weights in float16, computed in float32", False, 3e-2, 0.999, 0.03),
    Kind("dynamic", "weights in int8, activations quantized as they come", False, 0.3, 0.96, 0.12),
    Kind("int8", "weights and activations of the products in int8, ranges calibrated on images", True, 0.3, 0.96, 0.12),
)


def kind_of(quantize, possible, name):
    """The row of a name; `possible` are the names that the format `name` can hold.

    Raises:
        ExportError: for a name that is none, or a kind that the format lacks.
    """
    for kind in KINDS:
        if kind.name == quantize and kind.name in possible:
            return kind
    choices = ", ".join(repr(choice) for choice in possible)
    raise ExportError(f"{name} cannot be quantized as {quantize!r}. Expected one of: {choices}.")

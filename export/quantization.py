"""What `quantize` means: the kinds, and the bounds that each must keep. What a format can do stands in `formats`."""

from dataclasses import dataclass
from typing import Any

from keras_vit.errors import ExportError
from keras_vit.export.formats import Format, Quantize
from keras_vit.export.proof.parity import Difference


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row: what is calibrated and chosen, and how close the outputs must be.

    Args:
        calibrated: whether the ranges of activations are measured on images beforehand.
        finer: whether layers that would cost too much are stored more finely; see `proof.mixture`.
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
        """A phrase for each bound that `found` exceeds; not-a-number exceeds all."""
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
    # Weights in int8, ranges of activations measured as they come.
    Kind(name="dynamic", **IN_INT8),
    # Weights and activations of the products in int8, ranges calibrated on images.
    Kind(name="int8", calibrated=True, **IN_INT8),
)


def choose_kind(quantize: str | None, form: Format) -> Kind:
    """The row of a name, where the format `form` has it.

    Raises:
        ExportError: for an unknown name, or a kind that the format lacks.
    """
    possible = (None, *form.quantize)
    for kind in KINDS:
        if kind.name == quantize and kind.name in possible:
            return kind
    choices = ", ".join(repr(choice) for choice in possible)
    raise ExportError(f"{form.name} cannot be quantized as {quantize!r}. Expected one of: {choices}.")

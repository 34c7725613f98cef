"""What `quantize` means: the kinds, what each format can do, and the bounds each must keep."""

from dataclasses import dataclass

from keras_vit.errors import ExportError


@dataclass(frozen=True)
class Kind:
    """A row: what is stored and computed in how many bits, what the proof demands.

    Args:
        calibrated: whether the ranges of activations are measured on pictures beforehand.
        max_rel_diff: bound on the difference over the largest output; see `Report`.
        cosine: bound on the smallest cosine between outputs.
    """

    name: str | None
    summary: str
    calibrated: bool
    max_rel_diff: float
    cosine: float


KINDS = (
    Kind(None, "float32", False, 2e-4, 0.9999),
    Kind("float16", "weights in float16, computed in float32", False, 3e-2, 0.999),
    Kind("dynamic", "weights in int8, activations quantized as they come", False, 0.5, 0.95),
    Kind("int8", "weights and activations of the products in int8, ranges calibrated on pictures", True, 0.5, 0.95),
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

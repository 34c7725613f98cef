"""What the files beside a torch checkpoint state of its model, in this package's terms."""

from dataclasses import dataclass, field

from keras_vit.zoo.formats.faults import Fault


@dataclass(frozen=True)
class Stated:
    """Facts on a model that its tensors cannot tell; None where the files do not state them.

    Args:
        num_heads: attention heads.
        image_size: (height, width) in pixels, which position embeddings fit.
        fields: of the configuration, by name: activation, epsilons.
        shapes: what the tensors must show, {name: value} by this package's names, or the files describe another model.
        patch_positions: whether only patches have position embeddings, not the class token.
        assume_heads: whether Table 1's heads may be assumed where `num_heads` is None.
        unknown_architecture: a name in timm's config.json that this package does not know.
    """

    num_heads: int | None = None
    image_size: tuple | None = None
    fields: dict = field(default_factory=dict)
    shapes: dict = field(default_factory=dict)
    patch_positions: bool = False
    assume_heads: bool = True
    unknown_architecture: str | None = None


def require_stated(condition, what, expected):
    """Refuses, unless the condition holds, a model that computes what this package cannot."""
    if not condition:
        raise Fault(f"is of a model with {what}, by the config.json beside it; this package computes {expected} only.")


def require_own_config(found, stated):
    """Refuses the config.json of another model, whose sizes are not those `found` in the tensors, {name: value}."""
    for name, value in stated.shapes.items():
        if value != found.get(name, value):
            raise Fault(
                f"has the config.json of another model beside it, which states {name} {value}; the tensors have "
                f"{found[name]}. Put the file's own config.json there, or none."
            )


def as_size(value):
    """A size in pixels as JSON states it, a number or two, as (height, width); None for anything else."""
    value = [value, value] if isinstance(value, int) else value
    fits = isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value)
    return tuple(value) if fits else None

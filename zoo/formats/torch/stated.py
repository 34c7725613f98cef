"""What the files beside a torch checkpoint state of its model, in this package's terms."""

from dataclasses import dataclass, field

from keras_vit.errors import CheckpointError


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
    """

    num_heads: int | None = None
    image_size: tuple | None = None
    fields: dict = field(default_factory=dict)
    shapes: dict = field(default_factory=dict)
    patch_positions: bool = False
    assume_heads: bool = True


def require_stated(path, condition, what, expected):
    """Raises the sentence for a model that changes its function in a way that this package cannot follow."""
    if not condition:
        raise CheckpointError(
            f"{path} is of a model with {what}, by the config.json beside it; this package computes {expected} only."
        )


def require_own_config(path, found, stated):
    """Refuses the config.json of another model, whose sizes are not those `found` in the tensors, {name: value}."""
    for name, value in stated.shapes.items():
        if value != found.get(name, value):
            raise CheckpointError(
                f"The config.json beside {path} describes another model: it states {name} {value}, and the tensors "
                f"have {found[name]}. Put the file's own config.json there, or none."
            )


def sides(value):
    """A size in pixels as JSON states it, a number or two, as (height, width); None for anything else."""
    value = [value, value] if isinstance(value, int) else value
    fits = isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value)
    return tuple(value) if fits else None

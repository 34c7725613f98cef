"""A checkpoint as named tensors, described before any is read."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from keras_vit.zoo.formats.faults import Fault


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its name there, its shape, and `read()`, which fetches its values."""

    source: str
    shape: tuple
    read: Callable

    def map(self, shape, function):
        """The tensor that `function` makes of this one's values, of the given shape."""
        return replace(self, shape=tuple(shape), read=lambda: function(self.read()))

    def reshape(self, shape):
        return self.map(shape, lambda values: values.reshape(shape))

    def share(self, uses):
        """This tensor for `uses` others made of it: its values are read for the first and dropped after the last."""
        return replace(self, read=SharedRead(self.read, uses))


class SharedRead:
    """A tensor's `read` whose values are kept for so many uses."""

    def __init__(self, read, uses):
        self.read, self.uses, self.left, self.values = read, uses, 0, None

    def __call__(self):
        if not self.left:
            self.left, self.values = self.uses, self.read()
        self.left -= 1
        values = self.values
        if not self.left:
            self.values = None
        return values


def gather(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """{name: Tensor} of (name, tensor) pairs, if no two have one name."""
    tensors = {}
    for name, tensor in named:
        if name in tensors:
            raise Fault(f"holds two tensors of one name, {name}. Fetch the file again from its source.")
        tensors[name] = tensor
    return tensors


def count_numbers(tensors: Mapping[str, Tensor]) -> int:
    """How many numbers the tensors hold."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())

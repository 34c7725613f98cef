"""How tensors of torch and of the official files differ in their axes: a row for each kind of tensor."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_vit.zoo.formats.faults import Fault
from keras_vit.zoo.formats.tensors import Tensor

BLOCK = 256  # rows


class TensorKind(NamedTuple):
    """A kind of tensor.

    Args:
        rank: number of axes in torch; None for any.
        shape: of torch's shape and the number of heads, the official shape.
        permute: torch's values with the official order of axes, to be reshaped.
        restore: official values to torch's.
    """

    rank: int | None
    shape: Callable[[tuple, int], tuple]
    permute: Callable[[np.ndarray], np.ndarray]
    restore: Callable[[np.ndarray], np.ndarray]


def as_is(values):
    return values


def transpose(matrix):
    """The transpose, copied by blocks of rows, which stay in the cache: in half the time of numpy's own copy."""
    result = np.empty(matrix.shape[::-1], matrix.dtype)
    for start in range(0, len(matrix), BLOCK):
        rows = slice(start, start + BLOCK)
        result[:, rows] = matrix[rows].T
    return result


def order_kernel(values):
    """(outputs, inputs, h, w) -> (h, w, inputs, outputs)."""
    pointwise = values.shape[2:] == (1, 1)
    return transpose(values[:, :, 0, 0])[None, None] if pointwise else values.transpose(2, 3, 1, 0)


KINDS = {
    "same": TensorKind(None, lambda shape, heads: shape, as_is, as_is),
    # (outputs, inputs) -> (inputs, outputs)
    "dense": TensorKind(2, lambda shape, heads: shape[::-1], transpose, np.transpose),
    # (outputs, inputs, h, w) -> (h, w, inputs, outputs)
    "conv": TensorKind(
        4,
        lambda shape, heads: (shape[2], shape[3], shape[1], shape[0]),
        order_kernel,
        lambda values: values.transpose(3, 2, 0, 1),
    ),
    # (outputs, inputs) -> (1, 1, inputs, outputs)
    "flat conv": TensorKind(2, lambda shape, heads: (1, 1, *shape[::-1]), transpose, lambda values: values[0, 0].T),
    # bias of query, key or value: (heads * width,) -> (heads, width)
    "heads": TensorKind(1, lambda shape, heads: (heads, shape[0] // heads), as_is, np.ravel),
    # kernel of query, key or value: (heads * width, inputs) -> (inputs, heads, width)
    "into heads": TensorKind(
        2,
        lambda shape, heads: (shape[1], heads, shape[0] // heads),
        transpose,
        lambda values: values.reshape(len(values), -1).T,
    ),
    # kernel after attention: (outputs, heads * width) -> (heads, width, outputs)
    "out of heads": TensorKind(
        2,
        lambda shape, heads: (heads, shape[1] // heads, shape[0]),
        transpose,
        lambda values: values.reshape(-1, values.shape[-1]).T,
    ),
}


def convert_tensor(tensor: Tensor, kind: str, heads: int | None) -> Tensor:
    """A tensor of torch in the official shape and order of axes."""
    row = KINDS[kind]
    if len(tensor.shape) != (len(tensor.shape) if row.rank is None else row.rank):
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}; expected {row.rank} axes.")
    if "heads" in kind and tensor.shape[-1 if kind == "out of heads" else 0] % heads:
        raise Fault(f"holds {tensor.source} of shape {tensor.shape}, which {heads} heads cannot divide.")
    shape = row.shape(tensor.shape, heads)
    return tensor.map(shape, lambda values: row.permute(values).reshape(shape))

"""An ONNX graph under construction: nodes, constants, and for each tensor its shape and the order of its axes.

Keras counts channels last, ONNX' convolutions channels first. A `Value` carries the shape as Keras sees it and a flag
for the order in which the tensor is stored, so that a transpose appears only where an operator needs the other order.
"""

from dataclasses import dataclass, field, replace

import numpy as np

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `shape` has channels last; None for a length that is only known at run time."""

    name: str
    shape: tuple
    dtype: str = "float32"
    channels_first: bool = False


@dataclass
class Node:
    """One operator: `inputs` and `outputs` are names of tensors, "" for an optional input left out."""

    op: str
    inputs: list
    outputs: list
    attributes: dict = field(default_factory=dict)
    path: str = ""


class Graph:
    """Nodes in order, and constants by name. `batch` is the length that represents the free batch while tracing."""

    def __init__(self, batch):
        self.batch = batch
        self.nodes = []
        self.constants = {}
        self.shapes = {}
        self.path = ""
        self.counts = {}

    def unique(self, stem):
        count = self.counts[stem] = self.counts.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}_{count}"

    def rename(self, x, name):
        """Renames the tensor; if another tensor has that name, to a similar one."""
        name = self.unique(name)
        for node in self.nodes:
            node.inputs, node.outputs = ([name if n == x.name else n for n in ns] for ns in (node.inputs, node.outputs))
        self.shapes[name] = self.shapes.pop(x.name)
        return replace(x, name=name)

    def constant(self, array, hint="constant"):
        """Stores an array and returns its name."""
        name = self.unique(f"{self.path}/{hint}".strip("/"))
        self.constants[name] = np.asarray(array)
        return name

    def add(self, op, inputs, shape, dtype="float32", channels_first=False, **attributes):
        """Appends an operator. Inputs are Values, arrays (which become constants) or None; returns its one output."""
        (value,) = self.add_many(op, inputs, [(shape, dtype)], channels_first, **attributes)
        return value

    def add_many(self, op, inputs, outputs, channels_first=False, **attributes):
        """Appends an operator with several outputs, given as pairs (shape, dtype)."""
        names = [self.name_of(x, op) for x in inputs]
        values = [
            Value(self.unique(f"{self.path}/{op}".strip("/")), tuple(shape), dtype, channels_first)
            for shape, dtype in outputs
        ]
        self.shapes.update((value.name, value.shape) for value in values)
        self.nodes.append(Node(op, names, [value.name for value in values], attributes, self.path))
        return values

    def add_like(self, op, x, *others, **attributes):
        """Appends an operator whose output has the shape, type and order of axes of its first input."""
        return self.add(op, [x, *others], x.shape, x.dtype, x.channels_first, **attributes)

    def name_of(self, x, op):
        if x is None:
            return ""
        return x.name if isinstance(x, Value) else self.constant(x, f"{op}_constant")

    def channels_first(self, x):
        """The 4-D tensor stored as (n, c, h, w)."""
        return x if x.channels_first else self.add("Transpose", [x], x.shape, x.dtype, True, perm=TO_FIRST)

    def channels_last(self, x):
        """The tensor stored as in Keras, channels last; a constant is."""
        if not isinstance(x, Value) or not x.channels_first:
            return x
        return self.add("Transpose", [x], x.shape, x.dtype, perm=TO_LAST)

    def is_batch(self, length):
        """Whether a traced length depends on the batch."""
        return length is None or (length > 0 and length % self.batch == 0)

    def dynamic_shape(self, source, target, merged):
        """`target` for an ONNX Reshape: 0 copies the length at that place, -1 stands for one unknown length.

        `merged` holds places with an unknown length that differs from the source's at the same place.
        """
        written = []
        for place, length in enumerate(target):
            if not self.is_batch(length):
                written.append(length)
            elif place < len(source) and source[place] == length and 0 not in target and place not in merged:
                written.append(0)
            else:
                written.append(-1)
        if written.count(-1) > 1:
            raise ValueError(f"two free lengths in a reshape from {source} to {target}")
        return np.array(written, "int64")

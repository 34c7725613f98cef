"""Frees the batch of TFLite files that LiteRT's converter wrote. Imports no Keras.

litert-converter 0.5.0 takes StableHLO with a free batch, but keeps its gathers, for which TFLite has no operator, fuses
neither GELU nor softmax, and computes every shape at run time. So a model is converted at two batch sizes: where the
files differ, there the batch is, and it becomes free.
"""

import numpy as np

SIZES = (2, 3)  # not 1, at which a converter leaves operators out
FREE = -1
ADVICE = "TFLite files that JAX makes need a fixed batch for the operator {} of this model. Pass batch_size=1"


def free_batch(files):
    """The TFLite file with a free batch, as bytes, from those at the batch sizes SIZES.

    Raises:
        RuntimeError: where an operator needs the batch size in a way that no rule of `BatchFreer` covers.
    """
    from ai_edge_litert import schema_py_generated as schema

    model, other = (schema.ModelT.InitFromPackedBuf(file, 0) for file in files)
    BatchFreer(schema, model, other).run()
    builder = schema.flatbuffers.Builder(len(files[0]))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class BatchFreer:
    """Changes `model`, a ModelT of the schema at the first size, by what differs in `other`, the same at the second."""

    def __init__(self, schema, model, other):
        self.schema, self.model, self.other = schema, model, other
        self.graph = model.subgraphs[0]
        self.names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}
        self.rules = {  # by operator and place of the input that has the batch in it
            ("RESHAPE", 1): self.free_shape,
            ("SLICE", 2): self.free_size,
            ("STRIDED_SLICE", 2): self.free_end,
            ("BROADCAST_TO", 1): self.compute_shape,
            ("FILL", 0): self.compute_shape,
            ("TRANSPOSE_CONV", 0): self.compute_shape,
        }
        self.freed = {}  # {buffer: its new values}
        self.added = []  # operators that compute shapes
        self.batch = None  # the tensor (1,) with the batch size, once one is needed

    def run(self):
        if any(len(model.subgraphs) > 1 for model in (self.model, self.other)):
            raise RuntimeError(ADVICE.format("WHILE or IF"))
        if self.list_operators(self.model) != self.list_operators(self.other):
            raise RuntimeError(ADVICE.format("that depends on the batch"))
        for operator in list(self.graph.operators):
            for place, tensor in enumerate(operator.inputs):
                a, b = (find_constant(model, tensor) for model in (self.model, self.other))
                if a is not None and not np.array_equal(a, b):
                    name = self.name_of(self.model, operator)
                    rule = self.rules.get((name, place), self.repeat)
                    long = self.graph.tensors[tensor].type == self.schema.TensorType.INT64
                    if not rule(operator, place, *(x.view(np.int64 if long else np.int32) for x in (a, b))):
                        raise RuntimeError(ADVICE.format(name))
        for number, values in self.freed.items():
            self.model.buffers[number].data = values.view(np.uint8)
        for tensor, like in zip(self.graph.tensors, self.other.subgraphs[0].tensors, strict=False):
            a, b = np.array(tensor.shape, np.int32), np.array(like.shape, np.int32)
            if not np.array_equal(a, b):
                tensor.shape, tensor.shapeSignature = 2 * a - b, np.where(a == b, a, FREE).astype(np.int32)  # at 1
        self.graph.operators[:0] = self.added

    def name_of(self, model, operator):
        return self.names[model.operatorCodes[operator.opcodeIndex].builtinCode]

    def list_operators(self, model):
        """What every operator of a model is, takes and gives."""
        found = model.subgraphs[0].operators
        return [(self.name_of(model, x), list(x.inputs), list(x.outputs)) for x in found]

    def free_shape(self, operator, place, a, b):
        """Leaves the one length to RESHAPE that depends on the batch."""
        values = np.where(a == b, a, a.dtype.type(FREE))
        self.freed[self.graph.tensors[operator.inputs[place]].buffer] = values
        operator.builtinOptions, operator.builtinOptionsType = None, 0  # they repeat the shape
        return (values == FREE).sum() == 1

    def is_whole(self, operator, a, b):
        """Whether the lengths `a` that depend on the batch are those of the operator's input."""
        return all(np.array(self.graph.tensors[operator.inputs[0]].shape)[a != b] == a[a != b])

    def free_size(self, operator, place, a, b):
        self.freed[self.graph.tensors[operator.inputs[place]].buffer] = np.where(a == b, a, a.dtype.type(FREE))
        return self.is_whole(operator, a, b)

    def free_end(self, operator, place, a, b):
        operator.builtinOptions.endMask |= sum(1 << int(axis) for axis in np.flatnonzero(a != b))
        return self.is_whole(operator, a, b)

    def repeat(self, operator, place, a, b):
        """Repeats one row of a constant, where all are the same, for every image."""
        tensor, like = (x.subgraphs[0].tensors[operator.inputs[place]] for x in (self.model, self.other))
        lengths, there = np.array(tensor.shape, np.int32), np.array(like.shape, np.int32)
        row = a[: len(a) // SIZES[0]]
        if [*lengths[:1], *there[:1]] != [*SIZES] or any((x.reshape(-1, len(row)) != row).any() for x in (a, b)):
            return False
        one = self.add_constant(row, [1, *lengths[1:]], tensor.type)
        self.replace_input(
            operator, place, self.add("BROADCAST_TO", [one, self.compute(lengths, there)], lengths, tensor.type)
        )
        return True

    def compute_shape(self, operator, place, a, b):
        self.replace_input(operator, place, self.compute(a, b))
        return True

    def compute(self, a, b):
        """The tensor with a + (batch - 2) (b - a), computed as the file runs."""
        if self.batch is None:
            shape = self.add("SHAPE", self.graph.inputs[:1], [len(self.graph.tensors[self.graph.inputs[0]].shape)])
            self.batch = self.add("SLICE", [shape, self.add_constant([0]), self.add_constant([1])], [1])
        growing = self.add("MUL", [self.batch, self.add_constant(b - a)], [len(a)])
        return self.add("ADD", [growing, self.add_constant(a - SIZES[0] * (b - a))], [len(a)])

    def replace_input(self, operator, place, tensor):
        operator.inputs = [tensor if i == place else x for i, x in enumerate(operator.inputs)]

    def add_tensor(self, shape, kind=None, buffer=0):
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = f"batch/{len(self.graph.tensors)}".encode(), list(shape), buffer
        tensor.type = self.schema.TensorType.INT32 if kind is None else kind
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def add_constant(self, values, shape=None, kind=None):
        """The tensor of a new constant, of int32 (n,) unless shape and type are given."""
        buffer = self.schema.BufferT()
        buffer.data = np.array(values, np.int32).view(np.uint8)
        self.model.buffers.append(buffer)
        return self.add_tensor([len(values)] if shape is None else shape, kind, len(self.model.buffers) - 1)

    def add(self, name, inputs, shape, kind=None):
        """The tensor that a new operator gives, of int32 unless a type is given."""
        operator, code = self.schema.OperatorT(), self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 2 if name == "BROADCAST_TO" else 1  # the first that runtimes have
        options = f"{name.title().replace('_', '')}Options"
        operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(self.schema, f"{options}T")()
        if name == "SHAPE":
            operator.builtinOptions.outType = self.schema.TensorType.INT32
        self.model.operatorCodes.append(code)
        operator.opcodeIndex, operator.inputs = len(self.model.operatorCodes) - 1, inputs
        operator.outputs = [self.add_tensor(shape, kind)]
        self.added.append(operator)
        return operator.outputs[0]


def find_constant(model, tensor):
    """The bytes of a constant; None for other tensors, and for an input that is left out."""
    return None if tensor < 0 else model.buffers[model.subgraphs[0].tensors[tensor].buffer].data

"""Changes TFLite files: frees the batch, replaces operations for GPUs, shares equal vectors. Imports no Keras."""

import copy

import flatbuffers
import numpy as np

FREE = -1


class Graph:
    """A TFLite file to change: `model` is a ModelT of the schema, `graph` its first graph."""

    def __init__(self, file):
        from ai_edge_litert import schema_py_generated as schema

        self.schema, self.model = schema, schema.ModelT.InitFromPackedBuf(file, 0)
        self.graph = self.model.subgraphs[0]
        self.names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}

    def to_bytes(self, builder=None):
        builder = builder or flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def name_of(self, operator):
        return self.names[self.model.operatorCodes[operator.opcodeIndex].builtinCode]

    def find_constant(self, tensor):
        """The bytes of a constant; None for other tensors, and for a missing input."""
        return None if tensor < 0 else self.model.buffers[self.graph.tensors[tensor].buffer].data

    def add_tensor(self, tensor):
        """Adds a tensor; returns its number."""
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def make_tensor(self, shape, kind=None, buffer=0):
        """Makes a tensor, of int32 unless a type is given; returns its number."""
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = f"added/{len(self.graph.tensors)}".encode(), list(shape), buffer
        tensor.type = self.schema.TensorType.INT32 if kind is None else kind
        return self.add_tensor(tensor)

    def make_constant(self, values, shape=None, kind=None):
        """Makes a constant, int32 (n,) unless shape and type are given; returns its tensor's number."""
        buffer = self.schema.BufferT()
        buffer.data = values.view(np.uint8)
        self.model.buffers.append(buffer)
        return self.make_tensor(values.shape if shape is None else shape, kind, len(self.model.buffers) - 1)

    def make_operator(self, name, inputs, outputs, options=None, version=1):
        """Makes an operator that is in no list yet; `options` is the class of its options, if its name differs."""
        operator, code = self.schema.OperatorT(), self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = version
        self.model.operatorCodes.append(code)
        options = options or f"{name.title().replace('_', '')}Options"
        operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(self.schema, f"{options}T")()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = inputs, outputs
        return operator


SIZES = (2, 3)  # not 1: a converter leaves operators out there
ADVICE = "TFLite files that JAX makes need a fixed batch for the operator {} of this model. Pass batch_size=1"


def free_batch(files):
    """Makes the TFLite file with a free batch, as bytes, from those at the batch sizes SIZES.

    litert-converter 0.5.0 accepts StableHLO with a free batch. But it keeps its gathers, for which TFLite has no
    operator, fuses neither GELU nor softmax, and computes every shape at run time. So a model is converted at two batch
    sizes: lengths that differ between the files are the batch, and become free.
    """
    graph = BatchFreer(*files)
    graph.run()
    return graph.to_bytes()


class BatchFreer(Graph):
    """A file at the first size, to be changed where `other`, the file at the second, differs."""

    def __init__(self, file, other):
        super().__init__(file)
        self.other = Graph(other)
        self.rules = {  # by operator and place of the input with the batch
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
        both = (self, self.other)
        if any(len(graph.model.subgraphs) > 1 for graph in both):
            raise RuntimeError(ADVICE.format("WHILE or IF"))
        listed = [[(g.name_of(x), list(x.inputs), list(x.outputs)) for x in g.graph.operators] for g in both]
        if listed[0] != listed[1]:
            raise RuntimeError(ADVICE.format("that depends on the batch"))
        for operator in list(self.graph.operators):
            for place, tensor in enumerate(operator.inputs):
                a, b = (graph.find_constant(tensor) for graph in both)
                if a is not None and not np.array_equal(a, b):
                    name = self.name_of(operator)
                    rule = self.rules.get((name, place), self.repeat)
                    long = self.graph.tensors[tensor].type == self.schema.TensorType.INT64
                    if not rule(operator, place, *(x.view(np.int64 if long else np.int32) for x in (a, b))):
                        raise RuntimeError(ADVICE.format(name))
        for number, values in self.freed.items():
            self.model.buffers[number].data = values.view(np.uint8)
        for tensor, like in zip(self.graph.tensors, self.other.graph.tensors, strict=False):
            a, b = np.array(tensor.shape, np.int32), np.array(like.shape, np.int32)
            if not np.array_equal(a, b):
                tensor.shape, tensor.shapeSignature = 2 * a - b, np.where(a == b, a, FREE).astype(np.int32)  # at 1
        self.graph.operators[:0] = self.added

    def free_shape(self, operator, place, a, b):
        """Lets RESHAPE infer the only length that depends on the batch."""
        values = np.where(a == b, a, a.dtype.type(FREE))
        self.freed[self.graph.tensors[operator.inputs[place]].buffer] = values
        operator.builtinOptions, operator.builtinOptionsType = None, 0  # the options repeat the shape
        return (values == FREE).sum() == 1

    def is_whole(self, operator, a, b):
        """Whether those lengths of `a` that depend on the batch are the operator's input's."""
        return all(np.array(self.graph.tensors[operator.inputs[0]].shape)[a != b] == a[a != b])

    def free_size(self, operator, place, a, b):
        self.freed[self.graph.tensors[operator.inputs[place]].buffer] = np.where(a == b, a, a.dtype.type(FREE))
        return self.is_whole(operator, a, b)

    def free_end(self, operator, place, a, b):
        operator.builtinOptions.endMask |= sum(1 << int(axis) for axis in np.flatnonzero(a != b))
        return self.is_whole(operator, a, b)

    def repeat(self, operator, place, a, b):
        """Repeats one row of a constant, if all rows are equal, for every image."""
        tensor, like = (x.graph.tensors[operator.inputs[place]] for x in (self, self.other))
        lengths, there = np.array(tensor.shape, np.int32), np.array(like.shape, np.int32)
        row = a[: len(a) // SIZES[0]]
        if [*lengths[:1], *there[:1]] != [*SIZES] or any((x.reshape(-1, len(row)) != row).any() for x in (a, b)):
            return False
        one = self.make_constant(row, [1, *lengths[1:]], tensor.type)
        # Version 2 is the oldest that runtimes have.
        repeated = self.add("BROADCAST_TO", [one, self.compute(lengths, there)], lengths, tensor.type, version=2)
        self.replace_input(operator, place, repeated)
        return True

    def compute_shape(self, operator, place, a, b):
        self.replace_input(operator, place, self.compute(a.astype(np.int32), b.astype(np.int32)))
        return True

    def compute(self, a, b):
        """The tensor with a + (batch - 2) (b - a), computed at run time."""
        if self.batch is None:
            shape = self.add("SHAPE", self.graph.inputs[:1], [len(self.graph.tensors[self.graph.inputs[0]].shape)])
            self.added[-1].builtinOptions.outType = self.schema.TensorType.INT32
            first, one = (self.make_constant(np.array([x], np.int32)) for x in (0, 1))
            self.batch = self.add("SLICE", [shape, first, one], [1])
        growing = self.add("MUL", [self.batch, self.make_constant(b - a)], [len(a)])
        return self.add("ADD", [growing, self.make_constant(a - SIZES[0] * (b - a))], [len(a)])

    def replace_input(self, operator, place, tensor):
        operator.inputs = [tensor if i == place else x for i, x in enumerate(operator.inputs)]

    def add(self, name, inputs, shape, kind=None, version=1):
        """Adds an operator; returns its output, of int32 unless a type is given."""
        output = self.make_tensor(shape, kind)
        self.added.append(self.make_operator(name, inputs, [output], version=version))
        return output


POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
LOWEST = np.finfo("float32").min


def rewrite_for_gpus(file: bytes) -> bytes:
    """Replaces operations of a TFLite file that LiteRT's GPU delegate (2.3.0) refuses or computes incorrectly.

    The delegate fuses padding with the pooling after it and ignores the padded zeros: maxima may be negative, and means
    are over fewer numbers. The root of a ResNet has both, so an operation without effect is put between them. The
    delegate also takes no slice that drops an axis, such as that of the class token: slices keep axes.
    """
    graph = GpuRewriter(file)
    return graph.to_bytes() if graph.run() else file


class GpuRewriter(Graph):
    def run(self) -> bool:
        """Rewrites the file; returns whether anything was changed."""
        made, operators = {}, []
        for operator in self.graph.operators:
            name = self.name_of(operator)
            if name in POOLS and made.get(operator.inputs[0]) == "PAD":
                operators += [self.part(operator), operator]
            elif name == "STRIDED_SLICE" and self.drops_axes(operator):
                operators += [operator, self.keep_axes(operator)]
            else:
                operators.append(operator)
            made.update(dict.fromkeys(operator.outputs, name))
        changed = len(operators) > len(self.graph.operators)
        self.graph.operators = operators
        return changed

    def copy_tensor(self, like, ending):
        tensor = copy.copy(like)
        tensor.name = like.name + ending
        return self.add_tensor(tensor)

    def part(self, pool):
        """An operator that copies a pool's input: the maximum of each number and the lowest float."""
        (padded,) = pool.inputs
        lowest = self.make_constant(np.array([LOWEST], np.float32), [], self.schema.TensorType.FLOAT32)
        pool.inputs = [self.copy_tensor(self.graph.tensors[padded], b"/padded")]
        return self.make_operator("MAXIMUM", [padded, lowest], pool.inputs, "MaximumMinimumOptions")

    def drops_axes(self, operator):
        """Whether a slice drops axes at known places, and leaves at most one length free."""
        begin, end = (self.find_constant(tensor) for tensor in operator.inputs[1:3])
        dropped = self.find_dropped(operator)
        if not dropped or begin is None or end is None or operator.builtinOptions.newAxisMask:
            return False
        begin, end = (np.array(x, np.uint8).view(np.int32) for x in (begin, end))
        signature = self.graph.tensors[operator.outputs[0]].shapeSignature
        frees = 0 if signature is None else (np.array(signature) == FREE).sum()
        return frees <= 1 and all(begin[axis] >= 0 and end[axis] == begin[axis] + 1 for axis in dropped)

    def find_dropped(self, operator):
        mask = operator.builtinOptions.shrinkAxisMask
        return [axis for axis in range(len(self.graph.tensors[operator.inputs[0]].shape)) if mask >> axis & 1]

    def keep_axes(self, operator):
        """Makes a slice keep its axes; returns the operator that drops them afterwards."""
        outputs = operator.outputs
        result, dropped = self.graph.tensors[outputs[0]], self.find_dropped(operator)
        kept = self.copy_tensor(result, b"/kept")
        for name in ("shape", "shapeSignature"):
            lengths = getattr(result, name)
            if lengths is not None:
                lengths = list(lengths)
                for axis in dropped:
                    lengths.insert(axis, 1)
                setattr(self.graph.tensors[kept], name, np.array(lengths, np.int32))
        operator.builtinOptions.shrinkAxisMask, operator.outputs = 0, [kept]
        lengths = result.shape if result.shapeSignature is None else result.shapeSignature
        shape = self.make_constant(np.array(lengths, np.int32))
        return self.make_operator("RESHAPE", [kept, shape], outputs)


ALIGNMENT = 16  # bytes; TFLite's schema requires it for weights


class Sharing(flatbuffers.Builder):
    """A builder that writes equal vectors once: the zero points of each weight are a vector of zeros."""

    def __init__(self, size):
        super().__init__(size)
        self.written = {}

    def CreateNumpyVector(self, x):
        key = (x.dtype.str, x.tobytes())
        if key not in self.written:
            self.StartVector(x.itemsize, x.size, ALIGNMENT)
            self.head -= x.nbytes
            self.Bytes[self.head : self.head + x.nbytes] = key[1]
            self.vectorNumElems = x.size
            self.written[key] = self.EndVector()
        return self.written[key]


def share_equal_vectors(file: bytes) -> bytes:
    """Rewrites a TFLite file so that equal vectors are shared."""
    graph = Graph(file)
    for buffer in graph.model.buffers:
        if buffer.offset:  # the quantizer puts the weights of larger models after the flatbuffer
            buffer.data = np.frombuffer(file, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return graph.to_bytes(Sharing(len(file)))

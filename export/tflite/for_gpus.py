"""Rewrites what LiteRT's GPU delegate (2.3.0) refuses or computes wrong. Imports no Keras.

It makes one operation of a padding and the pooling behind it, in which the padding does not count: where its zeros are
the largest numbers it takes a negative one, and it divides sums by fewer. The root of a ResNet has both. And it takes
no slice that drops an axis, such as that of the class token.
"""

import copy

import numpy as np

POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
LOWEST = np.finfo("float32").min
FREE = -1


def rewrite_for_gpus(file: bytes) -> bytes:
    """The TFLite file with an operation between padding and pooling that changes nothing, and slices that keep axes."""
    from ai_edge_litert import schema_py_generated as schema

    rewriter = Rewriter(schema, schema.ModelT.InitFromPackedBuf(file, 0))
    if not rewriter.run():
        return file
    builder = schema.flatbuffers.Builder(len(file))
    builder.Finish(rewriter.model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class Rewriter:
    """Changes `model`, a ModelT of the schema."""

    def __init__(self, schema, model):
        self.schema, self.model, self.graph = schema, model, model.subgraphs[0]
        self.names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}

    def run(self) -> bool:
        """Whether anything was changed."""
        made, operators = {}, []
        for operator in self.graph.operators:
            name = self.names[self.model.operatorCodes[operator.opcodeIndex].builtinCode]
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

    def part(self, pool):
        """The operator that copies a pool's input: the larger of each number and the lowest one."""
        (padded,) = pool.inputs
        lowest = self.add_constant(np.array(LOWEST, np.float32), self.schema.TensorType.FLOAT32)
        pool.inputs = [self.add_tensor(self.graph.tensors[padded], b"/padded")]
        return self.make("MAXIMUM", [padded, lowest], pool.inputs, "MaximumMinimumOptions")

    def drops_axes(self, operator):
        """Whether a slice drops axes at places that are known, and leaves at most one length free."""
        begin, end = (self.find_constant(tensor) for tensor in operator.inputs[1:3])
        dropped = self.find_dropped(operator)
        if not dropped or begin is None or end is None or operator.builtinOptions.newAxisMask:
            return False
        signature = self.graph.tensors[operator.outputs[0]].shapeSignature
        frees = 0 if signature is None else (np.array(signature) == FREE).sum()
        return frees <= 1 and all(begin[axis] >= 0 and end[axis] == begin[axis] + 1 for axis in dropped)

    def find_dropped(self, operator):
        mask = operator.builtinOptions.shrinkAxisMask
        return [axis for axis in range(len(self.graph.tensors[operator.inputs[0]].shape)) if mask >> axis & 1]

    def keep_axes(self, operator):
        """The operator that drops the axes of a slice, which from now on keeps them."""
        outputs = operator.outputs
        result, dropped = self.graph.tensors[outputs[0]], self.find_dropped(operator)
        kept = self.add_tensor(result, b"/kept")
        for name in ("shape", "shapeSignature"):
            lengths = getattr(result, name)
            if lengths is not None:
                lengths = list(lengths)
                for axis in dropped:
                    lengths.insert(axis, 1)
                setattr(self.graph.tensors[kept], name, np.array(lengths, np.int32))
        operator.builtinOptions.shrinkAxisMask, operator.outputs = 0, [kept]
        lengths = result.shape if result.shapeSignature is None else result.shapeSignature
        shape = self.add_constant(np.array(lengths, np.int32), self.schema.TensorType.INT32)
        return self.make("RESHAPE", [kept, shape], outputs, "ReshapeOptions")

    def find_constant(self, tensor):
        """The int32 values of a constant; None for other tensors."""
        data = self.model.buffers[self.graph.tensors[tensor].buffer].data
        return None if data is None else np.array(data, np.uint8).view(np.int32)

    def add_tensor(self, like, ending):
        tensor = copy.copy(like)
        tensor.name = like.name + ending
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def add_constant(self, values, kind):
        buffer, tensor = self.schema.BufferT(), self.schema.TensorT()
        buffer.data = values.reshape(-1).view(np.uint8)
        self.model.buffers.append(buffer)
        tensor.name, tensor.shape, tensor.type = (
            f"constant/{len(self.graph.tensors)}".encode(),
            list(values.shape),
            kind,
        )
        tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def make(self, name, inputs, outputs, options):
        """A new operator, which is in no list yet."""
        operator, code = self.schema.OperatorT(), self.schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = getattr(self.schema.BuiltinOperator, name)
        code.version = 1
        self.model.operatorCodes.append(code)
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(self.schema, f"{options}T")()
        operator.inputs, operator.outputs = inputs, outputs
        return operator

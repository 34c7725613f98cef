"""Parts each padding from the pooling behind it. Imports no Keras.

LiteRT's GPU delegate (2.3.0) makes one operation of the two, and then the padding does not count: where its zeros are
the largest numbers it takes a negative one, and it divides sums by fewer. The root of a ResNet has both.
"""

import copy

import numpy as np

POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
LOWEST = np.finfo("float32").min


def part_padded_pools(file: bytes) -> bytes:
    """The TFLite file with an operation between padding and pooling that changes no number."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(file, 0)
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}
    graph, made = model.subgraphs[0], {}
    operators, graph.operators = graph.operators, []
    for operator in operators:
        name = names[model.operatorCodes[operator.opcodeIndex].builtinCode]
        if name in POOLS and made.get(operator.inputs[0]) == "PAD":
            graph.operators.append(copy_unchanged(schema, model, operator.inputs[0]))
            operator.inputs = graph.operators[-1].outputs
        made.update(dict.fromkeys(operator.outputs, name))
        graph.operators.append(operator)
    if len(graph.operators) == len(operators):
        return file
    builder = schema.flatbuffers.Builder(len(file))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def copy_unchanged(schema, model, tensor):
    """An operator that copies a float tensor: the larger of each number and the lowest one."""
    graph, buffer, code = model.subgraphs[0], schema.BufferT(), schema.OperatorCodeT()
    buffer.data = np.array([LOWEST], np.float32).view(np.uint8)
    model.buffers.append(buffer)
    lowest, copied = schema.TensorT(), copy.copy(graph.tensors[tensor])
    lowest.name, lowest.shape, lowest.buffer = b"lowest", [], len(model.buffers) - 1
    copied.name = copied.name + b"/padded"
    graph.tensors += [lowest, copied]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.MAXIMUM
    code.version = 1
    model.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex = len(model.operatorCodes) - 1
    operator.builtinOptionsType = schema.BuiltinOptions.MaximumMinimumOptions
    operator.builtinOptions = schema.MaximumMinimumOptionsT()
    operator.inputs, operator.outputs = [tensor, len(graph.tensors) - 2], [len(graph.tensors) - 1]
    return operator

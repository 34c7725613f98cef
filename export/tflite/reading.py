"""TFLite files from elsewhere, without Keras; see `formats`.

A file may be opened if it has only built-in operators, and needs no other file.
"""

from pathlib import Path

from keras_vit.export.description import read_description
from keras_vit.export.formats import refuse

__all__ = ["check", "load", "load_tflite", "read_description", "weight_bytes"]

REFUSED = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "STABLEHLO_CUSTOM_CALL")
MOST = 1 << 20  # entries of a vector


def load_tflite(path, names=None):
    """A function from a list of arrays to the list of outputs; without `names`, the inputs' order is the file's own."""
    import os

    from ai_edge_litert.interpreter import Interpreter

    # LiteRT prints "Created TensorFlow Lite XNNPACK delegate for CPU", and has no option against it.
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        interpreter = Interpreter(model_path=str(path), num_threads=min(os.cpu_count() or 1, 8))
        interpreter.allocate_tensors()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)
    runner = interpreter.get_signature_runner()
    names = names or list(runner.get_input_details())

    def position(name):
        """The sorting key of an output: the number for TensorFlow's output_0, output_1, ..., otherwise the name."""
        number = name.removeprefix("output_")
        return (int(number), "") if number != name and number.isdecimal() else (0, name)

    def run(inputs):
        outputs = runner(**dict(zip(names, inputs, strict=True)))
        return [outputs[name] for name in sorted(outputs, key=position)]

    return run


load = load_tflite


def check(path):
    from ai_edge_litert import schema_py_generated as schema

    data = path.read_bytes()
    if not schema.Model.ModelBufferHasIdentifier(data, 0):
        refuse(path, "no identifier of TFLite")
    model = schema.Model.GetRootAs(data)
    lengths = (model.OperatorCodesLength(), model.SubgraphsLength(), model.BuffersLength())
    if max(lengths) > min(MOST, len(data)):
        refuse(path, "a list that is longer than the file")
    if model.ExternalBufferGroupsLength() or model.ExternalBuffersLength():
        refuse(path, "data in other files")
    refused = {getattr(schema.BuiltinOperator, name): name for name in REFUSED}
    for code in map(model.OperatorCodes, range(model.OperatorCodesLength())):
        name = code.CustomCode()
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if name or number in refused:
            refuse(
                path, f"the operator {(name or b'').decode(errors='replace') or refused[number]}, not a built-in one"
            )


def weight_bytes(path: Path) -> int:
    """Bytes of the constants in the file and of their scales."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes())
    graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
    tensors = [graph.Tensors(i) for graph in graphs for i in range(graph.TensorsLength())]
    constants = {x.Buffer(): x for x in tensors if model.Buffers(x.Buffer()).DataLength()}
    scales = sum(4 * x.Quantization().ScaleLength() for x in constants.values() if x.Quantization())
    return scales + sum(model.Buffers(place).DataLength() for place in constants)

"""Quantizing a TFLite file by LiteRT's quantizer, each layer in its own way; imports no Keras and no TensorFlow."""

import contextlib
import re
import shutil
import sys
from pathlib import Path

import numpy as np

# Names that LiteRT's quantizer and the schema share. Calibrated ranges serve dense layers but the last, whose logits
# lie close to each other. It and the convolutions, which gain no speed by them (`benchmarks exports`), take each
# input's own. Depthwise kernels, slower in int8, are widened.
LADDERS = {
    "FULLY_CONNECTED": ("int8", "dynamic", "int8-weights", "float16", "float32"),
    "CONV_2D": ("dynamic", "int8-weights", "float16", "float32"),
    "DEPTHWISE_CONV_2D": ("int8-weights", "float16", "float32"),
}


def list_layers(path):
    """{name of what it computes: (operator, weights)} of the dense layers and convolutions with float weights.

    `weights` is their number; `path` a TFLite file.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(Path(path).read_bytes(), 0)
    operators = {getattr(schema.BuiltinOperator, name): name for name in LADDERS}
    graph = model.subgraphs[0]
    layers = {}
    for operator in graph.operators:
        name = operators.get(model.operatorCodes[operator.opcodeIndex].builtinCode)
        weights = graph.tensors[operator.inputs[1]] if name else None
        if name and model.buffers[weights.buffer].data is not None:
            layers[graph.tensors[operator.outputs[0]].name.decode()] = name, int(np.prod(weights.shape))
    return layers


class TFLiteQuantizer:
    """Writes the float TFLite file `path` with its layers stored in the ways it is given.

    Norms, softmax, GELU and sums stay in float.

    Args:
        kind: "dynamic" or "int8".
        goal: whose inputs calibrate "int8"; see `proof.mixture`.
    """

    def __init__(self, path, kind, goal):
        self.path, self.goal, self.ranges = path, goal, None
        layers = list_layers(path)
        self.layers = {name: operator for name, (operator, _) in layers.items()}
        self.sizes = {name: size for name, (_, size) in layers.items()}
        dense = [name for name, operator in self.layers.items() if operator == "FULLY_CONNECTED"]
        self.ladders = {}
        for name, operator in self.layers.items():
            ladder = LADDERS[operator]
            calibrated = kind == "int8" and name not in dense[-1:]
            self.ladders[name] = ladder if calibrated else tuple(way for way in ladder if way != "int8")

    def write(self, ways, output):
        """Writes `output`, the file with the layers in `ways`, {name: way}."""
        if set(ways.values()) <= {"float32"}:  # LiteRT's quantizer refuses to do nothing
            shutil.copyfile(self.path, output)
            return
        quantizing = self.configure(ways)
        with contextlib.redirect_stdout(sys.stderr):
            if quantizing.need_calibration and self.ranges is None:
                self.ranges = calibrate(quantizing, self.goal.split_inputs())
            result = quantizing.quantize(self.ranges if quantizing.need_calibration else None)
            result.export_model(output)

    def configure(self, ways):
        """A quantizer of LiteRT with a configuration for every layer that does not stay in float32."""
        from litert_quantizer import qtyping, quantizer

        quantizing = quantizer.Quantizer(self.path)
        for name, way in ways.items():
            where = f"^{re.escape(name)};", getattr(qtyping.TFLOperationName, self.layers[name])
            if way == "int8":
                quantizing.add_static_config(*where, activation_num_bits=8, weight_num_bits=8)
            elif way == "dynamic":
                quantizing.add_dynamic_config(*where, num_bits=8)
            elif way == "int8-weights":
                quantizing.add_weight_only_config(*where, num_bits=8)
            elif way == "float16":
                casting = quantizer.AlgorithmName.FLOAT_CASTING
                quantizing.add_weight_only_config(*where, num_bits=16, algorithm_key=casting)
        return quantizing


def calibrate(quantizer, batches):
    """Smallest and largest value of every tensor over all images; the quantizer itself would average them."""
    found = {}
    for batch in batches:
        for name, seen in quantizer.calibrate({"serving_default": [batch]}).items():
            known = found.setdefault(name, dict(seen))
            known["min"] = np.minimum(known["min"], seen["min"])
            known["max"] = np.maximum(known["max"], seen["max"])
    return found

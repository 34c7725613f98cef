"""Converts a SavedModel or StableHLO to a TFLite file, and stores each of its layers in int8 or float16 by LiteRT's
quantizer.

This file is also the script that does both, in a separate process, and so imports no Keras.
"""

import contextlib
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from keras_vit.export.processes import last_line, literal, run_script
from keras_vit.export.proof.mixture import Goal, quantize_to_goal, run_quantizer

# Names that LiteRT's quantizer and the schema share. Calibrated ranges are for dense layers except the last, since
# logits are close to each other. The last and the convolutions use each input's own range: calibrated ones do not make
# convolutions faster (`benchmarks exports`). Depthwise kernels are widened, since int8 is slower.
LADDERS = {
    "FULLY_CONNECTED": ("int8", "dynamic", "int8-weights", "float16", "float32"),
    "CONV_2D": ("dynamic", "int8-weights", "float16", "float32"),
    "DEPTHWISE_CONV_2D": ("int8-weights", "float16", "float32"),
}
# LiteRT's GPU delegate fails on dense layers of widened int8 weights; the last is small, so that float16 costs little.
LAST = ("dynamic", "float16", "float32")
FEW = 4  # input channels; convolutions of pixels have the bound of dense layers


def from_saved_model(folder):
    """Converts a SavedModel to TFLite's bytes, with built-in operators only."""
    import tensorflow as tf

    if not hasattr(tf, "lite"):
        raise RuntimeError(
            f"TensorFlow {tf.__version__} has no tf.lite, and so cannot write TFLite files. Install a version with it, "
            "such as 2.21, or export to .onnx or a SavedModel"
        )
    converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return converter.convert()


def from_stablehlo(path, inputs, outputs):
    """Converts StableHLO to TFLite's bytes, with built-in operators only; `inputs` and `outputs` are names."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager
    from litert_converter.mlir.dialects import stablehlo

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context:
        module = stablehlo.deserialize_portable_artifact(context, Path(path).read_bytes())
        config = api.ConvertToTFLConfig()
        config.model_origin_framework = "JAX"
        api.run_convert_to_tfl_passes(module, passmanager.PassManager(), config)
        (function,) = (x for x in module.body.operations if x.name.value == "main")
        operations = [x.operation for block in function.body.blocks for x in block.operations]
        foreign = {describe_operation(x) for x in operations if x.name.split(".")[0] not in ("tfl", "arith", "func")}
        if foreign:
            print(f"Custom ops: {', '.join(sorted(foreign))}", file=sys.stderr)
            raise RuntimeError("TFLite lacks operators")
        api.set_signature(function, "serving_default", inputs, outputs)
        return api.export_flatbuffer_to_bytes(module.operation)


def describe_operation(operation):
    called = "call_target_name"
    return operation.attributes[called].value if called in operation.attributes else operation.name.split(".")[1]


def list_layers(path):
    """{name of its output: (operator, shape of its weights)} of the dense layers and convolutions with float weights in
    a TFLite file.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(Path(path).read_bytes(), 0)
    operators = {getattr(schema.BuiltinOperator, name): name for name in LADDERS}
    graph = model.subgraphs[0]
    layers = {}
    for operator in graph.operators:
        name = operators.get(model.operatorCodes[operator.opcodeIndex].builtinCode)
        if name and model.buffers[(weights := graph.tensors[operator.inputs[1]]).buffer].data is not None:
            layers[graph.tensors[operator.outputs[0]].name.decode()] = name, weights.shape
    return layers


def calibrate(quantizer, batches):
    """Calibrates by the smallest and largest value of each tensor over all images; the quantizer would average them."""
    found = {}
    for batch in batches:
        for name, seen in quantizer.calibrate({"serving_default": [batch]}).items():
            known = found.setdefault(name, dict(seen))
            known["min"] = np.minimum(known["min"], seen["min"])
            known["max"] = np.maximum(known["max"], seen["max"])
    return found


class TFLiteQuantizer:
    """Writes the float TFLite file `path` with its layers stored in given ways.

    Norms, softmax, GELU and sums stay in float.

    Args:
        kind: "float16", "dynamic" or "int8".
        goal: its inputs calibrate "int8"; see `proof.mixture`. None for "float16".
    """

    def __init__(self, path, kind, goal):
        self.path, self.goal, self.ranges = path, goal, None
        layers = list_layers(path)
        self.layers = {name: operator for name, (operator, _) in layers.items()}
        self.sizes = {name: int(np.prod(shape)) for name, (_, shape) in layers.items()}
        dense = [name for name, operator in self.layers.items() if operator == "FULLY_CONNECTED"]
        self.ladders = {}
        for name, operator in self.layers.items():
            ladder = LAST if name in dense[-1:] else LADDERS[operator]
            self.ladders[name] = ladder if kind == "int8" else tuple(way for way in ladder if way != "int8")
        self.convolutions = {x for x, (operator, shape) in layers.items() if operator == "CONV_2D" and shape[-1] > FEW}

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


def main(job):
    """Keys of the job: saved_model, a folder, or stablehlo, one file or those at `rewriting.SIZES`, with the names
    inputs and outputs; float (the converted file), output (the quantized file), quantize; to quantize also those of
    `proof.mixture`.
    """
    # By its path: importing the format's package would import Keras.
    rewriting = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("rewriting.py"))))
    if "saved_model" in job:
        with literal(job["saved_model"]) as folder:
            converted = from_saved_model(folder)
    else:
        files = [from_stablehlo(path, job["inputs"], job["outputs"]) for path in job["stablehlo"]]
        converted = rewriting.free_batch(files) if len(files) > 1 else files[0]
    converted = rewriting.rewrite_for_gpus(converted)
    finer, place = {}, job["float"] if job["quantize"] else job["output"]
    Path(place).write_bytes(converted)
    if job["quantize"] == "float16":
        quantizer = TFLiteQuantizer(place, "float16", None)
        quantizer.write(dict.fromkeys(quantizer.layers, "float16"), job["output"])
    elif job["quantize"]:
        finer = quantize_to_goal(job, TFLiteQuantizer(place, job["quantize"], Goal.read(job["goal"])))
    if job["quantize"]:
        output = Path(job["output"])
        shared = rewriting.share_equal_vectors(output.read_bytes())
        output.unlink()  # the quantizer makes the file executable
        output.write_bytes(shared)
    return {name.replace("jit(forward)/", ""): way for name, way in finer.items()}  # JAX adds the function's name


def explain_log(log):
    """A sentence from the output of the failed converter."""
    foreign = re.findall(r"^(?:Flex|Custom|TF Select) ops: ([\w, ]+)$", log, re.MULTILINE)
    if foreign:
        names = ", ".join(sorted({name.strip() for line in foreign for name in line.split(",")}))
        return f"TFLite has no built-in operator for: {names}. Export a SavedModel instead, or try .onnx."
    raised = re.findall(r"^[\w.]+(?:Error|Exception): (.+)$", log, re.MULTILINE)
    return f"The TFLite converter failed: {raised[-1] if raised else last_line(log)}."


def convert(source, folder, path, order):
    """Writes the file `path` like the package's `write`; `source` has the keys of `main` on the source."""
    job = {**source, "float": str(folder / "float.tflite"), "output": str(path), "quantize": order.quantize}
    if order.goal is not None:
        return run_quantizer(__file__, job, order, explain_log)
    return run_script(__file__, job, explain_log)

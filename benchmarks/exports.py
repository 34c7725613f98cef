"""Exported files in onnxruntime, LiteRT and OpenVINO, beside timm's own ONNX export."""

import contextlib
from functools import partial

import numpy as np

from benchmarks.cases import tell
from benchmarks.subjects import Case, Contestant, Settings
from benchmarks.torch_models import NAMES
from keras_vit.evaluation.device.measuring import count_cores, seconds_per_call

PRECISIONS = ("float32", "float16", "dynamic", "int8")


def build_random_model(name):
    """A model whose kernels are random and whose head is not zero; always the same."""
    import keras

    from keras_vit import models

    keras.utils.set_random_seed(0)
    model = models.build(models.variant(name).config)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("kernel"):
            weight.assign(rng.normal(0, 0.02, weight.shape))
    return model


def write_export(path, name, precision):
    from keras_vit import export

    tell(f"  exporting {path.name}", end="\r")
    export.convert(build_random_model(name), path, quantize=None if precision == "float32" else precision)


def write_timm(path, name):
    import timm
    import torch

    model = timm.create_model(NAMES[name], pretrained=False).eval()
    batch = ({0: torch.export.Dim("batch")},)
    x = torch.randn(2, 3, 224, 224)
    torch.onnx.export(model, x, path, opset_version=20, dynamo=True, dynamic_shapes=batch, external_data=False)


def random_images(batch, shape):
    return np.random.default_rng(0).uniform(-1, 1, (batch, *shape)).astype("float32")


def run_onnxruntime(path, batch, threads):
    """A function that runs an ONNX file on a batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work after a run would take the cores from the one whose turn is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    given = {entry.name: random_images(batch, [side if isinstance(side, int) else 224 for side in entry.shape[1:]])}
    return lambda: session.run(None, given)


def run_litert(path, batch, threads):
    """A function that runs a TFLite file on a batch."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    (entry,) = interpreter.get_input_details()
    images = random_images(batch, entry["shape"][1:])
    interpreter.resize_tensor_input(entry["index"], images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(entry["index"], images)
    return interpreter.invoke


def run_openvino(path, batch, threads):
    """A function that runs an ONNX file on a batch; float32 is computed as such, which OpenVINO does not by itself."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    shape = [side.get_length() if side.is_static else 224 for side in list(model.input(0).partial_shape)[1:]]
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", options).create_infer_request()
    images = random_images(batch, shape)
    return lambda: request.infer([images])


def run_saved_model(path, batch, threads):
    """A function that runs a SavedModel on a batch; TensorFlow has its threads from the environment."""
    import tensorflow as tf

    model = tf.saved_model.load(str(path))
    run = model.signatures["serving_default"]
    ((name, entry),) = run.structured_input_signature[1].items()
    images = tf.constant(random_images(batch, [side or 224 for side in entry.shape[1:]]))
    return lambda: [y.numpy() for y in run(**{name: images}).values()]


# {kind: (runtime, what runs a file in it, ending of its files, precisions)}
FORMATS = {
    "onnx": ("onnxruntime", run_onnxruntime, ".onnx", PRECISIONS),
    "tflite": ("LiteRT", run_litert, ".tflite", PRECISIONS),
    "saved_model": ("TensorFlow", run_saved_model, "", ("float32",)),
}


def enter_exports(case: Case, settings: Settings):
    """Our file of each precision in a format's runtime; ONNX also in OpenVINO, beside timm's file."""
    runtime, run, ending, precisions = FORMATS[case.kind]
    threads = count_cores()

    def enter(run, write, name, *rest, over=()):
        path = settings.files / f"{case.model.replace('/', '_')}-{name}{ending}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.redirect_stdout(None):
                write(path, case.model, *rest)
        return Contestant(partial(seconds_per_call, run(path, case.batch, threads)), case.batch, over)

    theirs = f"{runtime}, timm's float32"
    makers = {}
    for precision in precisions:
        rivals = f"OpenVINO, {precision}", theirs if precision == "float32" else f"{runtime}, float32"
        makers[f"{runtime}, {precision}"] = partial(enter, run, write_export, precision, precision, over=rivals)
    if case.kind == "onnx" and "openvino" in settings.peers:
        for precision in precisions:
            makers[f"OpenVINO, {precision}"] = partial(enter, run_openvino, write_export, precision, precision)
    if case.kind == "onnx" and "timm" in settings.peers and case.model in NAMES:
        makers[theirs] = partial(enter, run_onnxruntime, write_timm, "timm")
    return makers

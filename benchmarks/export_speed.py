"""ViT-B/16 in onnxruntime and LiteRT: our exports beside timm's, in one interleaved run. Needs the extra `bench`.

    python benchmarks/export_speed.py --threads 2 --rounds 10

Random weights; every row is measured in turn in every round, so that a busy machine slows all alike. Prints the median
and the fastest milliseconds of a batch, and the speed beside timm's (beside float32 for LiteRT).
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np


def random_vit():
    """A ViT-B/16 whose kernels are random and whose head is not zero."""
    from keras_vit.models import VisionTransformer

    model = VisionTransformer()
    random = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("kernel"):
            weight.assign(random.normal(0, 0.02, weight.shape))
    return model


def timm_vit(path):
    import timm
    import torch

    model = timm.create_model("vit_base_patch16_224", pretrained=False).eval()
    batch = ({0: torch.export.Dim("batch")},)
    pictures = torch.randn(2, 3, 224, 224)
    torch.onnx.export(model, pictures, path, opset_version=20, dynamo=True, dynamic_shapes=batch, external_data=False)


def onnx_runner(path, threads, batch):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (images,) = session.get_inputs()
    shape = [batch, *images.shape[1:]]
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    return lambda: session.run(None, {images.name: x})


def tflite_runner(path, threads, batch):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    (images,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(images["index"], [batch, *images["shape"][1:]])
    interpreter.allocate_tensors()
    shape = (batch, *images["shape"][1:])
    interpreter.set_tensor(images["index"], np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"))
    return interpreter.invoke


def measured(runs, rounds):
    """Seconds by name, `rounds` of each, interleaved, after one run that is not counted."""
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def report(times, batch):
    first = next(iter(times.values()))
    for name, seconds in times.items():
        median, best = statistics.median(seconds), min(seconds)
        ratios = f"{statistics.median(first) / median:.2f} (fastest {min(first) / best:.2f})"
        milliseconds = f"{1e3 * median:8.1f} ms  fastest {1e3 * best:8.1f} ms"
        print(f"batch {batch}  {name:16} {milliseconds}  speed {ratios}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--skip-tflite", action="store_true")
    arguments = parser.parse_args()
    from keras_vit import export

    model = random_vit()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        timm_vit(folder / "timm.onnx")
        for quantize in (None, "float16", "dynamic", "int8"):
            print(export.convert(model, folder / f"{quantize}.onnx", quantize=quantize), flush=True)
        for batch in (1, 8):
            names = ("timm", "None", "float16", "dynamic", "int8")
            runs = {f"onnx {name}": onnx_runner(folder / f"{name}.onnx", arguments.threads, batch) for name in names}
            report(measured(runs, arguments.rounds), batch)
        if arguments.skip_tflite:
            return
        kinds = (None, "dynamic", "int8")
        for quantize in kinds:
            print(export.convert(model, folder / f"{quantize}.tflite", quantize=quantize, batch_size=1), flush=True)
        runs = {f"tflite {name}": tflite_runner(folder / f"{name}.tflite", arguments.threads, 1) for name in kinds}
        report(measured(runs, arguments.rounds), 1)


if __name__ == "__main__":
    main()

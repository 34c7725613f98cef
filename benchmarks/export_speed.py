"""ViT-B/16 in onnxruntime and LiteRT: our exports beside timm's, in one interleaved run. Needs the extra `bench`.

    python benchmarks/export_speed.py --threads 2 --rounds 10
    python benchmarks/export_speed.py --only tflite --folder files    # without timm; keeps the files

Random weights; the files take turns, and the threads of each rest when it is not its turn. Prints the median and the
fastest milliseconds of a batch, and how many times as fast as the first file of the table it is.
"""

import argparse
import contextlib
import statistics
import tempfile
from pathlib import Path

import numpy as np
from timing import take_turns

KINDS = ("float32", "float16", "dynamic", "int8")


def build_random_vit():
    """A ViT-B/16 whose kernels are random and whose head is not zero."""
    from keras_vit.models import VisionTransformer

    model = VisionTransformer()
    random = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith("kernel"):
            weight.assign(random.normal(0, 0.02, weight.shape))
    return model


def write_timm(path):
    import timm
    import torch

    model = timm.create_model("vit_base_patch16_224", pretrained=False).eval()
    batch = ({0: torch.export.Dim("batch")},)
    x = torch.randn(2, 3, 224, 224)
    torch.onnx.export(model, x, path, opset_version=20, dynamo=True, dynamic_shapes=batch, external_data=False)


def write_ours(folder, suffix):
    """Writes a file of each kind that is not in the folder yet."""
    from keras_vit import export

    missing = [kind for kind in KINDS if not (folder / f"{kind}.{suffix}").exists()]
    model = build_random_vit() if missing else None
    for kind in missing:
        quantize = None if kind == "float32" else kind
        print(export.convert(model, folder / f"{kind}.{suffix}", quantize=quantize), flush=True)


def random_images(shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def onnx_runner(path, threads, batch):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work after a run would take the cores from the session whose turn is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    x = random_images([batch, *entry.shape[1:]])
    return lambda: session.run(None, {entry.name: x})


def tflite_runner(path, threads, batch):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    (entry,) = interpreter.get_input_details()
    shape = [batch, *entry["shape"][1:]]
    interpreter.resize_tensor_input(entry["index"], shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(entry["index"], random_images(shape))
    return interpreter.invoke


def report(times, batch):
    first = next(iter(times.values()))
    for name, seconds in times.items():
        median, best = statistics.median(seconds), min(seconds)
        ratios = f"{statistics.median(first) / median:.2f} (fastest {min(first) / best:.2f})"
        milliseconds = f"{1e3 * median:8.1f} ms  fastest {1e3 * best:8.1f} ms"
        print(f"batch {batch}  {name:16} {milliseconds}  speed {ratios}", flush=True)


def make_onnx_files(folder):
    if not (folder / "timm.onnx").exists():
        write_timm(folder / "timm.onnx")
    write_ours(folder, "onnx")
    return [folder / f"{name}.onnx" for name in ("timm", *KINDS)]


def make_tflite_files(folder):
    write_ours(folder, "tflite")
    return [folder / f"{kind}.tflite" for kind in KINDS]


RUNTIMES = {"onnx": (make_onnx_files, onnx_runner), "tflite": (make_tflite_files, tflite_runner)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=RUNTIMES, help="one format instead of both")
    parser.add_argument("--folder", type=Path, help="where the files are kept; none is written twice")
    arguments = parser.parse_args()
    folder = contextlib.nullcontext(arguments.folder) if arguments.folder else tempfile.TemporaryDirectory()
    with folder as name:
        Path(name).mkdir(parents=True, exist_ok=True)
        for form in [arguments.only] if arguments.only else RUNTIMES:
            make_files, runner = RUNTIMES[form]
            paths = make_files(Path(name))
            for batch in (1, 8):
                runs = {path.name: runner(path, arguments.threads, batch) for path in paths}
                report(take_turns(runs, arguments.rounds), batch)


if __name__ == "__main__":
    main()

"""What a GPU takes of TFLite files, by LiteRT's own delegate on the GPU in software that comes with Chromium."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_vit.export.tflite.reading import ADVICE, read_log

CHROMIUM = Path("/usr/lib/chromium")
FOUND = "I0000 environment.cc:532] Selected adapter: SwiftShader Device (Subzero), arch=swiftshader, backend=Vulkan\n"
REFUSAL = "ERROR: Following operations are not supported by GPU delegate:\nCONV_3D: Operation is not supported.\n"
LOGS = {
    "ERROR: Failed to initialize WebGPU environment: INTERNAL: No adapters found\n": None,
    FOUND: (9, []),
    f"{FOUND}{REFUSAL}7 operations will run on the GPU, and the remaining 2 operations will run on the CPU.\n": (
        7,
        ["CONV_3D: Operation is not supported."],
    ),
    f"{FOUND}E0000 delegate_webgpu.cc:478] Failed to create litert::DelegateKernelLiteRt: Shape mismatch\n": (
        0,
        ["Shape mismatch"],
    ),
    f"{FOUND}WARNING: Attempting to use a delegate that only supports static-sized tensors with a graph\n": (
        0,
        [ADVICE],
    ),
    f"{FOUND}{REFUSAL}No operations will run on the GPU, and all 9 operations will run on the CPU.\n": (
        0,
        ["CONV_3D: Operation is not supported."],
    ),
}


@pytest.mark.parametrize("log", LOGS)
def test_what_litert_logs_is_read(log):
    found = read_log(log, 9)
    assert (found and (found["taken"], found["refused"])) == LOGS[log]


EXPORTS = """
import json, sys
from pathlib import Path
import keras
import tensorflow as tf
from family_models import OPTIONS, made
from keras_vit import models, zoo
from keras_vit.export import convert
from keras_vit.export.tflite.reading import ask_gpu

def write_volume(path):
    f = tf.function(lambda x: tf.nn.conv3d(x, tf.ones((3, 3, 3, 3, 4)), [1] * 5, "SAME"))
    traced = f.get_concrete_function(tf.TensorSpec((1, 8, 8, 8, 3)))
    path.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([traced]).convert())

def pool(layer):
    x = keras.Input((28, 28, 3))
    return keras.Model(x, keras.layers.Dense(10)(keras.layers.Flatten()(layer(keras.layers.ZeroPadding2D()(x)))))

def make_family():
    return {option: (made(option)[0], None) for option in OPTIONS}

def load_shipped():
    loaded = [zoo.load(f"{name}:fashion-mnist") for name in ("ViT-Mini/4", "R20x0.5")]
    return {f"{model.name} {quantize}": (model, quantize) for model in loaded for quantize in (None, "float16")}

def make_others():
    sizes = dict(image_size=32, patch_size=2, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=10)
    hybrid = models.VisionTransformer(**sizes, backbone=models.BackboneConfig(depths=(1,), width_factor=0.5))
    hybrid.get_layer("head").kernel.assign(keras.random.normal((16, 10)))
    pools = ("MaxPooling2D", "AveragePooling2D")
    return {"hybrid": (hybrid, None)} | {name: (pool(getattr(keras.layers, name)(3, 2)), None) for name in pools}

out = Path(sys.argv[1])
for name, (model, quantize) in globals()[sys.argv[2]]().items():
    print(json.dumps([name, convert(model, out / f"{name}.tflite", quantize=quantize, batch_size=1).gpu]))
if sys.argv[2] == "make_others":
    write_volume(out / "volume.tflite")
    print(json.dumps(["volume", ask_gpu(out / "volume.tflite")]))
    print(json.dumps(["free", convert(made("clip")[0], out / "free.tflite").gpu]))
"""
ON_GPU = """
import sys
import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from ai_edge_litert.interpreter import Interpreter

for path in sys.argv[1:]:
    run = Interpreter(model_path=path).get_signature_runner()
    ((name, details),) = run.get_input_details().items()
    x = np.random.default_rng(1).normal(size=details["shape"]).astype("float32")
    (expected,) = run(**{name: x}).values()
    model = CompiledModel.from_file(path, hardware_accel=HardwareAccelerator.GPU)
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    inputs[0].write(x)
    model.run_by_index(0, inputs, outputs)
    received = outputs[0].read(expected.size, np.float32).reshape(expected.shape)
    np.testing.assert_allclose(received, expected, rtol=1e-3, atol=1e-3 if "float16" in path else 1e-4, err_msg=path)
"""


@pytest.fixture(scope="module")
def environment():
    """Of processes that find the GPU in software."""
    driver = CHROMIUM / "vk_swiftshader_icd.json"
    if not driver.exists():
        pytest.skip(f"{driver} is not there: it comes with Chromium")
    support = str(Path(__file__).parents[1] / "support")
    paths = os.pathsep.join([support, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "VK_ICD_FILENAMES": str(driver), "LD_LIBRARY_PATH": str(CHROMIUM), "PYTHONPATH": paths}


def run(environment, code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


PRODUCTS = ["BATCH_MATMUL: Not supported batched mat mul case: non-constant tensor"]
REFUSED = {
    "make_family": {"siglip": PRODUCTS, "zero-shot": PRODUCTS},  # of attention pooling, whose query is a constant
    "load_shipped": {},
    "make_others": {"volume": ["CONV_3D: Operation is not supported."], "free": [ADVICE]},
}


@pytest.mark.browser
@pytest.mark.parametrize("models", REFUSED)
def test_a_gpu_takes_our_files_and_computes_the_same(environment, tmp_path, models):
    lines = run(environment, EXPORTS, tmp_path, models).splitlines()
    told = dict(json.loads(line) for line in lines if line.startswith('["'))
    refused = {name: gpu["refused"] for name, gpu in told.items() if gpu["taken"] != gpu["operations"]}
    assert refused == REFUSED[models] and len(told) > len(refused)
    assert told.get("volume", {"taken": 0})["taken"] == 0
    run(environment, ON_GPU, *(path for path in tmp_path.glob("*.tflite") if path.stem not in refused))

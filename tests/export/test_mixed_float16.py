"""ONNX graphs in float16: compared in onnxruntime, and in NumPy, which rounds and overflows at every operator."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from keras_vit import export
from keras_vit.errors import ExportError
from keras_vit.export.formats import require_known_operations
from keras_vit.export.onnx import mixed_float16
from keras_vit.models import ResNet, VisionTransformer

TINY = {"image_size": 16, "patch_size": 8, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "mlp_dim": 64}
MODELS = {
    "vit": lambda: VisionTransformer(**TINY, num_classes=5),
    "resnet": lambda: ResNet((32, 32), depths=(1,), width_factor=0.5, num_classes=5),
}
STAY = {"LayerNormalization", "InstanceNormalization", "Softmax", "ReduceMean"}
PRODUCTS = {"MatMul", "Gemm", "Conv"}


def shaken(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.1, weight.shape))
    return model


def images_for(model, n=2):
    return np.random.default_rng(1).uniform(-1, 1, (n, *model.input.shape[1:])).astype("float32")


def list_types(path):
    """{(operator, type of its first input)} of the file."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    graph = proto.graph
    types = {x.name: x.type.tensor_type.elem_type for x in [*graph.value_info, *graph.input, *graph.output]}
    types |= {x.name: x.data_type for x in graph.initializer}
    return {(node.op_type, onnx.TensorProto.DataType.Name(types[node.input[0]])) for node in graph.node}


def run_in_both(path, x):
    """The outputs in onnxruntime, and in NumPy operator by operator."""
    (fast,) = onnxruntime.InferenceSession(path).run(None, {"images": x})
    (exact,) = ReferenceEvaluator(str(path)).run(None, {"images": x})
    assert fast.dtype == exact.dtype == np.float32
    return fast, exact


@pytest.mark.parametrize("kind", MODELS)
def test_products_in_float16_and_norms_in_float32(kind, tmp_path):
    model = shaken(MODELS[kind]())
    report = export.convert(model, tmp_path / "m.onnx", quantize="mixed_float16")
    require_known_operations("onnx", tmp_path / "m.onnx")
    assert report.model_weight_bytes / report.weight_bytes > 1.9
    types = list_types(tmp_path / "m.onnx")
    assert {kind for op, kind in types if op in PRODUCTS} == {"FLOAT16"}
    assert {kind for op, kind in types if op in STAY} == {"FLOAT"} and {op for op, _ in types} & STAY
    x = images_for(model)
    expected = np.asarray(model(x))
    for found in run_in_both(tmp_path / "m.onnx", x):
        difference = np.abs(found - expected).max() / np.abs(expected).max()
        assert 1e-5 < difference < 5e-3  # float16 rounds by up to 5e-4


def large(scale):
    """Activations of about `scale` between two dense layers, and outputs of about 1."""
    random = np.random.default_rng(0)
    x = keras.Input((8, 8, 3), name="images")
    y = keras.layers.Dense(16, use_bias=False)(keras.layers.Flatten()(x))
    model = keras.Model(x, keras.layers.Dense(8)(keras.layers.ReLU()(y)))
    kernel = random.normal(0, 0.1, (192, 16)) * scale
    model.set_weights([kernel, random.normal(0, 0.3, (16, 8)) / scale, np.zeros(8)])
    return model


@pytest.mark.parametrize(("scale", "kind"), [(1e3, "FLOAT16"), (6e4, "FLOAT"), (1e6, "FLOAT")])
def test_what_float16_cannot_hold_stays_in_float32(scale, kind, tmp_path):
    model = large(scale)
    export.convert(model, tmp_path / "m.onnx", quantize="mixed_float16")
    types = list_types(tmp_path / "m.onnx")
    assert ("Relu", kind) in types
    x = images_for(model)
    for found in run_in_both(tmp_path / "m.onnx", x):
        np.testing.assert_allclose(found, np.asarray(model(x)), atol=5e-3)


def test_without_the_measurement_it_would_overflow(tmp_path, monkeypatch):
    """Which onnxruntime does not show on a processor, where it widens float16."""
    monkeypatch.setattr(mixed_float16, "LARGEST", np.inf)
    model = large(1e5)
    export.convert(model, tmp_path / "m.onnx", quantize="mixed_float16")
    with np.errstate(all="ignore"):
        _, exact = run_in_both(tmp_path / "m.onnx", images_for(model))
    assert not np.isfinite(exact).all()


def test_formats_and_models_that_lack_it(tmp_path):
    with pytest.raises(ExportError, match="tflite cannot be quantized as 'mixed_float16'"):
        export.convert(large(1), tmp_path / "m.tflite", quantize="mixed_float16")
    x = keras.Input((8, 8, 3))
    untraced = keras.Model(x, keras.layers.Lambda(lambda x: keras.ops.fft2((x, x))[0][:, 0, 0])(x))
    with pytest.raises(ExportError, match='cannot be written in "mixed_float16".*Expected quantize="float16"'):
        export.convert(untraced, tmp_path / "m.onnx", quantize="mixed_float16")
    assert not list(tmp_path.iterdir())

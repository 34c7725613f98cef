"""Layers of ONNX files in int8 and float16, against the integers that numpy finds."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_vit.export.onnx.quantizing import FINER, OnnxQuantizer, list_ladders, store_layers
from keras_vit.export.proof.mixture import Goal


def write(nodes, constants, outputs=("y", "z")):
    """A file of float32 images `x` (n, 6)."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in outputs]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "model", [entry], values, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    helper.set_model_props(proto, {"title": "kept"})
    return proto


@pytest.fixture
def layers():
    """A product, and one with a bias and turned weights, of the same activation."""
    random = np.random.default_rng(0)
    arrays = {name: random.normal(0, 1, shape).astype("float32") for name, shape in SHAPES.items()}
    arrays["b"][4] = 0  # a channel without a range
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"], name="plain"),
        helper.make_node("Gemm", ["x", "b", "bias"], ["z"], name="turned", transB=1),
    ]
    return write(nodes, arrays), arrays


SHAPES = {"a": (6, 8), "b": (5, 6), "bias": (5,)}


def run(proto, x):
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )


def round_activation(x):
    """ONNX' DynamicQuantizeLinear: 255 steps from the least to the most, 0 among them."""
    scale = (max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    zero = np.clip(np.round(-min(x.min(), 0) / scale), 0, 255)
    return scale, np.clip(np.round(x / scale) + zero, 0, 255).astype(int) - int(zero)


def round_channels(w):
    """127 steps on each side of 0 for every column."""
    scale = np.abs(w).max(axis=0).astype("float64") / 127
    scale[scale == 0] = 1
    return scale, np.round(w / scale).astype(int)


def test_products_in_int8_are_those_of_the_integers(layers):
    proto, arrays = layers
    x = np.random.default_rng(1).normal(0.3, 1, (7, 6)).astype("float32")
    assert set(list_ladders(proto.graph, "dynamic")) == {"plain", "turned"}
    stored = store_layers(proto, {"plain": "dynamic", "turned": "dynamic"})
    scale, integers = round_activation(x)
    for received, w, bias in zip(run(stored, x), (arrays["a"], arrays["b"].T), (0, arrays["bias"]), strict=True):
        scales, columns = round_channels(w)
        np.testing.assert_allclose(received, integers @ columns * (scale * scales) + bias, rtol=0, atol=1e-5)
    operators = [node.op_type for node in stored.graph.node]
    assert operators.count("DynamicQuantizeLinear") == 1 and operators.count("MatMulInteger") == 2
    assert {x.name: x.data_type for x in stored.graph.initializer if len(x.dims) == 2} == {
        "plain/weights/int8": TensorProto.INT8,
        "turned/weights/int8": TensorProto.INT8,
    }
    assert [(x.key, x.value) for x in stored.metadata_props] == [("title", "kept")]


@pytest.mark.parametrize(("way", "bound"), [("int8-weights", 0.02), ("float16", 1e-3), ("float32", 0)])
def test_weights_are_stored_in_the_way_that_is_asked_for(layers, way, bound):
    proto, arrays = layers
    before = proto.SerializeToString()
    x = np.random.default_rng(1).normal(0, 1, (3, 6)).astype("float32")
    exact = [x @ arrays["a"], x @ arrays["b"].T + arrays["bias"]]
    for received, expected in zip(
        run(store_layers(proto, dict.fromkeys(("plain", "turned"), way)), x), exact, strict=True
    ):
        error = np.abs(received - expected).max() / np.abs(expected).max()
        assert (error > 1e-7 or not bound) and error <= max(bound, 1e-6)
    assert proto.SerializeToString() == before  # the source is read again for the next choice


def test_scaled_products_are_no_layers():
    arrays = {"a": np.ones((6, 8), "float32"), "bias": np.ones(8, "float32")}
    node = helper.make_node("Gemm", ["x", "a", "bias"], ["y"], name="scaled", alpha=0.5)
    assert list_ladders(write([node], arrays, ["y"]).graph, "dynamic") == {}


def test_weights_that_a_branch_takes_stay():
    arrays = {"a": np.eye(6, 8, dtype="float32"), "positive": np.array(True)}
    output = [helper.make_tensor_value_info("branch", TensorProto.FLOAT, [None, None])]
    branch = helper.make_graph([helper.make_node("MatMul", ["x", "a"], ["branch"])], "branch", [], output)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"], name="outside"),
        helper.make_node("If", ["positive"], ["z"], then_branch=branch, else_branch=branch),
    ]
    x = np.arange(6, dtype="float32")[None]
    received = run(store_layers(write(nodes, arrays), {"outside": "dynamic"}), x)
    np.testing.assert_allclose(received, [x @ arrays["a"]] * 2, atol=0.02)


def write_convolutions(kernels, nodes, outputs, channels):
    """A file of images `x` (n, channels, 6, 6) with convolutions by 3x3 `kernels`."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, 6, 6])
    initializers = [numpy_helper.from_array(value, name) for name, value in kernels.items()]
    graph = helper.make_graph(nodes, "model", [entry], values, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def round_to_range(x, low, high):
    """255 steps from the least to the most: the values of the steps, and one step."""
    scale = (high - low) / 255
    zero = np.round(-low / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale, scale


def test_convolutions_in_int8_are_those_of_the_integers(tmp_path):
    random = np.random.default_rng(0)
    x, kernel = (random.normal(0, 1, shape).astype("float32") for shape in ((8, 8, 6, 6), (32, 8, 3, 3)))
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="relu"),
        helper.make_node("Conv", ["positive", "kernel"], ["y"], name="conv", kernel_shape=[3, 3]),
    ]
    source, goal, stored = (str(tmp_path / name) for name in ("source.onnx", "goal.npz", "stored.onnx"))
    onnx.save(write_convolutions({"kernel": kernel}, nodes, ["y"], 8), source)
    Goal({"x": x}, [], (2,), False).save(goal)
    quantizer = OnnxQuantizer({"source": source, "kind": "int8", "goal": goal})
    assert quantizer.convolutions == {"conv"}
    quantizer.write({"conv": "int8"}, stored)
    (received,) = run(onnx.load(stored), x)

    def convolve(x, kernel):
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))  # (n, c, h, w, 3, 3)
        return np.einsum("nchwij,ocij->nohw", windows, kernel, dtype="float64")

    positive = np.maximum(x, 0)
    exact = convolve(positive, kernel)
    rounded, _ = round_to_range(positive, 0, positive.max())
    scales, columns = round_channels(kernel.reshape(32, -1).T)
    expected = convolve(rounded, (columns * scales).T.reshape(kernel.shape))
    expected, step = round_to_range(expected, exact.min(), exact.max())
    error = np.abs(received - expected)
    assert error.max() < 1.01 * step and (error < 0.01 * step).mean() > 0.98  # a few halves round to the other side
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(stored, options, providers=["CPUExecutionProvider"])
    assert "QLinearConv" in {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}


def test_convolutions_that_gain_nothing_stay_in_float():
    shapes = {"pixels": (128, 3), "depthwise": (256, 1), "pooled": (64, 32), "plain": (64, 32)}
    kernels = {name: np.ones((*shape, 3, 3), "float32") for name, shape in shapes.items()}
    inputs = {"pixels": "x", "depthwise": "x", "pooled": "pool", "plain": "x"}
    nodes = [helper.make_node("MaxPool", ["x"], ["pool"], kernel_shape=[3, 3])]
    nodes += [helper.make_node("Conv", [x, name], [f"{name}/y"], name=name) for name, x in inputs.items()]
    graph = write_convolutions(kernels, nodes, ["plain/y"], 32).graph
    ladders = list_ladders(graph, "int8")
    assert ladders == {**dict.fromkeys(("pixels", "depthwise", "pooled"), FINER), "plain": ("int8", *FINER)}
    assert set(list_ladders(graph, "dynamic").values()) == {FINER}

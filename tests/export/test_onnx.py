"""The graph writer: standard operators, few nodes, any operation of Keras it claims to know."""

from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras import layers, ops

from keras_vit import export
from keras_vit.export.formats import Order
from keras_vit.export.onnx import write
from keras_vit.export.onnx.lowering import Unsupported, lower
from keras_vit.export.onnx.passes import simplify
from keras_vit.models import ResNet, VisionTransformer


def graph_of(model, shapes=None):
    graph, inputs, outputs = lower(model, shapes or [tuple(x.shape) for x in model.inputs])
    simplify(graph, outputs)
    return graph


@pytest.mark.slow
def test_vit_b16_is_made_of_few_standard_nodes():
    graph = graph_of(VisionTransformer())
    counts = Counter(node.op for node in graph.nodes)
    assert counts["LayerNormalization"] == 25 and counts["Gelu"] == 12 and counts["Softmax"] == 12
    assert not {"Einsum", "Shape", "Slice", "Expand", "Concat", "Erf", "Pow"} & set(counts)
    for i in range(12):
        own = [node for node in graph.nodes if f"{node.path}/".startswith(f"encoderblock_{i}/")]
        assert len(own) <= (26 if i < 11 else 29)  # the last one takes the class token out first
    assert counts["Transpose"] == 2 + 4 * 12


def test_the_last_block_is_computed_for_the_class_token_alone(tmp_path):
    """In onnxruntime its MLP has one row for each image, the block's before one for each token."""
    model = VisionTransformer(image_size=32, patch_size=8, hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64)
    export.convert(model, tmp_path / "model.onnx")
    file = onnx.load(tmp_path / "model.onnx")
    hidden = [node.output[0] for node in file.graph.node if node.op_type == "Gelu"]
    file.graph.output.extend(onnx.ValueInfoProto(name=name) for name in hidden)
    session = onnxruntime.InferenceSession(file.SerializeToString())
    images = np.zeros((3, *model.input_shape[1:]), "float32")
    before, last = session.run(hidden, {session.get_inputs()[0].name: images})
    assert before.shape == (3 * 17, 64) and last.shape == (3, 64)


def test_resnet_folds_kernels_and_stays_channels_first():
    graph = graph_of(ResNet(image_size=64, depths=(2, 2), num_classes=7))
    counts = Counter(node.op for node in graph.nodes)
    assert counts["Transpose"] == 1 and counts["Conv"] == 15 and counts["InstanceNormalization"] == 13
    # One addition for each norm and one for each unit, none for the kernels.
    assert counts["Add"] == 13 + 4 and counts["Mul"] == 13


def test_free_heights_need_no_shapes():
    counts = Counter(node.op for node in graph_of(ResNet(image_size=None, depths=(1,), num_classes=7)).nodes)
    assert counts["InstanceNormalization"] == 4 and not {"Shape", "Gather", "Concat"} & set(counts)


class Apply(layers.Layer):
    """A layer of one function."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, x):
        return self.function(x)


SHAPE = (6, 8, 4)
FUNCTIONS = {
    "swapaxes": lambda x: ops.swapaxes(x, 1, -1),
    "transpose": lambda x: ops.transpose(x, (0, 2, 3, 1)),
    "index": lambda x: x[:, 1],
    "negative index": lambda x: x[:, -1, ::2],
    "slices": lambda x: x[:, 1:-1, ..., ::-1],
    "new axis": lambda x: x[:, None, :, 2],
    "split": lambda x: ops.concatenate(ops.split(x, 2, axis=-1)[::-1], axis=1),
    "unstack": lambda x: ops.add(*ops.unstack(x, axis=1)[:2]),
    "normalize zeros": lambda x: ops.normalize(x * 0.0),
    "mean of integers": lambda x: ops.mean(ops.cast(x * 9.0, "int32"), axis=(1, 2)),
    "mean of rows": lambda x: ops.mean(x, axis=1),
    "mean of channels": lambda x: ops.mean(x, axis=-1),
    "class token": lambda x: ops.concatenate(
        [ops.ones((ops.shape(x)[0], 1, 8, 4)), x, ops.zeros((ops.shape(x)[0], 6, 8, 4))], axis=1
    ),
    "einsum": lambda x: ops.einsum("nhwc,nwcd->nhd", x, ops.transpose(x, (0, 2, 3, 1))[:, :, :, :5]),
    "einsum with a constant": lambda x: ops.einsum("nhwc,cd->nhwd", x, np.arange(12, dtype="float32").reshape(4, 3)),
    "pad": lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))),
    "reflect": lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0)), mode="reflect"),
    "scalar on the left": lambda x: 1.0 - 2.0 / (3.0 + x),
    "flatten the batch": lambda x: ops.reshape(ops.reshape(x, (-1, 4)) * 2.0, (-1, 6, 8, 4)),
    "channels first then last": lambda x: (
        ops.max_pool(x, 2) + ops.transpose(ops.transpose(x, (0, 3, 1, 2)), (0, 2, 3, 1))[:, ::2, ::2]
    ),
    **{name: getattr(keras.activations, name) for name in ("gelu", "silu", "relu6", "leaky_relu", "tanh", "sigmoid")},
    "softmax": keras.activations.softmax,
    "gelu tanh": lambda x: ops.gelu(x, approximate=True),
}

# What no model of the libraries in docs/any_model.md needs has no emitter.
WITHOUT_EMITTER = {
    "moveaxis": lambda x: ops.moveaxis(x, 1, 3),
    "stack": lambda x: ops.stack([x, x * 2], axis=2),
    "squeeze": lambda x: ops.squeeze(ops.expand_dims(x, 2), 2),
    "max": lambda x: ops.max(x, axis=(1, 2), keepdims=True) - x,
    "variance": lambda x: ops.var(x, axis=(1, 2)),
    "moments": lambda x: ops.concatenate(ops.moments(x, axes=(1, 2)), axis=-1),
    "where": lambda x: ops.where(x > 0.2, x, -1.0),
    "clip": lambda x: ops.clip(x, -0.3, 0.5),
    "power": lambda x: ops.power(ops.abs(x), 1.5),
    "flip": lambda x: ops.flip(x, axis=2),
    "tile": lambda x: ops.tile(x, (1, 1, 2, 1)),
    "repeat": lambda x: ops.repeat(x, 2, axis=1),
    "take": lambda x: ops.take(x, np.array([2, 0]), axis=-1),
    "normalize": lambda x: x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-6),
    **{
        name: getattr(keras.activations, name)
        for name in ("elu", "selu", "softplus", "softsign", "log_softmax", "celu")
    },
    "exponential": keras.activations.exponential,
    "zeros_like": lambda x: ops.concatenate([x, ops.zeros_like(x)], axis=1),
    "prelu": layers.PReLU(alpha_initializer="ones"),
    "resizing": layers.Resizing(13, 5),
    "global max": layers.GlobalMaxPooling2D(keepdims=True),
}


def worst_difference(model, tmp_path, size=None, batches=(1, 3)):
    """Largest difference between the model and its file in onnxruntime; the file must come from the graph writer."""
    import onnxruntime

    path = tmp_path / "model.onnx"
    shapes = [tuple(x.shape) for x in model.inputs]
    graph_of(model, shapes)
    write(Order(model=model, shapes=shapes), path)
    session = onnxruntime.InferenceSession(str(path))
    differences = []
    for n in batches:
        random = np.random.default_rng(n)
        x = [
            random.uniform(-1, 1, (n, *(length or size for length in shape[1:]))).astype("float32") for shape in shapes
        ]
        expected = keras.tree.flatten(model(x if len(x) > 1 else x[0], training=False))
        received = session.run(None, {i.name: v for i, v in zip(session.get_inputs(), x, strict=True)})
        for a, b in zip(expected, received, strict=True):
            assert a.shape == b.shape
            differences.append(np.abs(np.asarray(a) - b).max())
    return max(differences)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("channels_first", (False, True))
def test_functions(name, channels_first, tmp_path):
    """Each function alone, and after a convolution, which leaves its output channels first."""
    keras.utils.set_random_seed(0)
    x = keras.Input(SHAPE)
    y = layers.Conv2D(4, 3, padding="same")(x) if channels_first else x
    y = Apply(FUNCTIONS[name])(y)
    y = layers.Conv2D(2, 1)(y) if channels_first and len(y.shape) == 4 else y
    assert worst_difference(keras.Model(x, y), tmp_path) < 1e-5


@pytest.mark.slow
def test_functions_without_an_emitter(tmp_path):
    """All in one model, which tf2onnx takes."""
    x = keras.Input(SHAPE)
    model = keras.Model(x, [Apply(function)(x) for function in WITHOUT_EMITTER.values()])
    with pytest.raises(Unsupported):
        graph_of(model)
    assert export.convert(model, tmp_path / "model.onnx").max_rel_diff < 1e-5


def test_an_einsum_with_a_repeated_letter_is_left_to_tf2onnx():
    x = keras.Input((6, 6, 4))
    with pytest.raises(Unsupported, match="Einsum in layer .*bhhc"):
        graph_of(keras.Model(x, Apply(lambda x: ops.einsum("bhhc,bhvc->bv", x, x))(x)))


LAYERS = {
    "same strides": lambda: layers.Conv2D(4, 3, strides=2, padding="same"),
    "dilation": lambda: layers.Conv2D(4, 3, dilation_rate=2, padding="same"),
    "groups": lambda: layers.Conv2D(4, 3, groups=2),
    "groups and a factor": lambda: keras.Sequential(
        [layers.Conv2D(4, 3, groups=2), Apply(lambda x: x * np.array([2.0], "float32"))]
    ),
    "a factor that adds an axis": lambda: keras.Sequential(
        [layers.Flatten(), layers.Dense(3), Apply(lambda x: x * np.full((1, 1, 1), 2.0, "float32")), layers.ReLU()]
    ),
    "separable": lambda: layers.SeparableConv2D(4, 3, depth_multiplier=2),
    "max pool": lambda: layers.MaxPooling2D(3, 2, "same"),
    "average pool": lambda: layers.AveragePooling2D(3, 2, "same"),
    "cropping": lambda: layers.Cropping2D(1),
    "flatten": lambda: keras.Sequential([layers.Conv2D(3, 3), layers.Flatten(), layers.Dense(5)]),
    "group norm": lambda: layers.GroupNormalization(2),
    "batch norm": lambda: layers.BatchNormalization(scale=False),
    "layer norm of two axes": lambda: layers.LayerNormalization(axis=(-2, -1)),
    "rescaling": lambda: layers.Rescaling([1.0, 2.0, 3.0, 4.0], 0.5),
    "normalization": lambda: layers.Normalization(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0]),
    "bounded relu": lambda: layers.ReLU(max_value=0.5, negative_slope=0.1),
    "permute": lambda: layers.Permute((3, 1, 2)),
    "attention": lambda: keras.Sequential([layers.Reshape((48, 4)), SelfAttention()]),
    "hard silu": lambda: layers.Activation("hard_silu"),
    "augmentation": lambda: keras.Sequential([layers.RandomFlip(), layers.RandomZoom(0.5), layers.RandomRotation(0.3)]),
    "noise": lambda: keras.Sequential([layers.GaussianNoise(1.0), layers.Dropout(0.5), layers.Dense(3)]),
    "weights on the left": lambda: Affine(),
    "batch norm of tokens": lambda: keras.Sequential([layers.Reshape((48, 4)), layers.BatchNormalization()]),
    "batch norm over the first axis": lambda: keras.Sequential(
        [layers.Reshape((48, 4)), layers.BatchNormalization(axis=1)]
    ),
    "bias of an image": lambda: layers.EinsumDense("nhwc,cd->nhwd", output_shape=(6, 8, 3), bias_axes="d"),
}


class Affine(layers.Layer):
    """Weights on the left of infix operations, which Keras would compute at once."""

    def build(self, input_shape):
        self.gamma, self.beta = (self.add_weight(shape=(input_shape[-1],)) for _ in range(2))

    def call(self, x):
        return self.beta - self.gamma * x / (self.beta + x * x + 3.0)


class SelfAttention(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 3)

    def call(self, x):
        return self.attention(x, x)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input(SHAPE)
    model = keras.Model(x, LAYERS[name]()(layers.Conv2D(4, 1)(x)))
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(0).uniform(0, 0.5, weight.shape))
    assert worst_difference(model, tmp_path) < 2e-5


def test_several_inputs_and_outputs(tmp_path):
    a, b = keras.Input((8,), name="a"), keras.Input((8,), name="b")
    dense = layers.Dense(4)
    model = keras.Model([a, b], [dense(a) + dense(b), dense(b)])
    assert worst_difference(model, tmp_path) < 1e-6


def test_inputs_by_name_in_any_order(tmp_path):
    x = {"right": keras.Input((4,), name="right"), "left": keras.Input((4,), name="left")}
    model = keras.Model(x, {"both": layers.Dense(3)(x["right"]) - layers.Dense(3)(x["left"]), "one": x["left"] * 2})
    report = export.convert(model, tmp_path / "model.onnx")
    assert report.max_rel_diff < 1e-6 and report.cosine > 0.9999


def test_bytes_that_become_numbers_inside(tmp_path):
    x = keras.Input((16, 16, 3), dtype="uint8")
    y = layers.Conv2D(3, 3)(layers.Rescaling(1 / 127.5, -1)(x))
    report = export.convert(keras.Model(x, ops.relu(y) - x[:, 1:-1, 1:-1] * 0.5), tmp_path / "model.onnx")
    assert report.max_rel_diff < 1e-5


def test_a_model_of_bare_operations_stays_as_it_was(tmp_path):
    x = keras.Input(SHAPE)
    y = layers.Conv2D(3, 1)(ops.relu(x + 0.5))
    model = keras.Model(x, y * 2.0 + y)
    for _ in range(2):
        assert worst_difference(model, tmp_path) < 1e-5
    assert keras.Model(model.input, y).output_shape == (None, 6, 8, 3)


def test_a_model_inside_a_model_and_a_model_edited_by_hand(tmp_path):
    inner = VisionTransformer(
        image_size=16, patch_size=8, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, num_classes=0
    )
    x = keras.Input((16, 16, 3))
    assert worst_difference(keras.Model(x, layers.Dense(3)(inner(x))), tmp_path) < 1e-5
    y = inner.get_layer("encoderblock_0").output
    edited = keras.Model(inner.input, layers.Dense(3)(layers.GlobalAveragePooling1D()(y)))
    assert worst_difference(edited, tmp_path) < 1e-5


@pytest.mark.parametrize(
    "name",
    (
        "MobileNetV3Small",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("EfficientNetB0", "ConvNeXtTiny", "ResNet50V2", "NASNetMobile")
        ),
    ),
)
def test_keras_applications(name, tmp_path):
    model = getattr(keras.applications, name)(weights=None, classifier_activation=None, input_shape=(64, 64, 3))
    assert worst_difference(model, tmp_path, batches=(2,)) < 1e-4


def test_the_file_is_valid_and_names_its_layers(tmp_path):
    x = keras.Input((32, 32, 3), name="pictures")
    model = keras.Model(x, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D(name="pool")(x)))
    export.convert(model, tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    assert [x.name for x in proto.graph.input] == ["pictures"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert any(node.name.startswith("head/") for node in proto.graph.node)
    assert proto.opset_import[0].version >= 20


def test_outputs_that_are_one_tensor_and_outputs_that_are_inputs(tmp_path):
    x = keras.Input((6, 8, 4))
    y = layers.Conv2D(3, 1)(x)
    assert worst_difference(keras.Model(x, [y, layers.Dropout(0.5)(y), layers.Dropout(0.5)(x)]), tmp_path) < 1e-6

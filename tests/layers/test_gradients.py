"""Gradients written by hand, against TensorFlow's own of the formulas in float64."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.layers import GELU, GroupNormalization, LayerNormalization, StandardizedConv2D

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's own differentiation is slow"
)
tf = pytest.importorskip("tensorflow")


def gelu(x, weights):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, weights):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-6) * weights[0] + weights[1]


def group_norm(x, weights):
    n, h, w, c = x.shape
    grouped = tf.reshape(x, (n, h * w, 3, c // 3))
    mean, variance = tf.nn.moments(grouped, [1, 3], keepdims=True)
    y = tf.reshape((grouped - mean) / tf.sqrt(variance + 1e-5), x.shape)
    return y * weights[0] + weights[1]


def group_norm_and_relu(x, weights):
    return tf.nn.relu(group_norm(x, weights))


def standardized(variance_epsilon, std_epsilon):
    def convolve(x, weights):
        mean, variance = tf.nn.moments(weights[0], [0, 1, 2])
        kernel = (weights[0] - mean) / (tf.sqrt(variance + variance_epsilon) + std_epsilon)
        return tf.nn.conv2d(x, kernel, 1, "SAME")

    return convolve


def hybrid(size, variance_epsilon, std_epsilon):
    return StandardizedConv2D(5, size, variance_epsilon=variance_epsilon, std_epsilon=std_epsilon)


CASES = {
    "gelu": (GELU(), gelu, (3, 5, 7)),
    "layer norm": (LayerNormalization(), layer_norm, (3, 5, 7)),
    "layer norm of a matrix": (LayerNormalization(), layer_norm, (4, 6)),
    "group norm": (GroupNormalization(groups=3), group_norm, (2, 4, 5, 6)),
    "group norm of a pixel": (GroupNormalization(groups=3), group_norm, (2, 1, 1, 24)),
    "group norm and ReLU": (GroupNormalization(groups=3), group_norm_and_relu, (2, 4, 5, 6)),
    "BiT's convolution": (StandardizedConv2D(5, 3), standardized(1e-10, 0), (2, 6, 5, 4)),
    "the hybrids'": (hybrid(3, 0.0, 0.01), standardized(0.0, 0.01), (2, 6, 5, 4)),
    "both epsilons": (hybrid(1, 0.1, 0.1), standardized(0.1, 0.1), (2, 6, 5, 4)),
}


def differentiate(function, x, weights, dy):
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        y = function(x)
    return [y.numpy(), *(dx.numpy() for dx in tape.gradient(y, [x, *weights], output_gradients=dy))]


def arguments(name):
    """Of the layer's call in training."""
    if isinstance(CASES[name][0], StandardizedConv2D):
        return {}
    return {"training": True} | ({"relu": True} if "ReLU" in name else {})


def in_float64(formula, x, layer, dy):
    """What `differentiate` is to find."""
    x, dy, *weights = (tf.constant(np.asarray(z, "float64")) for z in (x, dy, *layer.weights))
    return differentiate(lambda x: formula(x, weights), x, weights, dy)


@pytest.mark.parametrize("traced", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize("offset", [0.0, 10.0])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_in_training(name, offset, traced):
    layer, formula, shape = CASES[name]
    random = np.random.default_rng(0)
    if not layer.built:
        layer.build(shape)
    layer.set_weights([random.normal(size=w.shape).astype("float32") + 0.3 for w in layer.weights])
    x = (random.normal(size=shape) + offset).astype("float32")
    call = functools.partial(layer, **arguments(name))
    dy = random.normal(size=call(x).shape).astype("float32")

    weights = [w.value for w in layer.weights]
    found = differentiate(tf.function(call) if traced else call, tf.constant(x), weights, dy)
    expected = in_float64(formula, x, layer, dy)
    for values, truth in zip(found, expected, strict=True):
        assert values.shape == truth.shape
        # float32 rounds 10 + z to 5e-7 at most, which the norms enlarge.
        assert np.abs(values - truth).max() < (1e-4 if offset else 1e-6) * np.abs(truth).max() + 1e-9


@pytest.mark.parametrize("epsilons", [(1e-10, 0.0), (0.0, 1e-5)])
def test_constant_kernels_become_zero(epsilons):
    layer = StandardizedConv2D(3, 3, variance_epsilon=epsilons[0], std_epsilon=epsilons[1])
    layer.build((1, 4, 4, 2))
    layer.kernel.assign(np.full(layer.kernel.shape, 0.5))
    with tf.GradientTape() as tape:
        y = layer(np.ones((1, 4, 4, 2), "float32"))
    assert not y.numpy().any()
    assert np.isfinite(tape.gradient(y, layer.kernel.value).numpy()).all()


def built_group_norm(channels=6, dtype="float32"):
    layer = GroupNormalization(groups=3, dtype=dtype)
    layer.build((None, None, None, channels))
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(size=channels) + 0.3 for _ in layer.weights])
    return layer


def test_group_norm_in_mixed_precision_rounds_its_results_alone():
    layer, random = built_group_norm(dtype="mixed_bfloat16"), np.random.default_rng(1)
    x, dy = (tf.cast(random.normal(size=(2, 8, 9, 6)) + 3, tf.bfloat16) for _ in range(2))
    call = tf.function(functools.partial(layer, relu=True, training=True))
    found = differentiate(call, x, [w.value for w in layer.weights], dy)
    assert [z.dtype.name for z in found] == ["bfloat16", "bfloat16", "float32", "float32"]
    expected = in_float64(group_norm_and_relu, x, layer, dy)
    for values, truth in zip(found, expected, strict=True):
        last_bit = 2.0**-8 if values.dtype.name == "bfloat16" else 0.0
        difference = np.abs(values.astype("float64") - truth)
        assert np.all(difference <= last_bit * np.abs(truth) + 1e-5 * np.abs(truth).max())


def test_group_norm_of_a_large_image_of_one_colour():
    """One sum over 40,000 pixels in float32 is wrong by 1e-4 of itself, which the norm makes 0.01 of noise here."""
    layer = built_group_norm(channels=96)
    x = tf.fill((1, 200, 200, 96), 1 / 3)
    y = tf.function(functools.partial(layer, training=True))(x)
    assert np.abs(y.numpy() - layer.beta.numpy()).max() < 1e-3


@pytest.mark.parametrize("size", [8, None], ids=["known size", "any size"])
def test_group_norm_is_compiled_for_images_of_one_size(size):
    """XLA compiles for every shape anew, which must not happen at each batch of a training on images of many sizes."""
    layer = built_group_norm()
    traced = tf.function(functools.partial(layer, training=True)).get_concrete_function(
        tf.TensorSpec((None, size, size, 6))
    )
    functions = traced.graph.as_graph_def().library.function
    assert any(function.attr["_XlaMustCompile"].b for function in functions) == (size is not None)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 6)).astype("float32")
    assert np.abs(traced(tf.constant(x)).numpy() - layer(x).numpy()).max() < 1e-5


def test_group_norm_of_no_images():
    """As a replica may have of the last batch, in a training loop of one's own."""
    layer = built_group_norm()
    x = tf.zeros((0, 4, 4, 6))
    for call in (layer, tf.function(layer)):
        found = differentiate(functools.partial(call, training=True), x, [w.value for w in layer.weights], x)
        assert [z.shape for z in found] == [(0, 4, 4, 6), (0, 4, 4, 6), (6,), (6,)]
        assert not any(z.any() for z in found)


@pytest.mark.parametrize("traced", [True, False], ids=["graph", "eager"])
def test_gradient_of_group_norms_gradient(traced):
    layer, x = built_group_norm(), np.random.default_rng(1).normal(size=(2, 3, 4, 6)).astype("float32")
    weights = [tf.constant(np.asarray(w, "float64")) for w in layer.weights]

    def slope(function, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(function(x) ** 3)
            size = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(size, x)

    ours = functools.partial(slope, functools.partial(layer, relu=True, training=True))
    found = (tf.function(ours) if traced else ours)(tf.constant(x)).numpy()
    truth = slope(lambda x: group_norm_and_relu(x, weights), tf.constant(x, tf.float64)).numpy()
    assert np.abs(found - truth).max() < 1e-5 * np.abs(truth).max()

"""Gradients written by hand, against TensorFlow's own of the formulas in float64."""

import functools

import keras
import numpy as np
import pytest

from keras_vit.layers import GELU, GroupNormalization, LayerNormalization, StandardizedConv2D

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow alone derives slowly")
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
    "BiT's convolution": (StandardizedConv2D(5, 3), standardized(1e-10, 0), (2, 6, 5, 4)),
    "the hybrids'": (hybrid(3, 0.0, 0.01), standardized(0.0, 0.01), (2, 6, 5, 4)),
    "both epsilons": (hybrid(1, 0.1, 0.1), standardized(0.1, 0.1), (2, 6, 5, 4)),
}


def derive(function, x, weights, dy):
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        y = function(x)
    return [y.numpy(), *(dx.numpy() for dx in tape.gradient(y, [x, *weights], output_gradients=dy))]


@pytest.mark.parametrize("offset", [0.0, 10.0])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_in_training(name, offset):
    layer, formula, shape = CASES[name]
    random = np.random.default_rng(0)
    if not layer.built:
        layer.build(shape)
    layer.set_weights([random.normal(size=w.shape).astype("float32") + 0.3 for w in layer.weights])
    x = (random.normal(size=shape) + offset).astype("float32")
    call = functools.partial(layer, **({} if isinstance(layer, StandardizedConv2D) else {"training": True}))
    dy = random.normal(size=call(x).shape).astype("float32")

    weights = [w.value for w in layer.weights]
    found = derive(tf.function(call), tf.constant(x), weights, dy)
    weights = [tf.constant(w.numpy(), tf.float64) for w in layer.weights]
    expected = derive(lambda x: formula(x, weights), tf.constant(x, tf.float64), weights, tf.constant(dy, tf.float64))
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

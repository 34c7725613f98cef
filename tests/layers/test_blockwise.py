"""Attention in blocks of queries is the attention that keeps A, in values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import layers, models
from keras_vit.layers.fast import memory
from keras_vit.models.axial import AxialSelfAttention

RNG = np.random.default_rng(0)


def make_large(monkeypatch, block=99):
    """Takes the smallest A for too large, and lets a block have `block` elements of it."""
    monkeypatch.setattr(layers.MultiHeadSelfAttention, "largest_whole", 0)
    monkeypatch.setattr(memory, "BLOCK", block)
    monkeypatch.setattr(memory, "ROWS", 2)


def attention(l=17, **arguments):
    """A layer with random weights, and x, (2, l, 12)."""
    layer = layers.MultiHeadSelfAttention(num_heads=3, **arguments)
    layer.build((None, l, 12))
    for variable in layer.trainable_variables:
        variable.assign(RNG.normal(0, 0.3, variable.shape))
    return layer, tf.constant(RNG.normal(size=(2, l, 12)), layer.variable_dtype)


def differentiate(layer, x, how="graph"):
    """The output, and the gradients of x and of the weights, of a loss that is no sum of squares."""
    towards = np.random.default_rng(1).normal(size=x.shape)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(y, "float64") * towards)
        return y, *tape.gradient(loss, [x, *(variable.value for variable in layer.trainable_variables)])

    found = step(x) if how == "eager" else tf.function(step, jit_compile=how == "jit")(x)
    return [np.asarray(tf.cast(value, "float64")) for value in found]


@pytest.mark.parametrize(
    ("l", "block", "how"),
    [(17, 99, "graph"), (17, 200, "eager"), (17, 1, "jit"), (2, 1, "eager"), (3, 1000, "eager")],
)
def test_values_and_gradients_are_those_of_the_whole(l, block, how, monkeypatch):
    layer, x = attention(l, dtype="float64")
    expected = differentiate(layer, x, "eager")
    make_large(monkeypatch, block)
    for a, b in zip(differentiate(layer, x, how), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_mixed_precision_is_as_near_float64_as_the_whole(monkeypatch):
    layer, x = attention(dtype="mixed_bfloat16")
    exact, _ = attention(dtype="float64")
    exact.set_weights(layer.get_weights())
    expected, whole = differentiate(exact, tf.cast(x, "float64")), differentiate(layer, x)
    make_large(monkeypatch)
    for found, kept, value in zip(differentiate(layer, x), whole, expected, strict=True):
        assert np.linalg.norm(found - value) < 2 * np.linalg.norm(kept - value)


def test_dropout_keeps_the_weights_whole(monkeypatch):
    layer, x = attention(dropout_rate=0.3)
    state = layer.dropout.seed_generator.state
    before = state.numpy()
    y = layer(x, training=True)
    state.assign(before)
    make_large(monkeypatch)
    np.testing.assert_array_equal(layer(x, training=True), y)


def test_weights_that_are_asked_for_exports_and_other_attention_stay_whole(monkeypatch):
    layer, x = attention(dtype="float64")
    y = layer(x)
    axial, relative = AxialSelfAttention("row", (4, 4), num_heads=3), attention(relative_patches=16)[0]
    axial(x)
    make_large(monkeypatch)
    monkeypatch.setattr(memory.BlockwiseAttention, "attend", None)
    for again in (layer(x, return_weights=True)[0], layer.export_call(x)):
        np.testing.assert_allclose(again, y, rtol=1e-9)
    axial(x), relative(x)
    with pytest.raises(TypeError):
        layer(x)


def test_no_model_of_the_paper_is_in_blocks():
    for name, size in [("ViT-H/14", 518), ("ViT-L/16", 512), ("ViT-B/16", 512)]:
        config = models.variant(name).config
        l = (size // config.patch_size[0]) ** 2 + 1
        assert not memory.is_too_large(layers.MultiHeadSelfAttention(config.num_heads), l)
    assert memory.is_too_large(layers.MultiHeadSelfAttention(6), 64**2 + 1)  # S/16 at 1,024 pixels


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
def test_a_models_gradients_are_the_same(remat, monkeypatch):
    keras.utils.set_random_seed(0)
    model = models.VisionTransformer(
        16, 4, 12, 2, 3, 24, num_classes=3, dropout_rate=0.2, stochastic_depth_rate=0.3, dtype="float64"
    )
    for variable in model.trainable_variables:
        variable.assign(variable + RNG.normal(0, 0.1, variable.shape))
    states = [variable.numpy() for variable in model.non_trainable_variables]
    x = tf.constant(RNG.uniform(-1, 1, (4, 16, 16, 3)))

    def gradients():
        for variable, state in zip(model.non_trainable_variables, states, strict=True):
            variable.assign(state)

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(keras.ops.softmax(model(x, training=True))[:, 0])
            return loss, *tape.gradient(loss, model.trainable_variables)

        return [np.asarray(g) for g in tf.function(step)()], [v.numpy() for v in model.non_trainable_variables]

    expected, after = gradients()
    make_large(monkeypatch)
    model.remat = remat
    found, again = gradients()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(again, after)

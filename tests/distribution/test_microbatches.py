"""Microbatches add up to the batch: its examples, its gradient, its losses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training_worker import data, randomize, small, sparse

from keras_vit import training
from keras_vit.distribution import DistributedModel, tf_batches
from keras_vit.errors import ConfigError

X = np.arange(24, dtype="float32").reshape(12, 2)


@pytest.mark.parametrize("n", [12, None])
def test_every_example_is_in_one_microbatch(n):
    @tf.function(input_signature=[tf.TensorSpec((n, 2)), tf.TensorSpec((), "int32")])
    def cut(x, i):
        return tf_batches.microbatch(x, i, 3)

    np.testing.assert_array_equal(np.concatenate([cut(X, i) for i in range(3)]), X)


def test_a_static_batch_is_cut_evenly_or_not_at_all():
    with pytest.raises(ConfigError, match="microbatches must divide the batch of each replica. Received: 5 and 12"):
        tf_batches.microbatch(X, 0, 5)


@pytest.mark.parametrize("decorate", [tf.function, lambda function: function], ids=["graph", "eager"])
def test_a_weight_without_a_gradient_has_none_after_the_sum(decorate):
    weights = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]

    def gradients_of(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x) * weights[0])
        return tape.gradient(loss, weights)

    found = []
    decorate(lambda: found.extend(tf_batches.sum_gradients(gradients_of, tf.constant(X), weights, 4)) or found[0])()
    assert found[1] is None and found[0] is not None


def test_the_summed_gradient_is_that_of_the_batch():
    weight = tf.Variable([1.0, 2.0])
    total = tf_batches.sum_gradients(lambda x: [tf.reduce_sum(x * x, axis=0) * weight], tf.constant(X), [weight], 4)
    np.testing.assert_allclose(total[0], (X * X).sum(0) * [1, 2])


@pytest.mark.parametrize("n", [0, 5])
def test_an_empty_batch_is_padded_and_cut_again(n):
    @tf.function(input_signature=[tf.TensorSpec((None, 2)), tf.TensorSpec((None,))])
    def padded(x, y):
        x2, y2, _ = tf_batches.pad_empty_batch((x, y, None))
        return x2, y2, tf_batches.drop_padding(x2 + 1, (x, y, None))

    x2, y2, outputs = padded(X[:n], X[:n, 0])
    assert len(x2) == len(y2) == max(n, 1)
    np.testing.assert_array_equal(outputs, X[:n] + 1)


@pytest.mark.slow
def test_losses_of_several_outputs_are_those_of_the_whole_batch():
    """Each output's too, which Keras shows alone as the mean over all parts."""
    histories, weights = [], []
    for count in (1, 5):
        keras.utils.set_random_seed(0)
        model = small("two outputs")
        randomize(model)
        # At 0.1 this mse diverges, and enlarges the rounding of sums over parts.
        model.compile(keras.optimizers.SGD(0.01), {"a": sparse(), "b": "mse"})
        model.microbatches = count
        uneven = data(two=True)  # batches of 12, the last of 2
        history = model.fit(uneven, verbose=0).history
        evaluated = model.evaluate(uneven, verbose=0, return_dict=True)
        histories.append({**history, **{f"test_{name}": [value] for name, value in evaluated.items()}})
        weights.append(model.get_weights())
    assert {"loss", "a_loss", "b_loss"} < set(histories[0])
    for name, value in histories[0].items():
        np.testing.assert_allclose(histories[1][name], value, rtol=1e-5, err_msg=name)
    for whole, parts in zip(*weights, strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-6)


@pytest.mark.parametrize("by_batch", [False, True])
def test_several_outputs_without_a_strategy(by_batch):
    """Nothing builds their losses' means before the first step but ourselves."""
    model = small("two outputs")
    model.compile(
        "sgd",
        {
            "a": sparse(reduction="mean_with_sample_weight"),
            "b": keras.losses.MeanSquaredError("mean_with_sample_weight"),
        },
    )
    model.microbatches = 2
    x, y = next(iter(data(two=True)))
    if by_batch:
        losses = [model.train_on_batch(x, y, return_dict=True), model.test_on_batch(x, y, return_dict=True)]
    else:
        again = tf.data.Dataset.from_tensors((x, y))
        losses = [model.evaluate(again, verbose=0, return_dict=True)]
    for logs in losses:
        assert logs["loss"] == pytest.approx(logs["a_loss"] + logs["b_loss"], rel=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="microbatches need TensorFlow or JAX")
def test_each_output_has_its_own_reduction_and_weights():
    """A step in microbatches, and an evaluation, as numpy computes them in float64; a regularizer counts once."""
    rng = np.random.default_rng(0)
    x, y, kernels = rng.normal(size=(12, 3)), rng.normal(size=(4, 12, 1)), rng.normal(size=(4, 3, 1))
    weights, factors = rng.uniform(0, 2, (4, 12)), (1.0, 0.5, 2.0, 0.1)
    divisors = (weights[0].sum(), weights[1].sum(), 12, 1)
    reductions = ("mean_with_sample_weight", "mean_with_sample_weight", "sum_over_batch_size", "sum")

    def named(values):
        return dict(zip("abcd", values, strict=True))

    inputs, l2 = keras.Input((3,)), keras.regularizers.L2(0.1)
    layers = [keras.layers.Dense(1, use_bias=False, name=name, kernel_regularizer=l2) for name in "abcd"]
    model = DistributedModel(inputs, named([layer(inputs) for layer in layers]))
    model.set_weights(kernels)
    losses = named([keras.losses.MeanSquaredError(reduction) for reduction in reductions])
    model.compile(training.SGD(0.01), losses, loss_weights=named(factors))
    model.microbatches = 3
    data = (x, named(y), named(weights))
    trained = model.train_on_batch(*data, return_dict=True)
    for logs in (trained, model.test_on_batch(*data, return_dict=True)):
        errors = [x @ kernel - own for kernel, own in zip(kernels, y, strict=True)]
        expected = [(w @ e**2).item() / n for w, e, n in zip(weights, errors, divisors, strict=True)]
        np.testing.assert_allclose([logs[f"{name}_loss"] for name in "abcd"], expected, rtol=1e-5)
        np.testing.assert_allclose(logs["loss"], np.dot(factors, expected) + 0.1 * (kernels**2).sum(), rtol=1e-5)
        slopes = zip(factors, weights, errors, divisors, kernels, strict=True)
        kernels = np.array([k - 0.01 * (2 * f * x.T @ (w[:, None] * e) / n + 0.2 * k) for f, w, e, n, k in slopes])
        if logs is trained:
            for layer, kernel in zip(layers, kernels, strict=True):
                np.testing.assert_allclose(layer.kernel, kernel, atol=1e-6)

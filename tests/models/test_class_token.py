"""Of a ViT's last block the class token alone is computed: the same answers and gradients as of the whole graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from positions import TABLE8, images, make, whole

from keras_vit import models

KINDS = {f"{kind} {place}": (kind, place, {}) for kind, place in TABLE8}
KINDS["hybrid"] = ("1d", "stem", {"patch_size": 2, "backbone": {"depths": (1,), "width_factor": 0.5}})
KINDS["pre-logits"] = ("1d", "stem", {"representation_size": 8})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_answers_and_gradients_are_those_of_the_graph(kind):
    kind, place, fields = KINDS[kind]
    model, x = make(kind, place, **fields), tf.constant(images())
    found = []
    for called in (model, whole(model)):
        with tf.GradientTape() as tape:
            logits = called(x, training=True)
            loss = tf.reduce_sum(tf.square(logits - 1.0))
        gradients = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
        found.append([logits, *gradients])
    for own, expected in zip(*found, strict=True):
        scale = max(1e-2, float(np.abs(expected).max()))  # a key's bias has none but rounding
        np.testing.assert_allclose(own, expected, atol=1e-4 * scale)


def test_axial_models_too():
    keras.utils.set_random_seed(0)
    model = models.AxialVisionTransformer((16, 24), 8, 16, 2, 2, 24, num_classes=3)
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(1).normal(0, 0.2, weight.shape))
    np.testing.assert_allclose(model(images()), whole(model)(images()), atol=1e-5)


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_the_mlp_of_the_last_block_has_a_row_for_each_image(classifier):
    model = make("1d", classifier=classifier)
    tokens = 6 + (classifier == "token")
    for called in (model, keras.Model(model.input, model.output)):
        graph = (
            tf.function(lambda x, f=called: f(x, training=False)).get_concrete_function(tf.zeros((5, 16, 24, 3))).graph
        )
        names = [op.name for op in graph.get_operations() if op.type == "MatMul" and "hidden" in op.name]
        shapes = [graph.get_operation_by_name(name).outputs[0].shape.as_list() for name in names]
        assert shapes == [[5 * tokens, 24], [5 if classifier == "token" else 5 * tokens, 24]]


def test_a_block_asked_for_its_output_has_all_tokens():
    model = make("1d")
    for name in ("encoderblock_1", "encoder_norm"):
        assert tuple(keras.Model(model.input, model.get_layer(name).output)(images()).shape) == (2, 7, 16)


def test_inputs_in_every_structure_that_the_graph_takes():
    model, x = make("1d"), images()
    expected = np.asarray(model(x))
    for given in ({"images": x}, x.astype("float64"), tf.constant(x)):
        np.testing.assert_allclose(model(given), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(keras.Sequential([keras.Input((16, 24, 3)), model])(x), expected, atol=1e-5)

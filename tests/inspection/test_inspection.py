"""Attention weights and rollout, against numpy."""

import keras
import numpy as np
import pytest

from keras_vit import inspection, models

VIT = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 16}


def model(**fields):
    keras.utils.set_random_seed(0)
    made = models.VisionTransformer(**VIT, num_classes=3, **fields)
    for variable in made.trainable_variables:
        variable.assign(variable + np.random.default_rng(0).normal(0, 0.3, variable.shape))
    return made


IMAGES = np.random.default_rng(1).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")


def test_weights_are_each_blocks_own():
    vit = model()
    weights = inspection.attention_weights(vit, IMAGES)
    assert weights.shape == (3, 2, 2, 7, 7)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    block = vit.get_layer("encoderblock_2")
    x = keras.Model(vit.input, block.input)(IMAGES)
    y = keras.ops.convert_to_numpy(block.attention_norm(x))
    q, k = (
        (y @ keras.ops.convert_to_numpy(d.kernel) + keras.ops.convert_to_numpy(d.bias)).reshape(2, 7, 2, 8)
        for d in (block.attention.query, block.attention.key)
    )
    scores = np.einsum("nlhe,nmhe->nhlm", q, k) / np.sqrt(8)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights[2], expected, atol=1e-5)


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_rollout(classifier):
    vit = model(classifier=classifier)
    token = classifier == "token"
    weights = inspection.attention_weights(vit, IMAGES)
    seen = inspection.rollout(weights, vit.config.grid, token)
    assert seen.shape == (2, 2, 3)
    np.testing.assert_allclose(seen.sum((1, 2)), 1, atol=1e-5)
    joint = np.eye(weights.shape[-1])
    for block in weights.mean(2)[:, 0]:
        joint = (block + np.eye(len(block))) / 2 @ joint
    first = joint[0, 1:] / joint[0, 1:].sum() if token else joint.mean(0)
    np.testing.assert_allclose(seen[0].ravel(), first, atol=1e-5)


def test_uniform_attention_is_seen_everywhere():
    weights = np.full((2, 1, 4, 5, 5), 0.2)
    np.testing.assert_allclose(inspection.rollout(weights, (2, 2)), np.full((1, 2, 2), 0.25))

"""Models in every precision: answers of float64 against numpy's, gradients against float64's, steps that train."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from slowness import mark_but, slow_but

from keras_vit import models, training

SIZES = dict(image_size=16, hidden_size=32, num_layers=2, num_heads=4, mlp_dim=48, num_classes=5)
MODELS = {
    "vit": lambda dtype: models.VisionTransformer(**SIZES, patch_size=4, dtype=dtype),
    "hybrid": lambda dtype: models.VisionTransformer(
        **SIZES, patch_size=2, backbone={"depths": (1,), "width_factor": 0.5}, dtype=dtype
    ),
    "resnet": lambda dtype: models.ResNet(16, depths=(1, 1), width_factor=0.5, num_classes=5, dtype=dtype),
}
RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.uniform(-1, 1, (3, 16, 16, 3)), np.array([4, 0, 3])


def make(kind, dtype):
    """The model, with the same weights in every precision, none at its initial zero."""
    model, random = MODELS[kind](dtype), np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(0.3 if weight.name == "gamma" else 0, 0.2, weight.shape))
    return model


class Weights:
    """A model's layers in numpy float64, by the names of their weights."""

    def __init__(self, model):
        self.values = {weight.path: weight.numpy().astype("float64") for weight in model.weights}

    def get(self, *path):
        return self.values["/".join(path)]

    def dense(self, x, *path):
        return x @ self.get(*path, "kernel") + self.get(*path, "bias")

    def layer_norm(self, x, *path):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.get(*path, "gamma") + self.get(*path, "beta")

    def group_norm(self, x, epsilon, *path):
        groups = x.reshape(len(x), -1, 32, x.shape[-1] // 32)
        groups = groups - groups.mean((1, 3), keepdims=True)
        y = (groups / np.sqrt((groups**2).mean((1, 3), keepdims=True) + epsilon)).reshape(x.shape)
        return y * self.get(*path, "gamma") + self.get(*path, "beta")

    def conv(self, x, standardize, stride, pads, *path):
        kernel = standardize(self.get(*path, "kernel"))
        return np.einsum("nhwcyx,yxcd->nhwd", windows(x, len(kernel), stride, pads, 0), kernel)


def windows(x, size, stride, pads, fill):
    x = np.pad(x, ((0, 0), pads, pads, (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]


def bits_kernel(w):
    return (w - w.mean((0, 1, 2))) / np.sqrt(w.var((0, 1, 2)) + 1e-10)


def hybrids_kernel(w):
    return (w - w.mean((0, 1, 2))) / (w.std((0, 1, 2)) + 1e-5)


def relu(x):
    return np.maximum(x, 0)


def resnet(x, w):
    x = w.conv(x, bits_kernel, 2, (3, 3), "root_conv")
    x = windows(x, 3, 2, (1, 1), 0).max((-2, -1))
    for unit, stride in (("block1_unit01", 1), ("block2_unit01", 2)):
        y = relu(w.group_norm(x, 1e-5, unit, "norm1"))
        x = w.conv(y, bits_kernel, stride, (0, 0), unit, "shortcut")
        y = relu(w.group_norm(w.conv(y, bits_kernel, 1, (0, 0), unit, "conv1"), 1e-5, unit, "norm2"))
        y = relu(w.group_norm(w.conv(y, bits_kernel, stride, (1, 1), unit, "conv2"), 1e-5, unit, "norm3"))
        x = x + w.conv(y, bits_kernel, 1, (0, 0), unit, "conv3")
    return w.dense(relu(w.group_norm(x, 1e-5, "group_norm")).mean((1, 2)), "head")


def backbone(x, w):
    x = relu(w.group_norm(w.conv(x, hybrids_kernel, 2, (2, 3), "conv_root"), 1e-6, "norm_root"))
    x = windows(x, 3, 2, (0, 1), -np.inf).max((-2, -1))

    def normed(x, pads, i, conv, norm):
        x = w.conv(x, hybrids_kernel, 1, pads, "block1_unit1", conv)
        return w.group_norm(x, 1e-6, "block1_unit1", norm)

    y = relu(normed(x, (0, 0), 1, "conv1", "norm1"))
    y = relu(normed(y, (1, 1), 2, "conv2", "norm2"))
    return relu(normed(x, (0, 0), 0, "shortcut", "shortcut_norm") + normed(y, (0, 0), 3, "conv3", "norm3"))


def vit(x, w):
    kernel = w.get("embedding", "kernel")
    p, d = len(kernel), kernel.shape[-1]
    x = np.einsum("nhwcyx,yxcd->nhwd", windows(x, p, p, (0, 0), 0), kernel) + w.get("embedding", "bias")
    x = np.concatenate([np.repeat(w.get("cls", "token"), len(x), 0), x.reshape(len(x), -1, d)], 1)
    x = x + w.get("posembed_input", "embedding")
    for i in range(SIZES["num_layers"]):
        block = f"encoderblock_{i}"
        y = w.layer_norm(x, block, "attention_norm")
        q, k, v = (
            w.dense(y, block, "attention", name).reshape(*y.shape[:2], SIZES["num_heads"], -1)
            for name in ("query", "key", "value")
        )
        a = special.softmax(np.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(q.shape[-1]), -1)
        x = x + w.dense(np.einsum("nhqk,nkhd->nqhd", a, v).reshape(x.shape), block, "attention", "out")
        y = w.dense(w.layer_norm(x, block, "mlp_norm"), block, "mlp", "hidden")
        y = y * special.expit(2 * np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))
        x = x + w.dense(y, block, "mlp", "out")
    return w.dense(w.layer_norm(x, "encoder_norm")[:, 0], "head")


REFERENCES = {"vit": vit, "hybrid": lambda x, w: vit(backbone(x, w), w), "resnet": resnet}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_float64_answers_as_numpy(kind, training):
    model = make(kind, "float64")
    found = model(IMAGES, training=training).numpy()
    assert found.dtype == "float64"
    np.testing.assert_allclose(found, REFERENCES[kind](IMAGES, Weights(model)), rtol=1e-10, atol=1e-10)


def gradients_of(model):
    """Of the loss of a recipe, as one float64 vector."""
    changes = {"dropout_rate": 0.0, "batch_size": 3, "steps": 9, "warmup_steps": 0, "learning_rate": 0.01}
    training.recipe("pretrain-imagenet", **changes).compile(model)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(IMAGES, LABELS, model(IMAGES, training=True))
    return np.concatenate([np.ravel(g).astype("float64") for g in tape.gradient(loss, model.trainable_variables)])


@pytest.mark.parametrize("kind", slow_but(MODELS, "vit"))
def test_float64_gradients_are_numpys_differences(kind):
    """Along a random direction in all weights at once."""
    model, step, losses = make(kind, "float64"), 1e-7, []
    gradient, start = gradients_of(model), [w.numpy() for w in model.weights]
    directions = [RANDOM.normal(size=w.shape) for w in start]
    for sign in (-1, 1):
        model.set_weights([w + sign * step * direction for w, direction in zip(start, directions, strict=True)])
        logits = REFERENCES[kind](IMAGES, Weights(model))
        losses.append(-special.log_softmax(logits, -1)[range(3), LABELS].mean())
    slope = gradient @ np.concatenate([direction.ravel() for direction in directions])
    assert slope == pytest.approx((losses[1] - losses[0]) / (2 * step), rel=1e-6)


ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
POLICIES = (*ROUNDING, "mixed_float16", "mixed_bfloat16")
# How many roundings a gradient is off: more where ReLU and maximum change sides.
LIMITS = {"vit": 8, "hybrid": 12, "resnet": 500}
CASES = [(kind, policy) for kind in MODELS for policy in POLICIES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "policy"), mark_but(pytest.mark.long, CASES, ("vit", "bfloat16"), ("resnet", "float16"))
)
def test_training_in_every_precision(kind, policy):
    model, exact = make(kind, policy), make(kind, "float64")
    exact.set_weights([w.numpy().astype("float64") for w in model.weights])
    found, truth = gradients_of(model), gradients_of(exact)
    error, rounding = np.linalg.norm(found - truth) / np.linalg.norm(truth), ROUNDING[policy.removeprefix("mixed_")]
    assert error < min(0.3, LIMITS[kind] * rounding)
    before = [w.numpy() for w in model.weights]
    losses = model.fit(IMAGES, LABELS, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
    assert all((old != w.numpy()).any() for old, w in zip(before, model.weights, strict=True))

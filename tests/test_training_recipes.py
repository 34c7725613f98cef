"""The recipes' rows against the paper's tables, and what a recipe does to a model."""

import keras
import numpy as np
import pytest

from keras_vit import models, training
from keras_vit.errors import ConfigError, UnknownNameError

# Table 3: epochs, learning rate, decay, weight decay, dropout.
TABLE3 = {
    "jft-ViT-B": (7, 8e-4, "linear", 0.1, 0.0),
    "jft-ViT-L/32": (7, 6e-4, "linear", 0.1, 0.0),
    "jft-ViT-L/16": (14, 4e-4, "linear", 0.1, 0.0),
    "jft-ViT-H/14": (14, 3e-4, "linear", 0.1, 0.0),
    "jft-R50": (7, 1e-3, "linear", 0.1, 0.0),
    "jft-R101": (7, 8e-4, "linear", 0.1, 0.0),
    "jft-R152": (7, 6e-4, "linear", 0.1, 0.0),
    "jft-R50+ViT-B": (7, 8e-4, "linear", 0.1, 0.0),
    "jft-R50+ViT-L/32": (7, 2e-4, "linear", 0.1, 0.0),
    "jft-R50+ViT-L/16": (14, 4e-4, "linear", 0.1, 0.0),
    "imagenet21k-ViT-B": (90, 1e-3, "linear", 0.03, 0.1),
    "imagenet21k-ViT-L": (90, 1e-3, "linear", 0.03, 0.1),
    "imagenet": (300, 3e-3, "cosine", 0.3, 0.1),
}
# Table 4: steps, learning rates.
SMALL = (0.001, 0.003, 0.01, 0.03)
TABLE4 = {
    "imagenet": (20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": (10_000, SMALL),
    "cifar10": (10_000, SMALL),
    "pets": (500, SMALL),
    "flowers": (500, SMALL),
    "vtab": (2_500, (0.01,)),
}
# big_vision's configurations: batch, epochs, rate, its absolute decay per step at the peak, warmup, clipping, dtype of
# the first moment, loss, the head's bias.
BIG_VISION = {
    "augreg-i21k": (4096, 300, 1e-3, 1e-4, 10_000, 1.0, "bfloat16", "sigmoid", -10.0),
    "augreg-i1k": (4096, 300, 1e-3, 1e-4, 10_000, 1.0, "bfloat16", "sigmoid", -6.9),
    "plain-vit-i1k": (1024, 90, 1e-3, 1e-4, 10_000, 1.0, "bfloat16", "softmax", None),
    "bit-i21k": (4096, 90, 0.03 / 256 * 4096, 3e-5 / 256 * 4096, 5000, 1.0, "bfloat16", "sigmoid", -10.0),
    "bit-i1k": (4096, 90, 0.1 / 256 * 4096, 1e-4 / 256 * 4096, 1000, 1.0, "bfloat16", "softmax", None),
}


def small(**kwargs):
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, num_classes=4)
    return models.VisionTransformer(**{**sizes, **kwargs})


@pytest.mark.parametrize("name", TABLE3)
def test_table_3(name):
    recipe = training.recipe(f"pretrain-{name}")
    found = (recipe.epochs, recipe.learning_rate, recipe.decay, recipe.weight_decay, recipe.dropout_rate)
    assert found == TABLE3[name]
    assert (recipe.optimizer_name, recipe.batch_size, recipe.warmup_steps, recipe.image_size) == (
        "Adam",
        4096,
        10_000,
        224,
    )
    assert recipe.global_clipnorm == (1.0 if name == "imagenet" else None)


@pytest.mark.parametrize("name", TABLE4)
def test_table_4(name):
    recipe = training.recipe(f"finetune-{name}")
    assert (recipe.total_steps, recipe.learning_rates) == TABLE4[name]
    assert (recipe.optimizer_name, recipe.batch_size, recipe.decay, recipe.image_size) == ("SGD", 512, "cosine", 384)
    assert (recipe.weight_decay, recipe.global_clipnorm) == (None, 1.0)
    assert recipe.learning_rate in recipe.learning_rates


@pytest.mark.parametrize("name", BIG_VISION)
def test_big_visions_configurations(name):
    batch, epochs, rate, decay, warmup, clip, dtype, loss, bias = BIG_VISION[name]
    row = training.recipe(name).row
    assert (row.batch_size, row.epochs, row.warmup_steps, row.decay) == (batch, epochs, warmup, "cosine")
    assert (row.global_clipnorm, row.momentum_dtype, row.loss, row.head_bias) == (clip, dtype, loss, bias)
    assert (row.learning_rate, row.weight_decay * row.learning_rate) == pytest.approx((rate, decay))
    assert row.optimizer == ("SGD" if name.startswith("bit") else "Adam")


def test_augregs_fine_tuning():
    """vit_jax/configs/augreg.py over configs/common.py."""
    row = training.recipe("finetune-augreg").row
    assert (row.learning_rate, row.total_steps, row.warmup_steps, row.image_size) == (0.03, 500, 100, 384)
    assert (row.batch_size, row.global_clipnorm, row.weight_decay, row.momentum_dtype) == (512, 1.0, None, "bfloat16")


def test_hyper_rule_follows_the_size_of_the_training_set():
    found = [training.recipe("bit-hyperrule", examples=n) for n in (19_999, 20_000, 499_999, 500_000)]
    assert [r.total_steps for r in found] == [500, 10_000, 10_000, 20_000]
    assert [r.boundaries[0] for r in found] == [200, 3000, 3000, 6000]
    assert {(r.learning_rate, r.global_clipnorm, r.weight_decay) for r in found} == {(0.003, None, None)}


def test_every_row_has_a_source_and_makes_its_optimizer():
    for name, row in training.RECIPES.items():
        recipe = training.recipe(name.upper())
        assert row.source.startswith("arXiv"), name
        optimizer = recipe.optimizer()
        np.testing.assert_allclose(float(recipe.schedule()(recipe.warmup_steps)), recipe.learning_rate, rtol=1e-5)
        assert optimizer.global_clipnorm == row.global_clipnorm


def test_scaling_rule():
    recipe = training.recipe("finetune-cifar10", batch_size=128, steps=1000)
    assert recipe.learning_rate == pytest.approx(0.01 / 4)
    assert (recipe.total_steps, recipe.warmup_steps) == (1000, 50)
    adam = training.recipe("pretrain-imagenet", batch_size=1024)
    assert adam.learning_rate == pytest.approx(3e-3 / 2)
    assert adam.total_steps == pytest.approx(4 * training.recipe("pretrain-imagenet").total_steps, rel=1e-4)
    assert training.recipe("finetune-pets", epochs=3, examples=5120).total_steps == 30
    assert training.recipe("finetune-pets", learning_rate=0.5, batch_size=8).learning_rate == 0.5
    assert training.recipe("bit-hyperrule-small", steps=100).boundaries == (40, 60, 80)


def test_errors_are_sentences():
    with pytest.raises(UnknownNameError, match="finetune-cifar10"):
        training.recipe("finetune-cifar11")
    with pytest.raises(ConfigError, match="no 'rate'"):
        training.recipe("finetune-pets", rate=1)
    with pytest.raises(ConfigError, match="batch_size must be positive"):
        training.recipe("finetune-pets", batch_size=0)
    for numbers in ({"learning_rate": float("nan")}, {"learning_rate": 1e308}, {"steps": 2.5}, {"batch_size": True}):
        with pytest.raises(ConfigError, match=f"{next(iter(numbers))} must be positive"):
            training.recipe("finetune-pets", **numbers)
    for rate in (0, -1, float("inf"), 10**400, "0.1"):
        with pytest.raises(ConfigError, match="learning_rate must be positive"):
            training.recipe("finetune-pets").with_(learning_rate=rate)
    for epochs in (float("nan"), float("inf"), 0):
        with pytest.raises(ConfigError, match="epochs must be positive"):
            training.recipe("finetune-pets", epochs=epochs, examples=10)
    with pytest.raises(ConfigError, match="total_steps must be positive"):
        training.recipe("finetune-pets", epochs=1e30, examples=10)
    with pytest.raises(ConfigError, match="steps or epochs, not both"):
        training.recipe("finetune-pets", epochs=1, steps=10, examples=10)
    with pytest.raises(ConfigError, match="examples="):
        training.recipe("finetune-pets", epochs=1)
    with pytest.raises(ConfigError, match="dropout_rate"):
        training.recipe("pretrain-imagenet").compile(small())


def test_compile_and_fit():
    recipe = training.recipe("augreg-i1k", steps=10)
    model = small()
    recipe.compile(model, microbatches=2)
    np.testing.assert_allclose(model.get_layer("head").bias, -6.9, rtol=1e-6)
    x, y = np.zeros((8, 16, 16, 3), "float32"), np.eye(4, dtype="float32")[[0, 1, 2, 3] * 2]
    history = model.fit(x, y, batch_size=4, verbose=0, validation_data=(x, y, np.ones(8)))
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    # The step at the schedule's rate 0 moves nothing, the second decays kernels and not biases.
    assert isinstance(model.optimizer, training.Adam)


def test_padding_does_not_count_in_evaluation():
    model = small()
    training.recipe("finetune-pets").compile(model)
    rng = np.random.default_rng(0)
    for v in model.trainable_variables:
        v.assign(rng.normal(size=v.shape) * 0.1)
    x, y = rng.normal(size=(6, 16, 16, 3)).astype("float32"), rng.integers(0, 4, 6)
    padded = np.concatenate([x, x[:2]]), np.concatenate([y, y[:2]])
    found = model.evaluate(*padded, sample_weight=np.r_[np.ones(6), 0, 0], batch_size=4, verbose=0)
    np.testing.assert_allclose(found, model.evaluate(x, y, batch_size=3, verbose=0), rtol=1e-5)


def test_layer_decay_and_freezing():
    model = small()
    factors = training.layer_decay(model, 0.5)
    assert factors[r"^embedding/"] == 0.125 and factors[r"^encoderblock_0/"] == 0.25
    assert factors[r"^encoderblock_1/"] == 0.5 and factors[r"^head/"] == factors[r"^encoder_norm/"] == 1
    recipe = training.recipe("finetune-pets", steps=10, warmup_steps=0)
    assert "head" not in training.freeze(model, except_for=["head"])
    recipe.compile(model, layer_decay=0.5)
    before = {v.path: v.numpy() for v in model.weights}
    model.fit(np.ones((4, 16, 16, 3)), np.arange(4), verbose=0)
    moved = {v.path for v in model.weights if (v.numpy() != before[v.path]).any()}
    assert moved <= {"head/kernel", "head/bias"} and moved
    with pytest.raises(ConfigError, match="No layer is named"):
        training.freeze(model, "blocks")


def test_uint8_images_are_normalized_by_the_model():
    model = small()
    model.compile(training.SGD(0.1), training.SoftmaxLoss(), metrics=["accuracy"])
    rng = np.random.default_rng(0)
    model.get_layer("head").kernel.assign(rng.normal(size=(16, 4)))
    images = rng.integers(0, 256, (5, 16, 16, 3)).astype("uint8")
    np.testing.assert_allclose(
        model.predict(images, verbose=0), model.predict(images / 127.5 - 1, verbose=0), rtol=1e-4, atol=1e-5
    )


def test_our_optimizers_train_models_of_others():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    model.compile(training.AdamW(0.1, weight_decay=0.1, global_clipnorm=1.0), training.SoftmaxLoss())
    x, y = np.eye(4, dtype="float32"), np.array([0, 0, 1, 1])
    losses = model.fit(x, y, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 3

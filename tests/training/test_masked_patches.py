"""Masked patch prediction (Appendix B.1.2): what the model sees, its loss, what its encoder becomes."""

import keras
import numpy as np
import pytest
from slowness import slow_but

from keras_vit import data, evaluation, models, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.masked_patches.model import picture_patches

SIZE, PATCH, PATCHES = 16, 4, 16
SIZES = dict(image_size=SIZE, patch_size=PATCH, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=0)
TARGETS = ("mean-colour", "colours-4x4", "pixels")


def make(target="mean-colour", rate=0.5, **changes):
    """A model none of whose weights is at its initial zero."""
    keras.utils.set_random_seed(0)
    model = training.MaskedPatchModel(models.VisionTransformer(**{**SIZES, **changes}), target, rate)
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.1, variable.shape))
    return model


def recipe(model, steps=8, name="pretrain-masked-patches-100k", **changes):
    return training.recipe(name, batch_size=16, steps=steps, **{"learning_rate": 1e-3, **changes})


def digits(model, split="train"):
    return data.load("digits", split).with_objective(model.objective)


def outputs_of(model, images, sources, places):
    return np.asarray(model({"images": images, "sources": sources, "places": places}, training=False))


def compose(images, sources, grey):
    """The images with the patches that `sources` names, `grey` for -1, in numpy."""
    side, composed = SIZE // PATCH, images.copy()
    for image, old, row in zip(composed, images, sources, strict=True):
        for place, source in enumerate(row):
            top, left = place // side * PATCH, place % side * PATCH
            from_top, from_left = source // side * PATCH, source % side * PATCH
            patch = old[from_top : from_top + PATCH, from_left : from_left + PATCH]
            image[top : top + PATCH, left : left + PATCH] = grey if source < 0 else patch
    return composed


@pytest.fixture(scope="module")
def batch():
    """Random images, and sources and places drawn here."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (3, SIZE, SIZE, 3)).astype("float32")
    places = np.sort(np.argsort(rng.random((3, PATCHES)), axis=1)[:, :8]).astype("int32")
    sources = np.tile(np.arange(PATCHES, dtype="int32"), (3, 1))
    np.put_along_axis(sources, places, np.array([-1, -1, 3, -1, -1, 5, -1, -1], "int32")[None], 1)
    return images, sources, places


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_the_model_sees_the_composed_image(batch, classifier):
    """With the embedding of a grey patch as mask embedding it is the plain encoder on an image painted so."""
    images, sources, places = batch
    model, grey = make(classifier=classifier), 0.25
    kernel, bias = (np.asarray(v, "float64") for v in model.get_layer("embedding").weights)
    model.get_layer("corrupt_patches").mask_embedding.assign((kernel.sum((0, 1, 2)) * grey + bias)[None, None])
    encoder = keras.Model(model.encoder.inputs[0], model.encoder.get_layer("encoder_norm").output)
    tokens = np.asarray(encoder(compose(images, sources, grey)), "float64")[:, classifier == "token" :]
    head = [np.asarray(v, "float64") for v in model.get_layer("patch_head").weights]
    expected = np.take_along_axis(tokens, places[..., None], 1) @ head[0] + head[1]
    np.testing.assert_allclose(outputs_of(model, images, sources, places), expected, atol=1e-4)


def test_nothing_of_a_hidden_patch_reaches_an_output(batch):
    images, sources, places = batch
    model = make()
    before = outputs_of(model, images, sources, places)
    shown = np.zeros(PATCHES, bool)
    shown[sources[0][sources[0] >= 0]] = True
    assert 0 < (~shown).sum() < PATCHES
    for patch in range(PATCHES):
        other = images.copy()
        top, left = patch // 4 * PATCH, patch % 4 * PATCH
        other[0, top : top + PATCH, left : left + PATCH] = 1e3
        after = outputs_of(model, other, sources, places)
        assert (after[0] == before[0]).all() == (not shown[patch]), patch
        np.testing.assert_array_equal(after[1:], before[1:])


@pytest.mark.parametrize("target", slow_but(TARGETS, "pixels"))
def test_the_loss_and_the_accuracy_are_numpys(target):
    model = make(target)
    recipe(model).compile(model)
    batches = digits(model, "validation").evaluation(32, model.preprocessing)
    losses, right, weights = [], [], []
    for inputs, targets, weight in batches:
        outputs = np.asarray(model(inputs, training=False), "float64")
        targets = np.asarray(targets)
        if target == "pixels":
            each = (outputs - targets) ** 2
        else:
            log_sum = np.log(np.exp(outputs).sum(-1))
            each = log_sum - np.take_along_axis(outputs, targets[..., None], -1)[..., 0]
            right.append((outputs.argmax(-1) == targets).reshape(len(targets), -1).mean(-1))
        losses.append(each.reshape(len(targets), -1).mean(-1))
        weights.append(np.asarray(weight))
    weights = np.concatenate(weights)
    assert 0 < (weights == 0).sum() < 32
    found = model.evaluate(batches, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.average(np.concatenate(losses), weights=weights), rel=1e-5)
    assert ("accuracy" in found) == bool(right)
    if right:
        assert found["accuracy"] == pytest.approx(np.average(np.concatenate(right), weights=weights), rel=1e-5)


@pytest.mark.parametrize("name", ["pretrain-masked-patches", "pretrain-imagenet", "plain-vit-i1k"])
def test_the_target_decides_the_loss_of_any_recipe(name):
    for target, loss in zip(TARGETS, ("SoftmaxLoss", "SoftmaxLoss", "SquaredError"), strict=True):
        model = make(target)
        changes = {
            "dropout_rate": 0.0,
            "loss": "sigmoid",
            "head_bias": -10.0,
            "classifier": None,
            "position_embedding": None,
        }
        recipe(model, name=name, **changes).compile(model)
        assert type(model.loss).__name__ == loss


def test_a_new_head_knows_nothing():
    """It begins at zero: each of the 512 colours is as likely."""
    model = training.MaskedPatchModel(models.VisionTransformer(**SIZES))
    recipe(model).compile(model)
    assert model.evaluate(digits(model, "validation").evaluation(48, model.preprocessing), verbose=0)[0] == (
        pytest.approx(np.log(512), rel=1e-6)
    )


@pytest.fixture(scope="module")
def trained():
    """(a model after 24 steps, its loss before and after)."""
    model = training.MaskedPatchModel(models.VisionTransformer(**SIZES))
    before = [v.numpy() for v in model.encoder.trainable_weights]
    recipe(model, steps=24, learning_rate=0.01, warmup_steps=2).compile(model)
    callback = evaluation.FewShot(data.load("digits"), data.load("digits", "test"), shots=[5], seeds=[0])
    train = digits(model).train(16, model.preprocessing, steps=24)
    history = model.fit(train, epochs=2, steps_per_epoch=12, verbose=0, callbacks=[callback]).history
    return model, before, history


@pytest.mark.slow
def test_training_moves_every_weight_of_the_encoder_and_the_mask(trained):
    model, before, history = trained
    assert history["loss"][1] < history["loss"][0] / 1.5
    for old, variable in zip(before, model.encoder.trainable_weights, strict=True):
        assert (old != variable.numpy()).any(), variable.path
    assert np.abs(model.get_layer("corrupt_patches").mask_embedding.numpy()).max() > 0
    assert 0.1 < history["few_shot_5"][-1] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".npz", ".keras", ".safetensors"])
def test_the_encoder_loads_as_any_weights(trained, ending, tmp_path):
    model, _, _ = trained
    zoo.save(model.encoder, tmp_path / f"encoder{ending}")
    loaded = zoo.load(tmp_path / f"encoder{ending}")
    assert loaded.config == model.config and loaded.preprocessing == model.preprocessing
    for a, b in zip(model.encoder.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    classifier = zoo.load(tmp_path / f"encoder{ending}", num_classes=10, image_size=32)
    assert classifier.output_shape == (None, 10) and not classifier.get_layer("head").kernel.numpy().any()


@pytest.mark.slow
def test_the_whole_model_comes_back_from_keras_file(trained, batch, tmp_path):
    model, _, _ = trained
    model.save(tmp_path / "whole.keras")
    again = keras.saving.load_model(tmp_path / "whole.keras", safe_mode=True)
    np.testing.assert_array_equal(outputs_of(again, *batch), outputs_of(model, *batch))
    assert again.get_config() == model.get_config() and again.objective == model.objective
    half = training.MaskedPatchModel(models.VisionTransformer(**SIZES, dtype="mixed_bfloat16"), rate=0.25)
    assert half.from_config(half.get_config()).objective.rate == 0.25
    assert outputs_of(half, batch[0], batch[1], batch[2][:, :4]).dtype == np.float32


class Stop(keras.callbacks.Callback):
    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("killed")


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path):
    def run(name, callbacks=(), resume=False):
        keras.utils.set_random_seed(0 if not resume else 9)
        model = training.MaskedPatchModel(models.VisionTransformer(**SIZES, dropout_rate=0.1))
        recipe(model, dropout_rate=0.1).compile(model, microbatches=2)
        examples, held_out = digits(model), digits(model, "validation").evaluation(144, model.preprocessing)
        training.Run(tmp_path / name, every=3).fit(
            model,
            lambda step: examples.train(16, model.preprocessing, start=step),
            total_steps=8,
            steps_per_epoch=4,
            validation=held_out,
            monitor="val_loss",
            resume=resume,
            callbacks=callbacks,
        )
        return model

    whole = run("whole")
    with pytest.raises(RuntimeError, match="killed"):
        run("killed", [Stop(after=7)])
    resumed = run("killed", resume=True)
    for a, b in zip(whole.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    assert (tmp_path / "whole/metrics.csv").read_text() == (tmp_path / "killed/metrics.csv").read_text()
    # What a run leaves as its model is what is used later: the encoder.
    encoder = zoo.load(tmp_path / "killed/model.keras")
    np.testing.assert_array_equal(encoder.weights[0].numpy(), resumed.encoder.weights[0].numpy())


@pytest.mark.parametrize("target", slow_but(TARGETS, "pixels"))
def test_the_picture_shows_the_targets(target, tmp_path):
    model = make(target)
    inputs, targets, _ = next(iter(digits(model, "test").evaluation(2, model.preprocessing)))
    painted = picture_patches(np.asarray(targets), model)
    image = (np.asarray(inputs["images"]) + 1) / 2
    parts = 1 if target == "mean-colour" else 4
    for i, places in enumerate(np.asarray(inputs["places"])):
        for place, found in zip(places, painted[i], strict=True):
            top, left = place // 4 * PATCH, place % 4 * PATCH
            patch = image[i, top : top + PATCH, left : left + PATCH]
            means = patch.reshape(parts, PATCH // parts, parts, PATCH // parts, 3).mean((1, 3))
            means = np.kron(means, np.ones((PATCH // parts, PATCH // parts, 1)))
            # A colour of 3 bits is the middle of an eighth.
            np.testing.assert_allclose(found, means, atol=1e-5 if target == "pixels" else 1 / 16 + 1e-5)
    evaluation.draw_masked_patches(model, inputs, targets, model(inputs), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_blocks_of_the_encoder_are_rematerialized():
    model = make()
    training.recipe("mini-vit", steps=2, dropout_rate=0).compile(model, remat=True)
    assert model.remat and model.encoder.get_layer("encoderblock_0").remat
    with pytest.raises(ConfigError, match="remat=True needs a model of this package. Received: a Sequential"):
        training.recipe("mini-vit", steps=2, dropout_rate=0).compile(
            keras.Sequential([keras.layers.Dense(2)]), remat=True
        )


def test_models_that_do_not_see_patch_by_patch():
    backbone = models.BackboneConfig(depths=(1,), width_factor=0.5)
    for encoder in (
        models.VisionTransformer(**{**SIZES, "patch_size": 1, "backbone": backbone}),
        models.ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=0),
    ):
        with pytest.raises(ConfigError, match="the convolutions of a hybrid or a ResNet show a masked patch"):
            training.MaskedPatchModel(encoder)
    with pytest.raises(ConfigError, match="load it with num_classes=0. Received: num_classes=3"):
        make(num_classes=3)
    with pytest.raises(ConfigError, match="3 channels. Received: 1"):
        make(num_channels=1)


def test_uint8_images_are_normalized():
    model = make()
    images = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), dtype="uint8")
    batch = {"sources": np.tile(np.arange(PATCHES) - 1, (2, 1)), "places": np.tile(np.arange(8), (2, 1))}
    found, expected = (model.predict({"images": x, **batch}, verbose=0) for x in (images, images / 127.5 - 1))
    np.testing.assert_allclose(found, expected, atol=1e-4)

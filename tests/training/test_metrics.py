"""Accuracy, and the losses beside it, for every form that labels have: against numpy."""

import dataclasses

import keras
import numpy as np
import pytest
from slowness import slow_but

from keras_vit import data, models, training
from keras_vit.distribution import DistributedModel
from keras_vit.errors import ConfigError

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(200, 5)).astype("float32")
NUMBERS = RNG.integers(0, 5, 200)
TRUE = np.eye(5, dtype="float32")[NUMBERS]
MIXED = 0.6 * TRUE + 0.4 * np.roll(TRUE, 1, 0)
SEVERAL = (RNG.uniform(size=(200, 5)) < 0.4).astype("float32")  # some rows have none
LIKELIEST = LOGITS.argmax(-1)
OF_NUMBERS, OF_SEVERAL = LIKELIEST == NUMBERS, SEVERAL[np.arange(200), LIKELIEST] == 1

EIGHT = models.Preprocessing((8, 8))
ONE, YES = RNG.normal(size=(200, 1)).astype("float32"), RNG.integers(0, 2, 200)
TWO = RNG.normal(size=(200, 2)).astype("float32")

FORMS = {
    "numbers": (NUMBERS, LOGITS, OF_NUMBERS),
    "a column of numbers": (NUMBERS[:, None], LOGITS, OF_NUMBERS),
    "float numbers": (NUMBERS.astype("float32"), LOGITS, OF_NUMBERS),
    "one-hot": (TRUE, LOGITS, OF_NUMBERS),
    "one-hot int": (TRUE.astype("int32"), LOGITS, OF_NUMBERS),
    "smoothed": (0.9 * TRUE + 0.02, LOGITS, OF_NUMBERS),
    "mixed": (MIXED.astype("float32"), LOGITS, OF_NUMBERS),
    "mixed in halves": (
        0.5 * TRUE + 0.5 * np.roll(TRUE, 1, 0),
        LOGITS,
        OF_NUMBERS | (LIKELIEST == np.roll(NUMBERS, 1)),
    ),
    "several classes": (SEVERAL, LOGITS, OF_SEVERAL),
    "several classes, bool": (SEVERAL > 0, LOGITS, OF_SEVERAL),
    "two classes": (YES, TWO, TWO.argmax(-1) == YES),
    "two classes, a column": (YES[:, None], TWO, TWO.argmax(-1) == YES),
    "two classes, one-hot": (np.eye(2)[YES], TWO, TWO.argmax(-1) == YES),
    "one logit": (YES, ONE, (ONE[:, 0] > 0) == YES),
    "one logit, a column": (YES[:, None].astype("float32"), ONE, (ONE[:, 0] > 0) == YES),
    "one logit, bool": (YES > 0, ONE, (ONE[:, 0] > 0) == YES),
}


@pytest.mark.parametrize("form", FORMS)
def test_accuracy_of_every_form(form):
    labels, logits, right = FORMS[form]
    weights = RNG.uniform(size=200).astype("float32")
    plain, weighted = training.Accuracy(), training.Accuracy()
    plain.update_state(labels, logits)
    weighted.update_state(labels, logits, weights)
    np.testing.assert_allclose(plain.result(), right.mean(), rtol=1e-5)
    np.testing.assert_allclose(weighted.result(), np.average(right, weights=weights), rtol=1e-5)


def test_each_batch_is_read_in_its_own_form():
    metric = training.Accuracy()
    for labels, logits, _ in FORMS.values():
        metric.update_state(labels, logits)
    expected = np.mean([right for *_, right in FORMS.values()])
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)


def softplus(x):
    return np.log1p(np.exp(x))


@pytest.mark.parametrize("labels", [YES, YES[:, None], YES > 0, YES.astype("float32")])
def test_the_sigmoid_of_one_logit(labels):
    z, y = ONE[:, 0].astype("float64"), YES * 0.8 + 0.1  # smoothed towards 1/2
    expected = np.mean(y * softplus(-z) + (1 - y) * softplus(z))
    np.testing.assert_allclose(training.SigmoidLoss(label_smoothing=0.2)(labels, ONE), expected, rtol=1e-5)


def test_losses_refuse_what_they_cannot_mean():
    with pytest.raises(ConfigError, match="rows of 5 classes"):
        training.SigmoidLoss()(np.zeros((200, 4)), LOGITS)
    with pytest.raises(ConfigError, match="rows of 5 classes"):
        training.Accuracy().update_state(np.zeros((200, 4)), LOGITS)
    with pytest.raises(ConfigError, match="softmax of one logit"):
        training.SoftmaxLoss()(YES, ONE)
    with pytest.raises(ConfigError, match="softmax of one logit"):
        training.PixelLoss()(np.zeros((1, 2, 2)), np.zeros((1, 2, 2, 1)))


def numpys_accuracy(model, batches):
    rows = [(np.asarray(model(x)).argmax(-1) == y, weights) for x, y, weights in batches]
    right, weights = (np.concatenate(column) for column in zip(*rows, strict=True))
    return np.average(right, weights=weights)


def accuracy(model, batches):
    return model.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def linear():
    """A linear model that calls each digit something."""
    keras.utils.set_random_seed(1)
    pixels = keras.Input((8, 8, 3))
    logits = keras.layers.Dense(10, name="head")(keras.layers.Flatten()(pixels))
    return DistributedModel(pixels, logits)


@pytest.fixture(scope="module")
def held_out():
    return data.load("digits", "test").evaluation(200, EIGHT)  # 360: the last batch is filled up


AUGMENTATIONS = sorted({row.augmentation for row in training.RECIPES.values()})


@pytest.mark.slow
@pytest.mark.parametrize("augmentation", slow_but(AUGMENTATIONS, "bit-mixup"))
def test_accuracy_after_each_recipes_own_augmentation(augmentation, held_out, tmp_path):
    """Trained on its labels, mixed or not, the model is judged on numbers: in `fit`, in `evaluate`, loaded."""
    row = next(row for row in training.RECIPES.values() if row.augmentation == augmentation)
    varied = dataclasses.replace(data.AUGMENTATIONS[augmentation], resize=None)  # for images of 8 pixels
    model = linear()
    training.recipe(row.name, batch_size=64, steps=2, warmup_steps=0, learning_rate=1e-3).compile(model)
    batches = data.load("digits", "train").train(64, EIGHT, augmentation=varied, steps=2)
    assert (batches.element_spec[1].shape.rank == 2) == varied.one_hot
    history = model.fit(batches, validation_data=held_out, verbose=0, shuffle=False).history
    expected = numpys_accuracy(model, held_out)
    assert expected > 0.03
    assert [*history["val_accuracy"], accuracy(model, held_out)] == pytest.approx([expected] * 2, rel=1e-6)
    model.save(tmp_path / "model.keras")
    assert accuracy(keras.saving.load_model(tmp_path / "model.keras"), held_out) == pytest.approx(expected, rel=1e-6)


def test_keras_callbacks_know_that_more_is_better():
    model = linear()
    training.recipe("finetune-pets", steps=4).compile(model)
    x, y = np.zeros((8, 8, 8, 3), "float32"), np.arange(8)
    stop = keras.callbacks.EarlyStopping("val_accuracy", patience=0)
    model.fit(x, y, validation_data=(x, y), epochs=3, verbose=0, callbacks=[stop])
    assert stop.monitor_op is keras.ops.greater

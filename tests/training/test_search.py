"""The grid search, a recipe's callbacks under plain `fit`, and the strategies of a machine without accelerators."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import training
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.training.runs.history import read_rows


def digits():
    """400 images (16, 16, 3) whose bright quarter is their class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    images = rng.normal(size=(400, 16, 16, 3)).astype("float32") * 0.3
    for i, label in enumerate(labels):
        row, column = divmod(label, 2)
        images[i, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] += 2.0
    return tf.data.Dataset.from_tensor_slices((images, labels))


def linear():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.AveragePooling2D(8)(inputs)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Flatten()(x)))


def test_development_split_divides_the_examples():
    train, held_out = training.development_split(tf.data.Dataset.range(100), 0.1)
    assert list(held_out.as_numpy_iterator()) == list(range(0, 100, 10))
    assert sorted([*train.as_numpy_iterator(), *held_out.as_numpy_iterator()]) == list(range(100))
    with pytest.raises(ConfigError, match="share"):
        training.development_split(digits(), 0)


def test_the_search_finds_the_rate_that_learns():
    train, held_out = training.development_split(digits(), 0.1)
    recipe = training.recipe("finetune-flowers", steps=60, batch_size=32)
    batches = train.repeat().batch(32, drop_remainder=True)
    rate, scores = training.search_learning_rate(recipe, linear, batches, held_out.batch(40), rates=(1e-7, 0.1))
    assert rate == 0.1 and set(scores) == {1e-7, 0.1} and scores[0.1] > 0.8 > scores[1e-7]
    with pytest.raises(ConfigError, match="no learning rates"):
        training.search_learning_rate(training.recipe("bit-i1k"), linear, batches, batches)


def test_a_recipes_callbacks_keep_a_plain_fit(tmp_path):
    recipe = training.recipe("finetune-imagenet-ViT-L/16", steps=12, batch_size=40, ema_momentum=0.5)
    with training.strategy("one_device").scope():
        model = linear()
        recipe.compile(model)
    data = digits().batch(40)
    callbacks = recipe.callbacks(tmp_path, every=5)
    model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=callbacks, shuffle=False)
    assert training.Checkpoints(tmp_path / "checkpoints").steps() == [20, 15]
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 3
    best = dict(np.load(tmp_path / "best.weights.npz"))
    # The run ends with the averaged weights, which are what was evaluated.
    values = [row["val_loss"] for row in read_rows(tmp_path / "metrics.csv")]
    np.testing.assert_allclose(model.evaluate(data, verbose=0)[0], values[-1], rtol=1e-5)
    assert best.keys() == {v.path for v in model.weights}


def test_strategies(monkeypatch, capsys):
    assert training.strategy().num_replicas_in_sync == 1
    assert "OneDeviceStrategy" in capsys.readouterr().out
    assert isinstance(training.strategy("mirrored"), tf.distribute.MirroredStrategy)
    with pytest.raises(UnknownNameError, match="mirrored"):
        training.strategy("miror")
    with pytest.raises(ConfigError, match="no device 'GPU:7'"):
        training.strategy("one_device", devices=["GPU:7"])
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        training.strategy("multi_worker")
    with pytest.raises(ConfigError, match="No TPU answers as 'local'"):
        training.strategy("tpu")

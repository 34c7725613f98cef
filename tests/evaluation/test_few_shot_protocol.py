"""Features of datasets, the protocol around `few_shot`, and the callback that runs it while a model trains."""

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import data, evaluation, zoo
from keras_vit.errors import ConfigError
from keras_vit.evaluation.frozen_features import choose, extract_chosen


@pytest.fixture(scope="module")
def vit():
    keras.utils.set_random_seed(0)
    return zoo.load("ViT-Test/4", weights=None, num_classes=10)


@pytest.fixture(scope="module")
def digits():
    return data.load("digits", examples=200, stratified=True), data.load("digits", "test", examples=90)


def test_features_are_the_models(vit, digits):
    told = []
    features, labels = evaluation.extract_features(vit, digits[1], 40, told.append)
    assert features.shape == (90, 64) and features.dtype == np.float32 and told == [40, 80, 90]
    squashed = dataclasses.replace(vit.preprocessing, crop=0.875, crop_mode="squash")
    images, expected, _ = next(iter(digits[1].evaluation(8, squashed)))
    np.testing.assert_array_equal(labels[:8], expected)
    np.testing.assert_allclose(features[:8], keras.ops.convert_to_numpy(vit.features(images)), atol=1e-4)


@pytest.mark.slow
def test_protocol_is_few_shot_on_features(vit, digits):
    found = evaluation.evaluate_few_shot(vit, *digits, shots=(1, 10), seeds=(0, 4))
    train, test = (evaluation.extract_features(vit, split) for split in digits)
    expected = {k: [evaluation.few_shot(*train, *test, shots=k, seed=seed) for seed in (0, 4)] for k in (1, 10)}
    assert found == expected
    assert np.mean(found[10]) > np.mean(found[1]) > 0.12  # random features are features: chance is 0.1
    with pytest.raises(ConfigError, match="training examples, and 500 shots need 500 of every class"):
        evaluation.evaluate_few_shot(vit, *digits, shots=(500,))


def test_only_the_chosen_images_are_read(vit, tmp_path):
    """Beside an unreadable one; each class has as many as asked, each with its own image's features."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 28, 28, 3), "uint8")
    for i, image in enumerate(pixels):
        (tmp_path / "abc"[i % 3]).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "abc"[i % 3] / f"{i:02}.png")
    train = data.load(f"folder:{tmp_path}", "train+validation")
    first = choose(np.array(train.source.labels), 2, 0)[0]
    Path(train.paths()[first]).write_bytes(b"none")
    features, labels, rows = extract_chosen(vit, train, (1, 2), (0, 1), 8)
    assert len(features) == len(np.unique(np.concatenate(list(rows.values())))) < 13
    assert [sorted(labels[rows[2, seed]]) for seed in (0, 1)] == [[0, 0, 1, 1, 2, 2]] * 2
    assert np.isin(rows[1, 1], rows[2, 1]).all()
    whole, known = evaluation.extract_features(vit, train)
    distances = np.abs(features[:, None] - whole).max(-1)
    np.testing.assert_array_equal(known[distances.argmin(1)], labels)
    assert distances.min(1).max() < 1e-4 and len(set(distances.argmin(1))) == len(features)
    with pytest.raises(ConfigError, match="Class [abc] has 7 training examples, and 8 shots need 8"):
        extract_chosen(vit, train, (8,), (0,), 8)


def test_a_last_class_without_examples_is_missed():
    with pytest.raises(ConfigError, match="Class hen has 0 training examples, and 1 shots need 1"):
        choose(np.array([0, 1, 0, -1]), 1, 0, ("cat", "dog", "hen"))


@pytest.mark.parametrize("judge", [evaluation.evaluate, evaluation.extract_features, evaluation.evaluate_multi_label])
def test_a_keras_model_of_others_is_refused_in_a_sentence(judge, digits):
    foreign = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    with pytest.raises(ConfigError, match="A Sequential does not say how images become its input"):
        judge(foreign, digits[1])


@pytest.mark.slow
def test_callback_logs_while_a_model_trains(vit, digits):
    model = zoo.load("ViT-Test/4", weights=None, num_classes=10)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batches = digits[0].train(64, model.preprocessing, steps=3)
    callback = evaluation.FewShot(*digits, shots=(5,), seeds=(0,), every=2)
    history = model.fit(batches.repeat(), steps_per_epoch=1, epochs=3, shuffle=False, verbose=0, callbacks=[callback])
    assert len(history.history["few_shot_5"]) == 2  # of the second epoch, and of the last
    assert history.history["few_shot_5"][-1] == pytest.approx(
        evaluation.evaluate_few_shot(model, *digits, shots=(5,), seeds=(0,))[5][0]
    )

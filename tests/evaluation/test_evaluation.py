"""What is said of a classifier's mistakes, against counting them one by one."""

import keras
import numpy as np
from PIL import Image

from keras_vit import evaluation
from keras_vit.models import Preprocessing

CLASSES = 4


class Reader(keras.Model):
    """Takes its logits from an image's first pixels."""

    preprocessing = Preprocessing((2, 2), mean=(0.5,), std=(0.5,))

    def call(self, images, training=False):
        return keras.ops.reshape(images, (-1, CLASSES))


def batches():
    """Three batches of (images, labels, weights), of which the last has padding: 11 examples in all."""
    rng = np.random.default_rng(0)
    for n in (4, 4, 3):
        weights = np.arange(4) < n
        yield (
            rng.normal(size=(4, 2, 2, 1)).astype("float32") * 3,
            rng.integers(0, CLASSES, 4),
            weights.astype("float32"),
        )


def test_predictions_count_every_example_once_and_keep_the_surest_mistakes():
    found = evaluation.collect_predictions(Reader(), batches(), keep=3)
    counts, wrong = np.zeros((CLASSES, CLASSES), int), []
    for images, labels, weights in batches():
        for image, label, weight in zip(images, labels, weights, strict=True):
            if not weight:
                continue
            odds = np.exp(image.astype("float64").ravel())
            counts[label, odds.argmax()] += 1
            if odds.argmax() != label:
                wrong.append((odds.max() / odds.sum(), label, odds.argmax(), np.clip(image * 0.5 + 0.5, 0, 1)))
    np.testing.assert_array_equal(found.confusion(CLASSES), counts)
    assert found.accuracy == counts.diagonal().sum() / 11
    wrong.sort(key=lambda mistake: -mistake[0])
    assert len(found.worst) == 3 < len(wrong)
    for (shown, label, predicted, confidence), expected in zip(found.worst, wrong, strict=False):
        np.testing.assert_allclose(confidence, expected[0], rtol=1e-5)
        assert (label, predicted) == expected[1:3]
        np.testing.assert_allclose(shown, expected[3], rtol=1e-6)


def test_the_picture_takes_any_class_names(tmp_path):
    found = evaluation.collect_predictions(Reader(), batches())
    evaluation.draw_mistakes(found, ["$x_{$", "a long name " * 9, "", "naïve\nname"], tmp_path / "mistakes.png")
    assert Image.open(tmp_path / "mistakes.png").size == (1430, 660)

"""What is said of a classifier's mistakes, against counting them one by one."""

import csv

import keras
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.figure import Figure
from PIL import Image

from keras_vit import evaluation
from keras_vit.evaluation import predictions
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


def test_mistakes_are_listed_by_file(tmp_path):
    """Against the examples one by one."""
    found = evaluation.collect_predictions(Reader(), batches())
    files = [f"=cat, {i}.png" for i in range(11)]
    evaluation.write_mistakes(found, "abcd", files, tmp_path / "mistakes.csv")
    rows, number = [], 0
    for images, labels, weights in batches():
        for image, label in zip(images[weights > 0], labels[weights > 0], strict=True):
            odds = np.exp(image.astype("float64").ravel())
            if odds.argmax() != label:
                rows.append((f"'{files[number]}", "abcd"[label], "abcd"[odds.argmax()], odds.max() / odds.sum()))
            number += 1
    with open(tmp_path / "mistakes.csv", newline="", encoding="utf-8") as file:
        header, *written = csv.reader(file)
    assert header == ["image", "class", "predicted", "probability"]
    for row, (*expected, share) in zip(written, sorted(rows, key=lambda row: -row[3]), strict=True):
        assert row[:3] == expected and abs(float(row[3]) - share) < 1e-5


def test_the_picture_takes_any_class_names(tmp_path):
    found = evaluation.collect_predictions(Reader(), batches())
    evaluation.draw_mistakes(found, ["$x_{$", "a long name " * 9, "", "naïve\nname"], tmp_path / "mistakes.png")
    assert Image.open(tmp_path / "mistakes.png").size == (1430, 715)


def luminance(colour):
    """WCAG 2.2, relative luminance of a colour in [0, 1]."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return np.dot(linear, (0.2126, 0.7152, 0.0722))


def test_every_count_stands_out_from_its_cell():
    """WCAG's contrast for text, 3 to 1 of large letters, on whatever shade; also off the diagonal."""
    counts = np.array([[2, 9, 4], [10, 10, 1], [1, 30, 1]])
    labels, predicted = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    found = evaluation.Predictions(labels, predicted, np.ones(len(labels)), ())
    axis = Figure().subplots()
    predictions.draw_confusion(axis, found, ["a", "b", "a name of more than twenty letters"])
    shown = {text.get_position(): text for text in axis.texts}
    assert [[int(shown[j, i].get_text()) for j in range(3)] for i in range(3)] == counts.tolist()
    for (j, i), text in shown.items():
        cell = luminance(colormaps["Blues"](counts[i, j] / counts[i].sum()))
        written = 1.0 if text.get_color() == "white" else 0.0
        assert (max(cell, written) + 0.05) / (min(cell, written) + 0.05) >= 3, (i, j)
    assert [label.get_text() for label in axis.get_yticklabels()][-1] == "a name of more than…"


@pytest.mark.slow
@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (12, 4), (30, 6)])
def test_mistakes_fill_their_space(count, columns, tmp_path):
    worst = tuple((np.zeros((8, 8, 3)), 0, 1, 0.9) for _ in range(count))
    found = evaluation.Predictions(np.zeros(count, int), np.ones(count, int), np.ones(count), worst)
    figure = Figure()
    predictions.draw_worst(figure, found, ["cat", "dog"])
    assert figure.axes[0].get_gridspec().ncols == columns
    evaluation.draw_mistakes(found, ["cat", "dog"], tmp_path / "mistakes.png")
    drawn = np.asarray(Image.open(tmp_path / "mistakes.png").convert("L"))
    black = (drawn[:, drawn.shape[1] // 2 :] == 0).mean()
    assert black > (0.25 if count < 30 else 0.2), black

"""The page of `inspection.report`: whole or not there, and in need of nothing else."""

import base64
import io
import re

import keras
import numpy as np
import pytest
from PIL import Image
from slowness import slow_but

from keras_vit import inspection, models
from keras_vit.errors import ConfigError, PreprocessingError
from keras_vit.inspection.report_page import attend, attention_weights
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing

VIT = {"patch_size": 8, "hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 16}
IMAGES = [np.random.default_rng(i).integers(0, 256, (40 + i, 50, 3), "uint8") for i in range(10)]
SECTIONS = ["Where the model looks", "Dense features", "Attention distance", "Position embeddings", "Filters"]


def small(classifier="token", **fields):
    return models.VisionTransformer(
        **{"image_size": (16, 24), "num_classes": 3, **VIT, **fields}, classifier=classifier
    )


def headings(page):
    return re.findall("<h2>(.*?)</h2>", page)


@pytest.mark.parametrize("classifier", slow_but(["token", "gap"], "token"))
def test_page_of_a_vit(classifier, tmp_path):
    names = ["<script>.jpg", *(f"{i}.jpg" for i in range(1, 10))]
    inspection.report(small(classifier, labels=["a&b", "c", "d"]), IMAGES, tmp_path / "new" / "index.html", names)
    page = (tmp_path / "new" / "index.html").read_text("utf-8")
    assert headings(page) == ["Predictions", *SECTIONS]
    assert "&lt;script&gt;.jpg" in page and "<script" not in page and "a&amp;b" in page
    assert "averaged over 10 images" in page
    assert not re.search(r'(src|href)="(?!data:)', page) and "http:" not in page and "https:" not in page
    drawn = [Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall('base64,([^"]+)', page)]
    assert len(drawn) == 3 * len(IMAGES) + 3  # predictions, rollout and features of each, and three figures
    assert all(np.asarray(image.convert("L")).std() > 2 for image in drawn)
    shares = [float(share) for share in re.findall(r"--share: ([\d.]+)%", page)]
    assert shares == [33.3] * 3 * len(IMAGES)  # of a head that is zero


def test_as_many_images_at_a_time_as_their_weights_allow(monkeypatch):
    model, images = small(num_registers=2), np.random.default_rng(0).uniform(-1, 1, (5, 16, 24, 3)).astype("float32")
    (distance, maps), seen = attend(model, images), []

    def weigh(*given):
        seen.append(attention_weights(*given))
        return seen[-1]

    monkeypatch.setattr("keras_vit.inspection.report_page.attention_weights", weigh)
    monkeypatch.setattr("keras_vit.inspection.report_page.WEIGHTS", 2 * 3 * 2 * 9**2)  # two images, 3 blocks, 2 heads
    found = attend(model, images)
    assert [weights.shape[1] for weights in seen] == [2, 2, 1] and seen[0].size == 2 * 3 * 2 * 9**2
    np.testing.assert_allclose(found[0], distance, rtol=1e-5)
    np.testing.assert_allclose(found[1], maps, rtol=1e-5)


@pytest.mark.slow
def test_page_of_a_resnet_and_of_a_model_without_head(tmp_path):
    inspection.report(models.ResNet(image_size=(32, 32), depths=(1, 1), num_classes=5), IMAGES[:1], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert headings(page) == ["Predictions", "Class activation", "Filters"] and "image 1" in page
    inspection.report(small(num_classes=0), IMAGES[:1], tmp_path / "b.html")
    assert headings((tmp_path / "b.html").read_text("utf-8")) == SECTIONS
    inspection.report(models.ResNet(image_size=(32, 32), depths=(1,), num_classes=0), IMAGES[:1], tmp_path / "c.html")
    assert headings((tmp_path / "c.html").read_text("utf-8")) == ["Filters"]


@pytest.mark.slow
def test_pages_of_models_that_classify_pixels_or_take_any_size(tmp_path):
    resnet = models.ResNet(image_size=(32, 32), depths=(1,), num_classes=5, classifier="patches")
    inspection.report(resnet, IMAGES[:1], tmp_path / "a.html")
    assert headings((tmp_path / "a.html").read_text("utf-8")) == ["Filters"]
    inspection.report(small("patches"), IMAGES[:2], tmp_path / "b.html", names=["first"])
    page = (tmp_path / "b.html").read_text("utf-8")
    assert headings(page) == SECTIONS and "first" in page and "image 2" in page
    free = small(image_size=(None, None), stored_size=(24, 32), preprocessing=Preprocessing((16, 24)))
    inspection.report(free, IMAGES[:1], tmp_path / "c.html")
    assert headings((tmp_path / "c.html").read_text("utf-8")) == ["Predictions", *SECTIONS]


@pytest.mark.slow
def test_a_page_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "index.html"
    path.write_text("before")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.inspection.report_page.draw_figure", interrupt)
    with pytest.raises(KeyboardInterrupt):
        inspection.report(small(), IMAGES[:1], path)
    assert [file.name for file in tmp_path.iterdir()] == ["index.html"] and path.read_text() == "before"


def test_bad_input_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="at least one image"):
        inspection.report(small(), [], tmp_path / "a.html")
    with pytest.raises(ConfigError, match=r"must be \(h, w, 3\), of the model's channels. Received: \(8, 8\)"):
        inspection.report(small(), [np.zeros((8, 8), "uint8")], tmp_path / "a.html")
    with pytest.raises(ConfigError, match="report takes a VisionTransformer or a ResNet. Received: a Functional"):
        inputs = keras.Input((8,))
        other = keras.Model(inputs, keras.layers.Dense(2)(inputs))
        inspection.report(other, IMAGES, tmp_path / "a.html")
    with pytest.raises(PreprocessingError):
        unknown = small(preprocessing=UnknownPreprocessing("The files do not state it."))
        inspection.report(unknown, IMAGES, tmp_path / "a.html")
    assert not any(tmp_path.iterdir())

"""A model of images with several classes gives the sigmoid of its logits, wherever it is asked, against scipy's."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import scipy.special
from PIL import Image

import keras_vit
from keras_vit import data, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.trainers.plan import load_model
from keras_vit.trainers.settings import Settings

LABELS = ("cat", "dog", "hen")
PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3), "uint8")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=LABELS, probabilities="sigmoid")
    model.get_layer("head").kernel.assign(np.random.default_rng(1).normal(0, 1 / 8, (64, 3)))  # logits of a few units
    return model


@pytest.fixture(scope="module")
def expected(model):
    logits = np.asarray(model(model.preprocessing(PIXELS[None])))[0].astype("float64")
    return dict(zip(LABELS, scipy.special.expit(logits), strict=True))


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    keras_vit.export.bundle(model, folder, formats=["onnx", "saved_model"])
    Image.fromarray(PIXELS).save(folder / "a.png")
    return folder


def test_predict(model, expected):
    assert abs(sum(expected.values()) - 1) > 0.1  # so that a softmax would be seen
    assert dict(keras_vit.predict(model, PIXELS)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "keras"])
def test_every_file_knows(model, expected, tmp_path, ending):
    path = tmp_path / f"m.{ending}"
    zoo.save(model, path)
    assert dict(keras_vit.predict(path, PIXELS)) == pytest.approx(expected, abs=1e-5)
    assert zoo.load(path, labels=["a", "b"]).config.probabilities == "softmax"  # a new head knows nothing of the old


@pytest.mark.slow
def test_a_bundle(bundle, expected):
    assert dict(keras_vit.predict(bundle / "model.onnx", PIXELS)) == pytest.approx(expected, abs=1e-4)
    command = [sys.executable, "predict.py", "a.png"]
    lines = subprocess.run(command, cwd=bundle, capture_output=True, text=True, check=True).stdout.splitlines()
    said = {name: float(share) for _, share, name in (line.split("\t") for line in lines)}
    assert said == pytest.approx(expected, abs=1e-3)
    assert "the sigmoid of its logit" in (bundle / "README.md").read_text()


@pytest.mark.slow
def test_a_server(bundle, expected):
    import tensorflow as tf

    served = tf.saved_model.load(str(next(bundle.rglob("saved_model.pb")).parent))
    answer = served.serve_uint8(PIXELS[None])["probabilities"].numpy()[0]
    np.testing.assert_allclose(answer, list(expected.values()), atol=1e-4)


@pytest.mark.parametrize(("second", "kind"), [("dog|hen", "sigmoid"), ("dog", "softmax")])
def test_training_chooses(tmp_path, second, kind):
    for name in ("a", "b", "c"):
        Image.fromarray(PIXELS).save(tmp_path / f"{name}.png")
    (tmp_path / "all.csv").write_text(f"path,label,split\na.png,cat,train\nb.png,{second},train\nc.png,cat,val\n")
    settings = Settings(dataset=f"csv:{tmp_path / 'all.csv'}", model="ViT-Test/4", pretrain=True)
    examples = data.load(settings.dataset, "train")
    model = load_model(settings, training.recipe("pretrain-imagenet", examples=2, image_size=16), examples)
    assert model.config.probabilities == kind


def test_an_unknown_kind():
    with pytest.raises(ConfigError, match="probabilities must be one of softmax, sigmoid"):
        zoo.load("ViT-Test/4", weights=None, probabilities="argmax")

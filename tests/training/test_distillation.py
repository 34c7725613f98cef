"""Distillation: what the labels become, against the teacher itself; runs by both doors; what is refused."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit import data, models, training, zoo
from keras_vit.data.augment.augmentations import find_augmentation
from keras_vit.errors import ConfigError
from keras_vit.models import Preprocessing
from keras_vit.trainers.settings import Settings
from keras_vit.trainers.train import train

SMALL = {"model": "ViT-Test/4", "image_size": 8, "steps": 12, "batch_size": 16, "tell": None}
DIGITS = tuple("0123456789")


def make_teacher(classes=DIGITS, side=16, **fields):
    """A ViT whose answers differ between images."""
    keras.utils.set_random_seed(1)
    config = models.ViTConfig(
        image_size=side, patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=len(classes)
    )
    model = models.build(config, labels=classes, **fields)
    for variable in model.trainable_variables:
        variable.assign(variable + np.random.default_rng(0).normal(0, 0.3, variable.shape))
    return model


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "teacher.keras"
    zoo.save(make_teacher(), path)
    return path


def test_labels_are_the_teachers_probabilities_of_the_same_images():
    model = make_teacher(preprocessing=Preprocessing((16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)))
    seen = Preprocessing((16, 16))
    images = np.random.default_rng(2).uniform(-1, 1, (5, 16, 16, 3)).astype("float32")
    batches = tf.data.Dataset.from_tensors((images, np.arange(5), np.ones(5, "float32")))
    ((same, answers, weights),) = training.with_answers(batches, model, seen).as_numpy_iterator()
    own = ((images / 2 + 0.5 - (0.4, 0.5, 0.6)) / (0.2, 0.3, 0.4)).astype("float32")
    logits = np.asarray(model(own), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert (same == images).all() and (weights == 1).all()
    np.testing.assert_allclose(answers, expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0.05  # they differ between the images


def test_mixtures_are_answered_as_mixtures_and_sizes_may_differ():
    model = make_teacher()
    batches = data.load("digits").train(
        8, Preprocessing((8, 8)), augmentation=find_augmentation("pad-crop-mixup-cutmix"), seed=0
    )
    images, answers = next(iter(training.with_answers(batches, model, Preprocessing((8, 8)))))
    logits = np.asarray(model(tf.image.resize(images, (16, 16))), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(answers, expected, atol=1e-5)


def test_a_bicubic_teacher_sees_the_pixels_that_there_are():
    """Bicubic overshoots at edges; Pillow, and our own preprocessing, keep such pixels within black and white."""
    model = make_teacher(preprocessing=Preprocessing((16, 16), interpolation="bicubic"))
    pixels = np.random.default_rng(0).choice(np.uint8([0, 255]), (4, 8, 8, 3))
    batches = tf.data.Dataset.from_tensors((pixels / np.float32(127.5) - 1, np.arange(4)))
    ((_, answers),) = training.with_answers(batches, model, Preprocessing((8, 8))).as_numpy_iterator()
    seen = np.stack([Image.fromarray(image).resize((16, 16), Image.Resampling.BICUBIC) for image in pixels])
    logits = np.asarray(model(seen / np.float32(127.5) - 1), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(answers, expected, atol=5e-3)


@pytest.mark.slow
def test_a_student_learns_the_answers(teacher, tmp_path):
    """A teacher whose answers have nothing to do with the labels: the student agrees with it, not with them."""
    more = SMALL | {"image_size": 16, "steps": 300, "learning_rate": 0.003, "recipe": "mini-vit"}
    said = []
    keras_vit.pretrain("digits", out=tmp_path / "run", teacher=str(teacher), **more | {"tell": said.append})
    assert any(f"the answers of {teacher} are learned" in sentence for sentence in said)
    batches = data.load("digits", "test").evaluation(100, Preprocessing((16, 16)))
    images, labels, _ = (np.concatenate(part) for part in zip(*batches.as_numpy_iterator(), strict=True))
    answered, learned = (np.argmax(zoo.load(path)(images), -1) for path in (teacher, tmp_path / "run/last.weights.npz"))
    assert (answered == learned).mean() > 0.9 and (labels == learned).mean() < 0.3


class StopAtStep8(keras.callbacks.Callback):
    def __init__(self, *_, **__):
        super().__init__()
        self.left = 8

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise RuntimeError("stopped")

    def close(self):
        pass


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(teacher, tmp_path):
    teacher = shutil.copy(teacher, tmp_path)
    more = SMALL | {"every": 3, "recipe": "mini-vit", "teacher": str(teacher), "dataset": "digits"}
    keras_vit.pretrain(out=tmp_path / "whole", **more)
    asked = {name: value for name, value in more.items() if name not in ("every", "tell")}
    with pytest.raises(RuntimeError, match="stopped"):
        train(Settings(pretrain=True, **asked), tmp_path / "parts", every=3, progress=StopAtStep8)
    keras_vit.pretrain(out=tmp_path / "parts", resume=True, **more)
    whole, parts = (np.load(tmp_path / name / "last.weights.npz") for name in ("whole", "parts"))
    assert set(whole) == set(parts) and all((whole[name] == parts[name]).all() for name in whole)
    zoo.save(make_teacher(side=8), teacher)
    with pytest.raises(ConfigError, match="The file of `teacher` or `without` has changed"):
        keras_vit.pretrain(out=tmp_path / "parts", resume=True, **more)


def test_what_is_refused(teacher, tmp_path):
    zoo.save(make_teacher(tuple("abc")), tmp_path / "other.keras")
    with pytest.raises(ConfigError, match="The teacher must have the classes of digits.*has 'a', 'b', 'c'.*Fine-tune"):
        keras_vit.pretrain("digits", out=tmp_path / "1", teacher=str(tmp_path / "other.keras"), **SMALL)
    with pytest.raises(keras_vit.errors.KerasVitError, match="no.such"):
        keras_vit.pretrain("digits", out=tmp_path / "2", teacher="no.such", **SMALL)
    with pytest.raises(ConfigError, match="teacher needs a model with classes"):
        keras_vit.pretrain("digits", out=tmp_path / "3", teacher=str(teacher), objective="masked-patches", **SMALL)
    assert not any((tmp_path / name / "config.json").exists() for name in "123")

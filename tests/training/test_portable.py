"""What works on each of Keras' backends, which test_backends.py chooses, and what says that it does not."""

import keras
import numpy as np
import pytest
from slowness import slow_but

from keras_vit import export, training, zoo
from keras_vit.errors import ConfigError, ExportError
from keras_vit.models import AxialResNet, AxialVisionTransformer, ResNet, VisionTransformer

ELSEWHERE = keras.backend.backend() != "tensorflow"
MODELS = {
    "vit": lambda: VisionTransformer(
        image_size=16, patch_size=4, hidden_size=32, num_layers=1, num_heads=4, mlp_dim=64, num_classes=10
    ),
    "resnet": lambda: ResNet(image_size=16, depths=(1, 1), width_factor=0.5, num_classes=10),
    "axial vit": lambda: AxialVisionTransformer(
        image_size=16, patch_size=4, hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64, num_classes=10
    ),
    "axial resnet": lambda: AxialResNet(image_size=16, depths=(1, 1), width_factor=0.5, num_classes=10),
}


def examples():
    random = np.random.default_rng(0)
    return random.normal(size=(16, 16, 16, 3)).astype("float32"), random.integers(0, 10, 16)


def logits_of(model, images):
    return keras.ops.convert_to_numpy(model(images))


@pytest.fixture(scope="module", params=slow_but(MODELS, "vit"))
def trained(request):
    """A model that a recipe has fitted to 16 images."""
    keras.utils.set_random_seed(0)
    model = MODELS[request.param]()
    changes = {"batch_size": 16, "steps": 20, "learning_rate": 0.01, "warmup_steps": 0, "dropout_rate": 0.0}
    training.recipe("pretrain-imagenet", **changes).compile(model)
    images, labels = examples()
    history = model.fit(images, labels, batch_size=16, epochs=20, verbose=0).history
    assert history["accuracy"][-1] == 1.0 and history["loss"][-1] < history["loss"][0] / 3
    return model


def test_a_trained_model_evaluates_as_numpy_says(trained):
    images, labels = examples()
    accuracy = trained.evaluate(images, labels, verbose=0, return_dict=True)["accuracy"]
    assert accuracy == pytest.approx(np.mean(logits_of(trained, images).argmax(axis=1) == labels))


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras", ".weights.h5"])
def test_a_trained_model_comes_back_from_a_file(trained, ending, tmp_path):
    if ending == ".safetensors" and "Axial" in type(trained).__name__:
        pytest.skip("timm has no axial models")
    zoo.save(trained, tmp_path / f"model{ending}")
    again = zoo.load(tmp_path / f"model{ending}")
    images, _ = examples()
    np.testing.assert_allclose(logits_of(again, images), logits_of(trained, images), atol=1e-5)


RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
SIZES = dict(image_size=16, patch_size=4, hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64, num_classes=10)
HYBRID = {**SIZES, "patch_size": 2, "backbone": {"depths": (1,), "width_factor": 0.5}}


def with_lora(**rates):
    model = VisionTransformer(**SIZES, **rates)
    training.enable_lora(model, 2)
    return model


def without_labels(**rates):
    return training.MaskedPatchModel(VisionTransformer(**{**SIZES, "num_classes": 0}, **rates))


DROPPING = {
    "class token": lambda **rates: VisionTransformer(**SIZES, **rates),
    "average": lambda **rates: VisionTransformer(**SIZES, classifier="gap", **rates),
    "relative": lambda **rates: VisionTransformer(**SIZES, position_embedding="relative", **rates),
    "hybrid": lambda **rates: VisionTransformer(**HYBRID, **rates),
    "axial": lambda **rates: AxialVisionTransformer(**SIZES, **rates),
    "in another": lambda **rates: keras.Sequential([keras.Input((16, 16, 3)), VisionTransformer(**SIZES, **rates)]),
    "lora": with_lora,
    "masked patches": without_labels,
}
CASES = [("class token", (rate,)) for rate in RATES] + [(kind, RATES) for kind in DROPPING]


@pytest.mark.parametrize(("kind", "rates"), slow_but(CASES, *CASES[: len(RATES)]))
def test_fit_drops(kind, rates):
    """At learning rate 0 only what is dropped can change the loss: from evaluation's, and from epoch to epoch."""
    keras.utils.set_random_seed(0)
    model, random = DROPPING[kind](**dict.fromkeys(rates, 0.5)), np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(weight + random.normal(0, 0.2, weight.shape))
    images, labels = examples()
    if kind == "masked patches":
        places = np.tile(np.arange(8, dtype="int32"), (16, 1))
        images = {"images": images, "sources": np.tile(np.arange(16, dtype="int32"), (16, 1)), "places": places}
        labels = random.integers(0, 512, (16, 8))
    model.compile(training.SGD(0.0), training.SoftmaxLoss())
    losses = model.fit(images, labels, batch_size=16, epochs=2, verbose=0).history["loss"]
    losses.append(model.evaluate(images, labels, batch_size=16, verbose=0))
    assert np.diff(sorted(losses)).min() > 2e-5, losses  # float32 rounds by 1e-6


def test_onnx(trained, tmp_path):
    assert export.convert(trained, tmp_path / "model.onnx").max_abs_diff < 1e-4


@pytest.mark.skipif(not ELSEWHERE, reason="TensorFlow is the backend that does all of this")
@pytest.mark.parametrize(
    ("error", "work"),
    [
        (ExportError, lambda folder: export.convert(MODELS["vit"](), folder / "model.tflite")),
        (ExportError, lambda folder: export.convert(MODELS["vit"](), folder / "saved_model")),
        (ConfigError, lambda folder: training.strategy("auto")),
        (ConfigError, lambda folder: training.Run(folder / "run")),
        (ConfigError, lambda folder: training.recipe("finetune-pets").compile(MODELS["resnet"](), microbatches=2)),
        (ConfigError, lambda folder: training.SGD(0.1, gradient_accumulation_steps=2)),
        (ConfigError, lambda folder: training.Adam(0.1, use_ema=True, ema_overwrite_frequency=5)),
    ],
)
def test_what_needs_tensorflow_says_so(error, work, tmp_path):
    with pytest.raises(error, match="works only on Keras' TensorFlow backend. Received: the backend"):
        work(tmp_path)
    assert not list(tmp_path.iterdir())

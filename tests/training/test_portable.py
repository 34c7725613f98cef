"""What works on each of Keras' backends, which test_backends.py chooses, and what says that it does not."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from shaking import shaken
from slowness import slow_but

from keras_vit import export, inference, training, zoo
from keras_vit.errors import ConfigError, ExportError, ImageError
from keras_vit.models import AxialResNet, AxialVisionTransformer, ResNet, VisionTransformer

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


@pytest.mark.slow
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


def test_fit_is_called_again_with_averaged_weights():
    model, (images, labels) = MODELS["vit"](), examples()
    recipe = training.recipe("pretrain-imagenet", batch_size=4, steps=2, dropout_rate=0.0, ema_momentum=0.5)
    recipe.with_(warmup_steps=1).compile(model)
    for _ in range(2):
        model.fit(images[:8], labels[:8], batch_size=4, verbose=0)
        averages = [average.numpy() for average in model.optimizer._model_variables_moving_average]
        for found, average in zip(model.trainable_variables, averages, strict=True):
            np.testing.assert_array_equal(found.numpy(), average)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the other backends change variables in place")
def test_a_run_copies_its_state_out_of_the_loop_at_checkpoints_alone(tmp_path, monkeypatch):
    from keras.src.backend.jax.trainer import JAXTrainer

    steps, copies = [], []
    sync = JAXTrainer.jax_state_sync
    run, model = training.Run(tmp_path / "run", every=4), MODELS["vit"]()

    def note(self):
        if self is model:  # threads of earlier tests may still ask other models
            copies.append(len(steps))
        sync(self)

    monkeypatch.setattr(JAXTrainer, "jax_state_sync", note)
    training.recipe("pretrain-imagenet", batch_size=4, steps=8, warmup_steps=2, dropout_rate=0.0).compile(model)
    images, labels = examples()
    told = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(None))
    run.fit(model, lambda step: tf.data.Dataset.from_tensors((images[:4], labels[:4])).repeat(), 8, 8, callbacks=[told])
    assert len(steps) == 8 and {4, 8} <= set(copies) <= {0, 4, 8}


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch has no microbatches")
@pytest.mark.parametrize("weights", [np.zeros(8, "float32"), None])
def test_microbatches_without_weight_or_weights(weights):
    keras.utils.set_random_seed(0)
    model = MODELS["vit"]()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True, reduction="mean_with_sample_weight"))
    model.microbatches, before = 2, model.get_weights()
    images, labels = examples()
    model.fit(((images[:8], labels[:8], weights) for _ in range(2)), steps_per_epoch=2, verbose=0)
    unchanged = all(map(np.array_equal, model.get_weights(), before))
    assert unchanged == (weights is not None) and all(np.isfinite(weight).all() for weight in model.get_weights())


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


@pytest.mark.slow
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


REFUSED = [
    ({"torch"}, ExportError, lambda folder: export.convert(MODELS["vit"](), folder / "model.tflite")),
    ({"torch"}, ExportError, lambda folder: export.convert(MODELS["vit"](), folder / "saved_model")),
    ({"jax", "torch"}, ConfigError, lambda folder: training.strategy("mirrored")),
    ({"tensorflow", "torch"}, ConfigError, lambda folder: training.strategy("jax")),
    ({"torch"}, ConfigError, lambda folder: training.strategy("auto")),
    ({"torch"}, ConfigError, lambda folder: training.Run(folder / "run")),
    ({"torch"}, ConfigError, lambda folder: training.recipe("finetune-pets").compile(MODELS["vit"](), microbatches=2)),
]


def test_what_needs_another_backend_says_so(tmp_path):
    for backends, error, work in REFUSED:
        if keras.backend.backend() in backends:
            with pytest.raises(error, match="works on Keras' backend .* Received: the backend"):
                work(tmp_path)
    assert not list(tmp_path.iterdir())


PIXELS = np.random.default_rng(1).integers(0, 256, (8, 16, 16, 3)).astype("uint8")
CLASSES = np.arange(8) % 10


def with_a_head(seed=0):
    """A ResNet whose head is not zero, and whose range of inputs differs by channel."""
    preprocessing = {"image_size": (16, 16), "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    keras.utils.set_random_seed(seed)
    model = ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=10, preprocessing=preprocessing)
    model.get_layer("head").kernel.assign(np.random.default_rng(seed).normal(size=(128, 10)))
    model.compile(keras.optimizers.SGD(0.01), training.SoftmaxLoss())
    return model


@pytest.mark.slow
def test_uint8_images_are_normalized_wherever_they_enter():
    model, mean, std = with_a_head(), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    floats = ((PIXELS / 255 - mean) / std).astype("float32")
    expected = logits_of(model, floats)
    around = keras.Model(x := keras.Input((16, 16, 3), dtype="uint8"), model(x))
    found = [logits_of(each, PIXELS) for each in (model, around)] + [model.predict(PIXELS, verbose=0)]
    for logits in (*found, model.predict_on_batch(PIXELS)):
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(*(keras.ops.convert_to_numpy(model.features(x)) for x in (PIXELS, floats)), atol=1e-4)
    losses = []
    for images in (PIXELS, floats):
        model = with_a_head()
        loss = [model.evaluate(images, CLASSES, verbose=0), model.train_on_batch(images, CLASSES)]
        losses.append(loss + model.fit(images, CLASSES, epochs=2, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


def as_arrays(images, labels):
    return images, labels


def as_dataset(images, labels):
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices((images, labels)).batch(4)


def as_generator(images, labels):
    return (pair for pair in [(images[:4], labels[:4]), (images[4:], labels[4:])])


@pytest.mark.slow
@pytest.mark.parametrize("source", [as_arrays, as_dataset, as_generator])
@pytest.mark.parametrize("verb", ["fit", "evaluate", "predict"])
def test_floats_that_are_raw_pixels_are_refused(source, verb):
    model, arguments = with_a_head(), {"verbose": 0}

    def run(images):
        data = source(images, CLASSES)
        given = data[: 1 if verb == "predict" else 2] if isinstance(data, tuple) else (data,)
        return getattr(model, verb)(*given, **arguments)

    for _ in range(2):
        with pytest.raises(
            ImageError, match=r"from -2.1179 to 2.64. Received: float32 from 0 to 255. .*ds.map\(lambda"
        ):
            run(PIXELS.astype("float32"))
        run(np.random.default_rng(0).normal(0, 3, PIXELS.shape).astype("float32"))  # noise, beyond the range
        run(PIXELS)


@pytest.mark.parametrize("source", [as_arrays, pytest.param(as_dataset, marks=pytest.mark.slow)])
def test_raw_pixels_to_validate_on_are_refused(source):
    model = with_a_head()
    with pytest.raises(ImageError, match="Received: float32 from 0 to 255"):
        model.fit(PIXELS, CLASSES, validation_data=source(PIXELS.astype("float32"), CLASSES), verbose=0)
    model.fit(PIXELS, CLASSES, validation_data=source(PIXELS, CLASSES), epochs=2, verbose=0)


def test_threads_ask_one_model():
    model = shaken(MODELS["vit"]())
    images = list(np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), "uint8"))
    with ThreadPoolExecutor(8) as pool:
        predictions = [pool.submit(inference.predict, model, images) for _ in range(8)]
        vectors = [pool.submit(inference.embed, model, images) for _ in range(8)]
    assert [each.result() for each in predictions] == 8 * [inference.predict(model, images)]
    np.testing.assert_array_equal([each.result() for each in vectors], 8 * [inference.embed(model, images)])

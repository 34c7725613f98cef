"""Models of any image size: what the model of each size computes, on both engines, in files and in one ONNX file."""

import keras
import numpy as np
import positions
import pytest
from golden import GOLDEN, logits
from positions import answer, make
from runtimes import RUN

from keras_vit import export, inspection, zoo
from keras_vit.errors import ConfigError
from keras_vit.export.onnx.reading import load_onnx
from keras_vit.export.preparation import make_probe
from keras_vit.models import Preprocessing

pytestmark = pytest.mark.usefixtures("forked_converters")
FREE = (None, None)
SIZES = ((40, 32), (16, 24), (24, 16), (64, 72))
INTERPOLATIONS = ("linear", "bilinear", "bicubic", "bicubic-plain", "dinov2")
HYBRID = {"backbone": {"depths": (1, 1)}, "patch_size": 1}
# One for each kind of position embedding, and for what comes before and after them.
CASES = (
    ("1d", "stem", {"num_registers": 2, "layer_scale": 0.3}),
    ("rope", "stem", {"num_registers": 2}),
    ("1d", "every-layer-shared", {"class_token": True, "classifier": "map"}),
    ("2d", "every-layer", {"classifier": "gap"}),
    ("sincos2d", "stem", {"classifier": "token+gap"}),
    ("none", "stem", {}),
    ("1d", "stem", {**HYBRID, "class_token_position": False}),
)


def any_and_one(folder, kind, place, fields):
    """A model of any size, and a function from a size to the model of that size, of the same file."""
    model = make(kind, place, **fields, **({"image_size": (32, 48)} if "backbone" in fields else {}))
    zoo.save(model, folder / "model.npz")
    return zoo.load(folder / "model.npz", image_size=FREE), lambda size: zoo.load(folder / "model.npz", image_size=size)


def assert_near(found, expected, what):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=str(what))


def test_fit_and_predict_take_one_size_after_another():
    """Also with a last batch that is shorter, when TensorFlow's trace knows neither length nor size."""
    model = zoo.load(GOLDEN / "vit_token.npz", image_size=FREE)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.microbatches = 2
    for size in ((16, 16), (24, 16)):
        images = np.random.default_rng(0).uniform(-1, 1, (6, *size, 3)).astype("float32")
        assert np.isfinite(model.fit(images, np.arange(6), batch_size=2, verbose=0).history["loss"]).all()
        for count in (5, 3):
            found = model.predict(images[:count], batch_size=2, verbose=0)
            assert_near(found, model(images[:count]), (size, count))


@pytest.mark.slow
def test_the_family_is_the_libraries_at_every_size():
    paths = [
        path for path in (GOLDEN / "family").glob("*/model.safetensors") if not path.parent.name.startswith("meta")
    ]
    images, compared = dict(np.load(GOLDEN / "family" / "images.npz")), 0
    for path in paths:
        model = zoo.load(path, image_size=FREE)
        with np.load(path.with_name("io.npz")) as io:
            for size in set(io.files) & set(images):
                assert_near(logits(model, images[size].astype("float32")), io[size], (path.parent.name, size))
                compared += 1
    assert compared > 35


def agrees(model, one, sizes):
    for size in sizes:
        images, fixed = positions.images(size=size), one(size)
        expected = answer(fixed, images)
        assert_near(answer(model, images), expected, size)
        assert_near(model.predict(images, verbose=0), expected, size)  # compiled, of sizes that it was not traced for
        assert_near(model.features(images), fixed.features(images), size)
        assert_near(model.attention(images), fixed.attention(images), size)
        found, wanted = (inspection.features(m, images, as_grid=True) for m in (model, fixed))
        assert_near(found, wanted, size)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_kind_of_position(case, tmp_path):
    agrees(*any_and_one(tmp_path, *CASES[case]), [(32, 48), (64, 32), (48, 80)] if case == len(CASES) - 1 else SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_one_onnx_file_at_twenty_sizes(interpolation, tmp_path):
    fields = {"position_interpolation": interpolation, "classifier": "map", "class_token": True, "pre_norm": True}
    model, one = any_and_one(tmp_path, "1d", "stem", fields)
    export.convert(model, tmp_path / "model.onnx")
    run = load_onnx(tmp_path / "model.onnx")
    for height in (8, 16, 24, 40, 72):
        for width in (8, 24, 32, 80):
            images = positions.images(size=(height, width))
            assert_near(run([images])[0], answer(one((height, width)), images), (height, width))


@pytest.mark.slow
@pytest.mark.parametrize("case", [row for row in CASES if row[0] != "none"], ids=lambda row: f"{row[0]} {row[1]}")
def test_onnx_of_every_kind(case, tmp_path):
    model, _ = any_and_one(tmp_path, *case)
    export.convert(model, tmp_path / "model.onnx")  # which compares three sizes itself
    run = load_onnx(tmp_path / "model.onnx")
    for size in ((32, 48), (80, 16), (48, 48)):
        assert_near(run([positions.images(size=size)])[0], answer(model, positions.images(size=size)), size)
    with pytest.raises(Exception, match="broadcast|cannot be reshaped"):
        run([positions.images(size=(17, 24))])


@pytest.mark.slow
def test_files_are_those_of_the_stored_size(tmp_path):
    model, one = any_and_one(tmp_path, *CASES[0])
    for ending in ("npz", "safetensors", "keras", "weights.h5"):
        zoo.save(model, tmp_path / f"free.{ending}")
        again = zoo.load(tmp_path / f"free.{ending}")
        assert again.input_shape == (None, None, None, 3)
        assert again.config.stored_size == (16, 24)
        assert_near(answer(again, positions.images()), answer(model, positions.images()), ending)
    with np.load(tmp_path / "free.npz") as free, np.load(tmp_path / "model.npz") as fixed:
        assert {name: free[name].shape for name in free} == {name: fixed[name].shape for name in fixed}
    fixed = zoo.load(tmp_path / "free.npz", image_size=(40, 32))
    assert_near(
        answer(fixed, positions.images(size=(40, 32))), answer(one((40, 32)), positions.images(size=(40, 32))), 0
    )


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="compiles nothing")
def test_training_takes_batches_of_several_sizes():
    model = make("1d", image_size=FREE, stored_size=(16, 24))
    model.compile("sgd", "mse")
    before = np.array(model.get_layer("posembed_input").embedding)
    for size in SIZES[:3]:
        model.train_on_batch(positions.images(4, size), np.ones((4, 3)))
    assert (np.array(model.get_layer("posembed_input").embedding) != before).any()


def test_sizes_that_do_not_fit_are_refused():
    model = make("1d", image_size=FREE, stored_size=(16, 24))
    with pytest.raises(ValueError, match=r"8x8 patches(.|\n)*\(1, 17, 24, 3\)"):
        model(positions.images(1, (17, 24)))
    left = make("1d", image_size=FREE, stored_size=(16, 24), drop_remainder=True)
    images = positions.images(2, (23, 33))
    assert_near(answer(left, images), answer(left, images[:, :16, :32]), "remainder")
    for kind, given, sentence in (
        ("relative", {"image_size": FREE}, "Relative position embeddings are of one grid"),
        ("1d", {"image_size": (None, 24)}, "image_size must be"),
        ("1d", {"image_size": FREE, "stored_size": (17, 24)}, "whole number of patches"),
        ("1d", {"image_size": 32, "stored_size": 32}, "stored_size needs image_size=.None, None."),
    ):
        with pytest.raises(ConfigError, match=sentence):
            make(kind, **given)


@pytest.mark.slow
def test_a_saved_model_is_of_any_size_and_tflite_of_one(tmp_path):
    """The probes of the latter have that size, though the preprocessing makes another."""
    model, one = any_and_one(tmp_path, *CASES[1])
    model.preprocessing = Preprocessing((40, 40), mean=(0.4, 0.5, 0.6))
    for name, size, sizes in (("saved", None, SIZES), ("model.tflite", (24, 32), [(24, 32)])):
        export.convert(model, tmp_path / name, image_size=size)
        for size in sizes:
            images = positions.images(size=size)
            assert_near(RUN[name.replace("saved", "model")](tmp_path / name, images), answer(one(size), images), size)


def test_probes_have_the_size_of_the_input():
    for mean in ((0.4, 0.5, 0.6), (0.1,), (0.1, 0.2, 0.3, 0.4)):
        pixels = make_probe((None, 24, 32, len(mean)), 2, "uint8", None)
        preprocessing = Preprocessing((40, 40), mean=mean, std=(0.5,) * len(mean))
        probes = make_probe((None, 24, 32, len(mean)), 2, "float32", preprocessing)
        np.testing.assert_allclose(probes, preprocessing.normalize(pixels.astype("float32")), atol=1e-6)

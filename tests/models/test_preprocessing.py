"""What images become before a model sees them, against Pillow and TensorFlow's own resize."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import models
from keras_vit.data.augment.crops import resize_for_evaluation
from keras_vit.errors import ConfigError, ImageError
from keras_vit.export import predict_script
from keras_vit.export.saved_model.serving import preprocess
from keras_vit.images.pillow import read_image
from keras_vit.models import Preprocessing, VisionTransformer

RNG = np.random.default_rng(0)
IMAGE = np.asarray(Image.fromarray(RNG.integers(0, 255, (12, 16, 3), dtype="uint8")).resize((160, 120)))


def test_a_model_of_one_size_gives_its_preprocessing_that_size():
    fields = {"patch_size": 8, "hidden_size": 8, "num_layers": 1, "num_heads": 1, "mlp_dim": 8, "num_classes": 2}
    given = Preprocessing(mean=(0.1, 0.2, 0.3), crop=0.9)  # of (224, 224)
    model = VisionTransformer(image_size=(16, 24), preprocessing=given, **fields)
    assert model.preprocessing == dataclasses.replace(given, image_size=(16, 24))
    assert VisionTransformer(image_size=(None, None), preprocessing=given, **fields).preprocessing == given


def test_uint8_images_follow_a_preprocessing_that_is_set_after_predict():
    model = VisionTransformer(4, patch_size=4, hidden_size=2, num_layers=1, num_heads=1, mlp_dim=2, num_classes=2)
    model.set_weights([RNG.normal(size=weight.shape) for weight in model.weights])
    images = RNG.integers(0, 256, (2, 4, 4, 3), dtype="uint8")
    before = model.predict(images, verbose=0)
    model.preprocessing = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    expected = model.predict(((images / 255 - [0.1, 0.2, 0.3]) / [0.4, 0.5, 0.6]).astype("float32"), verbose=0)
    assert np.abs(expected - before).max() > 0.1
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)


def test_as_the_authors_evaluate():
    """Straight to the size, bilinear without antialiasing, to [-1, 1]."""
    expected = tf.image.resize(IMAGE[None], (48, 64)).numpy() / 127.5 - 1
    np.testing.assert_allclose(Preprocessing((48, 64))(IMAGE[None]), expected, atol=1e-5)


@pytest.mark.parametrize(("interpolation", "filter"), [("bicubic", "BICUBIC"), ("bilinear", "BILINEAR")])
def test_as_timm_evaluates(interpolation, filter):
    """The short side to size / crop, antialiased, then the middle; within what Pillow rounds to whole pixels."""
    resized = Image.fromarray(IMAGE).resize((85, 64), getattr(Image.Resampling, filter))
    expected = np.asarray(resized)[4:60, 14:70] / 255
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    result = Preprocessing((56, 56), 0.875, interpolation, mean, std)(IMAGE[None])[0]
    scaled = keras.ops.convert_to_numpy(result) * np.array(std) + np.array(mean)
    assert scaled.shape == expected.shape
    assert np.abs(scaled - expected).max() < 2 / 255


@pytest.mark.parametrize(
    ("crop", "interpolation", "filter", "most"),
    [
        (1.0, "lanczos3", "LANCZOS", 1),
        (0.875, "lanczos3", "LANCZOS", 1),
        (0.875, "nearest", "NEAREST", 0),
        (1.0, "bilinear", "BILINEAR", 1),
        (0.875, "bilinear", "BILINEAR", 1),
    ],
)
def test_squashed(crop, interpolation, filter, most):
    """Both sides to size / crop, antialiased, then the middle: transformers' processors and timm's "squash"."""
    side = {1.0: 56, 0.875: 64}[crop]
    resized = np.asarray(Image.fromarray(IMAGE).resize((side, side), getattr(Image.Resampling, filter)))
    begin = (side - 56) // 2
    expected = resized[begin : begin + 56, begin : begin + 56].astype(float)
    preprocessing = Preprocessing((56, 56), crop, interpolation, (0.0,) * 3, (1.0,) * 3, "squash")
    result = keras.ops.convert_to_numpy(preprocessing(IMAGE[None]))[0] * 255
    assert np.abs(result - expected).max() <= most + 1e-3


HARD = {  # black beside white
    "noise": RNG.integers(0, 2, (60, 80, 3)).astype("uint8") * 255,
    "blocks": np.kron(RNG.integers(0, 2, (15, 20, 1)), np.ones((4, 4, 3))).astype("uint8") * 255,
}


@pytest.mark.parametrize("image", HARD)
@pytest.mark.parametrize(("interpolation", "filter"), [("bicubic", "BICUBIC"), ("lanczos3", "LANCZOS")])
@pytest.mark.parametrize("size", [(30, 44), (100, 130), (60, 50)])
def test_edges_do_not_leave_the_range_of_pixels(size, image, interpolation, filter):
    """As in Pillow, which rounds twice; wherever an image becomes an input: in Keras, tf.data, NumPy, SavedModels."""
    image = HARD[image]
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], getattr(Image.Resampling, filter))).astype(float)
    rules = Preprocessing(size, 1.0, interpolation, (0.0,) * 3, (1.0,) * 3, "squash")
    found = {
        "Keras": keras.ops.convert_to_numpy(rules(image[None])[0]) * 255,
        "tf.data": resize_for_evaluation(tf.constant(image), rules).numpy(),
        "NumPy": predict_script.preprocess(image, **dataclasses.asdict(rules)) * 255,
        "SavedModel": preprocess(tf.constant(image[None]), rules)[0].numpy() * 255,
    }
    for name, pixels in found.items():
        assert pixels.min() >= 0 and pixels.max() <= 255.001, name
        assert np.abs(pixels - expected).max() < 1.5, name


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the other backends compile nothing for a size")
def test_pictures_of_another_size_are_not_compiled_for():
    import jax

    compiled, rules = [], Preprocessing((24, 32), 1.0, "bilinear", (0.0,) * 3, (1.0,) * 3, "squash")
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **about: compiled.append(name))
    for size in ((120, 160), (97, 131), (50, 20)):
        pictures = np.stack([np.resize(IMAGE, (*size, 3)), np.resize(IMAGE[::-1], (*size, 3))])
        expected = [Image.fromarray(x).resize((32, 24), Image.Resampling.BILINEAR) for x in pictures]
        found = np.asarray(rules(pictures)) * 255
        assert compiled or size != (120, 160)
        assert not compiled or size == (120, 160)
        np.testing.assert_allclose(found, np.stack(expected).astype("float32"), atol=1.01)
        compiled.clear()


@pytest.mark.parametrize(("height", "width"), [(427, 640), (640, 427), (200, 301), (301, 200), (256, 512)])
def test_sizes_are_rounded_as_torchvision_does(height, width):
    """The short side to 224 / 0.9 rounded down; the long one cut off to whole pixels (torchvision's Resize)."""
    short, long = sorted((height, width))
    expected = (248, int(248 * long / short))
    found = Preprocessing((224, 224), 0.9).size_before_crop(height, width)
    assert found == (expected if height < width else expected[::-1])


def test_one_channel():
    grey = Preprocessing((8, 8), mean=(0.5,), std=(0.5,))(np.full((2, 20, 30, 1), 255, "uint8"))
    np.testing.assert_array_equal(grey, np.ones((2, 8, 8, 1)))


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


def test_keras_own_order_of_axes_changes_nothing(channels_first):
    image = np.random.default_rng(0).integers(0, 256, (1, 60, 90, 3), "uint8")
    assert np.shape(Preprocessing((32, 48), crop=0.9)(image)) == (1, 32, 48, 3)
    fields = {"image_size": 64, "patch_size": 2, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
    hybrid = models.VisionTransformer(**fields, backbone={"depths": (1,)}, num_classes=3)
    resnet = models.ResNet(image_size=64, depths=(1, 1), width_factor=0.5, num_classes=3)
    for model in (hybrid, resnet):
        again = model.from_config(model.get_config())
        assert model(np.zeros((2, 64, 64, 3), "float32")).shape == (2, 3)
        assert {layer.data_format for layer in again.layers if hasattr(layer, "data_format")} == {"channels_last"}


@pytest.mark.parametrize("one", [1, 1.0, np.float32(1), True + 0])
def test_whole_numbers_for_mean_and_deviation(one):
    pixels = np.full((1, 4, 4, 3), 51, "uint8")
    whole = Preprocessing((4, 4), mean=(0, 0.0, 0), std=[one, one, one])
    np.testing.assert_allclose(whole(pixels), np.full((1, 4, 4, 3), 0.2), atol=1e-6)
    assert json.loads(json.dumps(dataclasses.asdict(whole)))["std"] == [1.0, 1.0, 1.0]


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "fields",
    [
        {"crop": 0.0},
        {"crop": 1.5},
        {"crop": 1e-300},
        {"crop": "all"},
        {"crop": True},
        {"crop": NAN},
        {"interpolation": "lanczos"},
        {"crop_mode": "border"},
        {"interpolation": ["bilinear"]},
        {"std": (0, 0.5, 0.5)},
        {"std": (-0.5, 0.5, 0.5)},
        {"std": (NAN, 0.5, 0.5)},
        {"std": (INFINITE, 0.5, 0.5)},
        {"std": (1e-50, 0.5, 0.5)},
        {"std": (False, 0.5, 0.5)},
        {"std": (0.5, 0.5)},
        {"std": (), "mean": ()},
        {"mean": (NAN, 0.5, 0.5)},
        {"mean": (-INFINITE, 0.5, 0.5)},
        {"mean": (1e300, 0.5, 0.5)},
        {"mean": ("0.5", 0.5, 0.5)},
        {"mean": "abc"},
        {"mean": 0.5},
        {"mean": None},
        {"mean": {0.5: 1}},
        {"mean": ((0.5,), 0.5, 0.5)},
        {"image_size": 10**9},
        {"image_size": (10**30, 1)},
        {"image_size": (224, True)},
        {"image_size": (224, 0)},
        {"image_size": "large"},
    ],
)
def test_impossible_preprocessing(fields):
    with pytest.raises(ConfigError, match="Received"):
        Preprocessing(**fields)


@pytest.mark.parametrize("preprocessing", [Preprocessing(), {"mean": (0.5,) * 4, "std": (0.5,) * 4}, "paper"])
def test_preprocessing_of_another_model(preprocessing):
    with pytest.raises(ConfigError, match="of 1 channels"):
        VisionTransformer(8, 4, 8, 1, 2, 8, num_channels=1, preprocessing=preprocessing)


def test_pictures_are_turned_upright_and_coloured(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    Image.fromarray(IMAGE).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert read_image(tmp_path / "turned.jpg").shape == (160, 120, 3)
    Image.fromarray(IMAGE).convert("P").save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png").shape == (120, 160, 3)
    assert read_image(tmp_path / "palette.png", num_channels=1).shape == (120, 160, 1)


def test_pictures_of_other_depths(tmp_path):
    grey = np.linspace(0, 65535, 40 * 30).reshape(40, 30).astype("uint16")
    Image.fromarray(grey).save(tmp_path / "scan.png")
    for channels in (1, 3):
        np.testing.assert_array_equal(read_image(tmp_path / "scan.png", channels)[..., 0], grey >> 8)
    Image.fromarray(IMAGE).convert("RGBA").save(tmp_path / "clear.png")
    assert read_image(tmp_path / "clear.png", num_channels=4).shape == (120, 160, 4)
    with pytest.raises(ConfigError, match="The model takes 5"):
        read_image(tmp_path / "clear.png", num_channels=5)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([np.zeros((8, 8, 3), "uint8"), np.zeros((8, 9, 3), "uint8")], "images of one size at a time"),
        (np.zeros((1, 0, 8, 3), "uint8"), r"Received: \(1, 0, 8, 3\)"),
    ],
)
def test_images_of_no_common_size_and_of_no_pixels(images, message):
    with pytest.raises(ImageError, match=message):
        Preprocessing((8, 8))(images)


def test_a_tensor_of_floats_up_to_1():
    for images in (np.full((1, 8, 8, 3), 0.5), keras.ops.full((1, 8, 8, 3), 0.5)):
        with pytest.raises(ImageError, match="Multiply it by 255"):
            Preprocessing((8, 8))(images)


def test_a_picture_too_narrow_to_resize():
    with pytest.raises(ImageError, match="1 x 20000 pixels is too elongated"):
        Preprocessing((224, 224), crop=0.875)(np.zeros((1, 1, 20_000, 3), "uint8"))


def test_pictures_that_are_none(tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(ImageError, match=r"text.jpg cannot be read as an image"):
        read_image(tmp_path / "text.jpg")
    with pytest.raises(ImageError, match="There is no image"):
        read_image(tmp_path / "absent.jpg")
    with pytest.raises(ImageError, match="cannot be read as an image"):
        read_image(tmp_path)


def test_a_picture_too_large(tmp_path):
    """A bomb of a few kilobytes is refused from its header."""
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    with pytest.raises(ImageError, match="pixels"):
        read_image(tmp_path / "bomb.png")

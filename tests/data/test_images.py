"""Reading, cropping and resizing, against Pillow and numpy."""

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from photographs import china, encode
from PIL import Image

from keras_vit import data
from keras_vit.data.augment import augmentations, crops
from keras_vit.data.reading import order, sources
from keras_vit.images.pillow import read_image
from keras_vit.models import Preprocessing


@pytest.fixture(scope="module")
def photo():
    return china()


def draws(count):
    key = order.run_key(7)
    return [order.example_seed(key, epoch, 3) for epoch in range(count)]


def bilinear(image, height, width):
    """Half-pixel centres, no antialiasing: numpy's own, of float64."""
    for axis, size in ((0, height), (1, width)):
        length = image.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, length - 1)
        share = np.expand_dims(at - low, tuple(i for i in range(image.ndim) if i != axis))
        image = np.take(image, low, axis) * (1 - share) + np.take(image, high, axis) * share
    return image


@pytest.mark.parametrize("kind, tolerance", [("PNG", 0), ("BMP", 0), ("GIF", 0), ("JPEG", 1.5)])
def test_pixels_are_pillows(photo, kind, tolerance):
    pixels = photo[:101, :67]
    if kind == "GIF":
        pixels = pixels // 64 * 64 * (np.arange(3) == 0)  # so few colours that the palette holds them all
    content = encode(pixels.astype("uint8"), kind)
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    read = sources.decode_part(tf.constant(content), sources.whole_image, 3).numpy().astype(int)
    assert np.abs(read - expected).mean() <= tolerance  # TensorFlow's default inverse transform is the fast one
    box = tf.constant([10, 7, 50, 33])
    part = sources.decode_part(tf.constant(content), lambda shape: box, 3).numpy()
    assert np.abs(part - read[10:60, 7:40]).mean() <= tolerance / 10


@pytest.mark.parametrize("channels, kind", [(1, "JPEG"), (1, "PNG"), (3, "JPEG"), (3, "PNG")])
def test_grey_and_colour(photo, channels, kind):
    for pixels in (photo[:20, :30], photo[:20, :30, 0]):
        read = sources.decode_part(tf.constant(encode(pixels, kind)), sources.whole_image, channels)
        assert read.shape == (20, 30, channels)


def test_training_images_are_the_part_resized(photo):
    """The official code's: a bilinear resize of the part, without antialiasing; numpy's gives the same."""
    inception = augmentations.find_augmentation("inception")
    for draw in draws(4):
        box = crops.training_box(tf.constant(photo.shape[:2]), inception, draw).numpy()
        part = photo[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]
        expected = bilinear(part.astype(float), 48, 64)
        image = crops.resize_for_training(tf.constant(part), inception, (48, 64), draw).numpy()
        flipped = image[:, ::-1]
        assert min(np.abs(image - expected).max(), np.abs(flipped - expected).max()) < 0.01


@pytest.mark.slow
def test_statistics_of_inception_crops():
    shape, inception = tf.constant([375, 500]), augmentations.find_augmentation("inception")

    @tf.function
    def boxes(keys):
        return tf.map_fn(lambda k: crops.training_box(shape, inception, k), keys, fn_output_signature=tf.int32)

    keys = order.run_key(0) // 2 + tf.range(2000, dtype=tf.int64)
    found = boxes(tf.stack([keys, tf.zeros_like(keys)], 1)).numpy()
    top, left, height, width = found.T
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= 375).all() and (left + width <= 500).all()
    area = height * width / (375 * 500)
    assert 0.048 < area.min() < 0.08 and 0.9 < area.max() <= 1
    assert 0.28 < area.mean() < 0.4  # the op draws the height evenly, not the area
    ratio = width / height
    assert ratio.min() > 0.74 and ratio.max() < 1.34
    assert abs(np.mean(top + height / 2) / 375 - 0.5) < 0.02
    assert abs(np.mean(left + width / 2) / 500 - 0.5) < 0.02


def test_half_of_the_images_are_mirrored():
    image = tf.constant(np.tile(np.arange(8, dtype="uint8")[None, :, None], (8, 1, 3)))
    for row in (data.Augmentation("resize_crop", resize=8), data.Augmentation("resize")):
        mirrored = [crops.resize_for_training(image, row, (8, 8), draw)[0, 0, 0] > 3 for draw in draws(200)]
        assert 0.38 < np.mean(mirrored) < 0.62
    never = data.AUGMENTATIONS["none"]
    assert not any(crops.resize_for_training(image, never, (8, 8), draw)[0, 0, 0] > 3 for draw in draws(20))


def test_shifts_by_up_to_an_eighth():
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), "uint8")
    larger = np.pad(image.astype("float32"), ((2, 2), (2, 2), (0, 0)), mode="reflect")
    views = {(y, x): larger[y : y + 16, x : x + 16] for y in range(5) for x in range(5)}
    seen = {"shift": set(), "pad-crop": set()}
    for name in seen:
        for draw in draws(60):
            part = crops.resize_for_training(tf.constant(image), data.AUGMENTATIONS[name], (16, 16), draw).numpy()
            matches = [
                (key, turned) for key, view in views.items() for turned in (1, -1) if (view[:, ::turned] == part).all()
            ]
            assert len(matches) == 1, name
            seen[name].update(matches)
    assert {turned for _, turned in seen["shift"]} == {1} and len(seen["shift"]) > 15
    assert {turned for _, turned in seen["pad-crop"]} == {1, -1}


@pytest.mark.parametrize("crop, shape", [("resize_crop", (32, 32)), ("resize_small_crop", (32, 43))])
def test_random_parts_of_a_larger_resize(photo, crop, shape):
    row = data.Augmentation(crop, resize=32, flip=False)
    larger = tf.image.resize(photo[:300, :400], shape, antialias=crop == "resize_small_crop").numpy()
    offsets = set()
    for draw in draws(30):
        part = crops.resize_for_training(tf.constant(photo[:300, :400]), row, (28, 28), draw).numpy()
        matches = [
            (y, x)
            for y in range(shape[0] - 27)
            for x in range(shape[1] - 27)
            if np.abs(larger[y : y + 28, x : x + 28] - part).max() < 1e-3
        ]
        offsets.update(matches)
        assert matches
    assert len(offsets) > 15
    with pytest.raises(data.DataError, match="larger resize"):
        crops.resize_for_training(tf.constant(photo), row, (48, 48), draws(1)[0])


@pytest.mark.parametrize("size, pad", [((16, 24), (2, 3)), ((7, 8), (0, 1))])
def test_pad_crop_is_every_part_of_the_reflected_image(photo, size, pad):
    """Padding of 1/8 of each side, rounded down; each offset comes, and no other part."""
    row = dataclasses.replace(data.AUGMENTATIONS["pad-crop"], flip=False)
    whole = bilinear(photo[:64, :96].astype(float), *size)
    padded = np.pad(whole, ((pad[0],) * 2, (pad[1],) * 2, (0, 0)), mode="reflect")
    parts = {
        (y, x): padded[y : y + size[0], x : x + size[1]] for y in range(2 * pad[0] + 1) for x in range(2 * pad[1] + 1)
    }
    found = {offset: 0 for offset in parts}
    for draw in draws(12 * len(parts)):
        part = crops.resize_for_training(tf.constant(photo[:64, :96]), row, size, draw).numpy()
        (offset,) = (offset for offset, expected in parts.items() if np.abs(expected - part).max() < 1e-3)
        found[offset] += 1
    assert min(found.values()) > 0
    assert data.AUGMENTATIONS["pad-crop"].flip and data.AUGMENTATIONS["pad-crop"].mixup == 0


@pytest.mark.parametrize(
    ("crop", "interpolation", "mode"),
    [
        (None, "bilinear", "center"),
        (None, "bicubic", "center"),
        (0.875, "bilinear", "center"),
        (0.875, "bicubic", "center"),
        (1.0, "bilinear", "center"),
        (1.0, "bicubic", "center"),
        (0.9, "lanczos3", "center"),
        (0.9, "nearest", "center"),
        (1.0, "bilinear", "squash"),
        (0.9, "lanczos3", "squash"),
    ],
)
def test_evaluation_is_the_models_preprocessing(photo, crop, interpolation, mode):
    size = Preprocessing((48, 64), crop, interpolation, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), mode)
    for pixels in (photo[:300], photo[:50, :30]):
        image = crops.normalize_or_round(crops.resize_for_evaluation(tf.constant(pixels), size), size, "float32")
        np.testing.assert_allclose(image, size(pixels[None])[0], atol=2e-5)


def test_evaluation_resize_is_bilinear_without_antialiasing(photo):
    image = crops.resize_for_evaluation(tf.constant(photo), Preprocessing((48, 64))).numpy()
    np.testing.assert_allclose(image, bilinear(photo.astype(float), 48, 64), atol=0.01)


def test_uint8_is_float_rounded(tmp_path):
    size = Preprocessing((16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    examples = data.load("digits")
    (floats, _), (whole, _) = (next(iter(examples.train(8, size, dtype=dtype))) for dtype in ("float32", "uint8"))
    again = (whole.numpy() / 255.0 - size.mean) / size.std
    assert np.abs(again - floats).max() <= 0.5 / 255 / 0.2 + 1e-6


@pytest.mark.slow
def test_a_folders_image_reads_as_in_prediction(photo, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(photo[: 200 + i]).save(tmp_path / name / f"{i}.png")
    examples = data.load(f"folder:{tmp_path}", "train+validation")
    size = Preprocessing((32, 32))
    images, labels, _ = next(iter(examples.evaluation(4, size)))
    np.testing.assert_array_equal(labels, [0, 0, 1, 1])
    np.testing.assert_allclose(images[2], size(read_image(tmp_path / "b" / "0.png")[None])[0], atol=1e-5)


def test_hyper_rule():
    """Section 3.3 of arXiv 1912.11370: 160 cropped to 128, 448 to 384, and for R152x4 512 to 480."""
    assert data.hyper_rule_sizes(95, 97) == data.hyper_rule_sizes(32, 32, "R152x4") == (160, 128)
    assert data.hyper_rule_sizes(96, 96) == data.hyper_rule_sizes(400, 300, "R152x2") == (448, 384)
    assert data.hyper_rule_sizes(400, 300, "R152x4") == (512, 480)
    assert (data.AUGMENTATIONS["bit-small"].resize, data.AUGMENTATIONS["bit-large"].resize) == (160, 512)


@pytest.mark.parametrize("size, side", [(384, 448), (224, 261), (512, 597), (518, 604)])
def test_the_papers_crop_is_of_a_larger_square(size, side):
    """448 pixels for 384 (Kolesnikov et al.), in proportion for other sizes."""
    image, row = tf.zeros((300, 400, 3), tf.uint8), data.AUGMENTATIONS["bit"]
    (height, width), _ = crops.size_before_random_crop(image, row, (size, size))
    assert (height, width) == (side, side)

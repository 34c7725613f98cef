"""RandAugment against Pillow, mixup and cutmix against their definitions, the rows."""

import numpy as np
import pytest
import tensorflow as tf
from photographs import flower
from PIL import Image, ImageEnhance, ImageOps

from keras_vit import data
from keras_vit.data.augment import mixing, randaugment
from keras_vit.data.reading import order
from keras_vit.images.operations import OPERATIONS, measure

CENTRE = (0.5, 0.5)


@pytest.fixture(scope="module")
def photo():
    return flower()[100:164, 200:280]


def draw_of(name, side=0, centre=CENTRE):
    """The draw of an operation, to one side or the other."""
    return ((list(OPERATIONS).index(name) + 0.5) / len(OPERATIONS), side, *centre)


def applied(name, photo, strength, **given):
    height, width = photo.shape[:2]
    measured = measure(10 * strength, height, width)
    chosen = randaugment.choose(tf.constant(draw_of(name, **given)), measured, height, width)
    image = randaugment.apply_one(tf.constant(photo, tf.float32), measured, *chosen).numpy()
    assert image.dtype == np.float32 and image.shape == photo.shape
    assert image.min() >= 0 and image.max() <= 255 and (image == np.floor(image)).all()
    return image


def enhanced(kind):
    return lambda image, strength: getattr(ImageEnhance, kind)(image).enhance(1.8 * strength + 0.1)


PILLOWS = {
    "autocontrast": lambda p, s: ImageOps.autocontrast(p),
    "equalize": lambda p, s: ImageOps.equalize(p),
    "invert": lambda p, s: ImageOps.invert(p),
    "posterize": lambda p, s: ImageOps.posterize(p, min(8, int(4 * s))),
    "solarize": lambda p, s: ImageOps.solarize(p, int(256 * s)),
    "color": enhanced("Color"),
    "brightness": enhanced("Brightness"),
    "sharpness": enhanced("Sharpness"),
}


@pytest.mark.parametrize("strength", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("name", PILLOWS)
def test_operations_are_pillows(name, strength, photo):
    expected = np.asarray(PILLOWS[name](Image.fromarray(photo), strength)).astype(int)
    difference = np.abs(applied(name, photo, strength) - expected)
    # Grey and smoothed images are rounded to whole numbers, here down; the blend multiplies that.
    extrapolation = np.ceil(abs(1.8 * strength - 0.9)) if name in ("color", "sharpness") else 0
    assert difference.max() <= 1 + extrapolation


def test_contrast_blends_with_the_sources_grey(photo):
    grey = min(255, photo.shape[0] * photo.shape[1] // 256)
    expected = np.clip(grey + 1.0 * (photo.astype(float) - grey), 0, 255)
    assert np.abs(applied("contrast", photo, 0.5) - expected).max() <= 1


def test_solarize_add(photo):
    added = np.minimum(photo.astype(int) + 55, 255)
    np.testing.assert_array_equal(applied("solarize_add", photo, 0.5), np.where(photo < 128, added, photo))


def affine(photo, matrix):
    image = Image.fromarray(photo).transform((80, 64), Image.Transform.AFFINE, matrix, fillcolor=(128, 128, 128))
    return np.asarray(image).astype(int)


@pytest.mark.parametrize(
    "name, matrix",
    [
        ("shear_x", lambda v: (1, 0.3 * v, 0, 0, 1, 0)),
        ("shear_y", lambda v: (1, 0, 0, 0.3 * v, 1, 0)),
        ("translate_x", lambda v: (1, 0, 100 * v, 0, 1, 0)),
        ("translate_y", lambda v: (1, 0, 0, 0, 1, 100 * v)),
    ],
)
def test_moves_are_pillows_to_either_side(name, matrix, photo):
    for side, sign in ((0, -1), (0.49, -1), (0.5, 1), (0.99, 1)):
        image = applied(name, photo, 0.5, side=side)
        scores = {sign: np.mean(image == affine(photo, matrix(sign * 0.5))) for sign in (-1, 1)}
        # Pillow samples at pixel centres, the source's op at corners: nearest pixels differ along lines.
        assert max(scores, key=scores.get) == sign and scores[sign] > 0.6


def test_rotation_about_the_centre(photo):
    image = applied("rotate", photo, 1.0)
    sides = [np.asarray(Image.fromarray(photo).rotate(a, fillcolor=(128, 128, 128))).astype(int) for a in (-30, 30)]
    assert max(np.mean(np.abs(image - side) < 24) for side in sides) > 0.85
    np.testing.assert_array_equal(applied("rotate", photo, 0.0), photo)


def test_cutout_is_a_grey_square(photo):
    for centre, rows, columns in ((CENTRE, (24, 40), (32, 48)), ((0.0, 0.99), (0, 8), (71, 80))):
        expected = photo.copy()
        expected[slice(*rows), slice(*columns)] = 128
        np.testing.assert_array_equal(applied("cutout", photo, 0.2, centre=centre), expected)


def test_every_operation_is_chosen_evenly():
    count = len(OPERATIONS)
    numbered = measure(10, 2, 2)._replace(kinds=np.arange(count))
    seeds = [(order.run_key(0) // 2, 64 * i) for i in range(800)]
    draws = tf.stack([randaugment.draw(2, tf.constant(seed, tf.int64)) for seed in seeds])
    for chosen in np.moveaxis(randaugment.choose(draws, numbered, 2, 2)[0].numpy(), 1, 0):
        counts = np.bincount(chosen, minlength=count)
        assert counts.min() > 25 and counts.max() < 80
    assert abs(np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 20, 3), (16, 20, 1)])
def test_randaugment_in_a_dataset(shape):
    images = np.random.default_rng(0).integers(0, 256, (40, *shape)).astype("float32")
    draws = tf.data.Dataset.range(40).map(lambda i: tf.stack([7, i * 64]))
    augmented = tf.data.Dataset.zip(tf.data.Dataset.from_tensor_slices(images), draws)
    augmented = augmented.map(lambda image, draw: randaugment.apply(image, 2, 15, draw))
    assert augmented.element_spec == tf.TensorSpec(shape, tf.float32)
    first, again = (np.stack(list(augmented.as_numpy_iterator())) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.mean([(a != b).any() for a, b in zip(first, images, strict=True)]) > 0.8


def batch(count=6):
    rng = np.random.default_rng(0)
    return tf.constant(rng.uniform(0, 255, (count, 12, 10, 3)), tf.float32), tf.range(count)


def mixed(row, step, **options):
    images, labels = batch()
    return (x.numpy() for x in mixing.mix(images, labels, row, 6, order.run_key(0), tf.constant(step, tf.int64)))


def test_mixup_is_a_weighted_mean_with_the_neighbour():
    images, _ = batch()
    weights = []
    for step in range(20):
        result, labels = mixed(data.Augmentation(mixup=0.2), step)
        weight = labels[0, 0]
        weights.append(weight)
        np.testing.assert_allclose(result, weight * images + (1 - weight) * np.roll(images, 1, 0), atol=1e-3)
        np.testing.assert_allclose(labels, weight * np.eye(6) + (1 - weight) * np.roll(np.eye(6), 1, 0), atol=1e-6)
    assert min(weights) >= 0.5 and max(weights) <= 1 and len(set(weights)) > 10


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.8])
def test_weights_are_of_the_beta_distribution(alpha):
    from scipy import stats

    seeds = [tf.constant([3, 8 * i], tf.int64) for i in range(600)]
    weights = np.array([mixing.draw_weight(alpha, seed).numpy() for seed in seeds])
    folded = np.random.default_rng(0).beta(alpha, alpha, 5000)
    assert stats.ks_2samp(weights, np.maximum(folded, 1 - folded).astype("float32")).pvalue > 1e-4


def test_cutmix_pastes_a_rectangle_and_counts_it():
    images, _ = batch()
    shares = []
    for step in range(20):
        result, labels = mixed(data.Augmentation(cutmix=1.0), step)
        pasted = (result == np.roll(images, 1, 0)).all(-1)
        assert (pasted == pasted[0]).all()
        rows, columns = pasted[0].any(1), pasted[0].any(0)
        np.testing.assert_array_equal(pasted[0], rows[:, None] & columns[None])
        np.testing.assert_array_equal(result[:, ~pasted[0]], images.numpy()[:, ~pasted[0]])
        np.testing.assert_allclose(labels[1, 0], pasted[0].mean(), atol=1e-6)
        np.testing.assert_allclose(labels.sum(1), 1, atol=1e-6)
        shares.append(pasted[0].mean())
    assert max(shares) <= 0.5 + 0.1 and len(set(shares)) > 5


def test_both_take_turns_by_chance():
    images, _ = batch()
    row = data.Augmentation(mixup=0.8, cutmix=1.0)
    pasted = [bool((next(mixed(row, step)) == images.numpy()).any()) for step in range(30)]
    assert 5 < sum(pasted) < 25


def test_rows_of_augreg():
    levels = {
        name: data.AUGMENTATIONS[name] for name in ("light1", "light2", "medium1", "medium2", "strong1", "strong2")
    }
    assert [(row.randaugment, row.mixup) for row in levels.values()] == [
        ((2, 0), 0.0),
        ((2, 10), 0.2),
        ((2, 15), 0.2),
        ((2, 15), 0.5),
        ((2, 20), 0.5),
        ((2, 20), 0.8),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"crop": "centre"},
        {"area": (0.0, 1.0)},
        {"area": (0.5, 0.2)},
        {"ratio": (0, 1)},
        {"mixup": -0.1},
        {"randaugment": (0, 10)},
        {"randaugment": (2, 31)},
    ],
)
def test_rows_that_cannot_be(options):
    with pytest.raises(data.DataError, match="must be"):
        data.Augmentation(**options)

"""What masked patch prediction corrupts and asks for (Appendix B.1.2), against counting and numpy in float64."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data
from keras_vit.data.augment import corruption
from keras_vit.data.reading import order
from keras_vit.models import Preprocessing

PATCHES, COUNT, DRAWS = 16, 8, 6000
SEED = tf.constant([5, 64], tf.int64)


@pytest.fixture(scope="module")
def drawn():
    """(places (draws, COUNT), sources (draws, PATCHES)) of many examples."""
    key = order.run_key(0)

    def draw(i):
        return corruption.draw_corruption(PATCHES, COUNT, order.example_seed(key, i % 3, i))

    places, sources = next(iter(tf.data.Dataset.range(DRAWS).map(draw).batch(DRAWS)))
    return places.numpy(), sources.numpy()


def spread(share, n):
    """Four standard deviations of a share counted among n."""
    return 4 * np.sqrt(share * (1 - share) / n)


def test_exactly_so_many_patches_are_corrupted_and_each_as_often(drawn):
    places, sources = drawn
    assert (np.diff(places, axis=1) > 0).all() and places.min() == 0 and places.max() == PATCHES - 1
    often = np.bincount(places.ravel(), minlength=PATCHES) / DRAWS
    assert np.abs(often - COUNT / PATCHES).max() < spread(COUNT / PATCHES, DRAWS)
    kept = np.ones(sources.shape, bool)
    np.put_along_axis(kept, places, False, 1)
    np.testing.assert_array_equal(sources[kept], np.where(kept)[1])


def test_eighty_ten_ten(drawn):
    places, sources = drawn
    found = np.take_along_axis(sources, places, 1)
    n = found.size
    shares = {"masked": (found == -1), "kept": (found == places), "other": (found != -1) & (found != places)}
    for name, expected in (("masked", 0.8), ("kept", 0.1), ("other", 0.1)):
        assert abs(shares[name].mean() - expected) < spread(expected, n), name
    # Whose embedding replaces one: each of the other patches as often.
    distance = (found - places)[shares["other"]] % PATCHES
    often = np.bincount(distance, minlength=PATCHES) / len(distance)
    assert often[0] == 0 and np.abs(often[1:] - 1 / (PATCHES - 1)).max() < spread(1 / (PATCHES - 1), len(distance))
    # None stands for two others: such gradients would add up in an order that a GPU does not fix.
    for row, other in zip(found[:200], shares["other"][:200], strict=True):
        assert len(set(row[other])) == other.sum()
    # Patches of one image are drawn apart from each other.
    both = (shares["masked"][:, 0] & shares["masked"][:, 1]).mean()
    assert abs(both - 0.64) < spread(0.64, DRAWS)


def overlaps(length, parts):
    """(parts, length): the share of each pixel in each of so many equal parts of a length, rows adding up to 1."""
    edges = np.linspace(0, length, parts + 1)
    pixel = np.arange(length)
    shared = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.clip(shared, 0, None) * parts / length


def colours_by_hand(image, patch, side):
    """(class numbers (patches, side * side), whether each lies clearly inside its colour)."""
    (ph, pw), image = patch, image.astype("float64")
    numbers, clear = [], []
    for top, left in itertools.product(range(0, image.shape[0], ph), range(0, image.shape[1], pw)):
        part = image[top : top + ph, left : left + pw]
        mean = np.einsum("ih,hwc,jw->ijc", overlaps(ph, side), part, overlaps(pw, side)).reshape(-1, 3)
        r, g, b = np.minimum(mean // 32, 7).astype(int).T
        numbers.append(64 * r + 8 * g + b)
        edge = np.round(mean / 32)
        clear.append(((np.abs(mean / 32 - edge) > 1e-4) | (edge == 0)).all(-1))
    return np.array(numbers), np.array(clear)


@pytest.mark.parametrize("patch", [(4, 4), (14, 14), (16, 8), (7, 5)])
@pytest.mark.parametrize("target", ["mean-colour", "colours-4x4"])
def test_colours_are_the_means_of_three_bits(patch, target):
    objective = data.MaskedPatches(patch, target, rate=1.0)
    size = (3 * patch[0], 2 * patch[1])
    # Smooth and bright parts too, so that all of the 8 levels come up.
    rng = np.random.default_rng(0)
    image = np.clip(rng.uniform(0, 255, 3) * rng.uniform(0, 2, (*size, 1)) + rng.normal(0, 9, (*size, 3)), 0, 255)
    image[: patch[0], : patch[1]] = 255
    inputs, targets = corruption.corrupt_patches(image.astype("float32"), objective, Preprocessing(size), SEED)
    expected, clear = colours_by_hand(image, patch, objective.side)
    np.testing.assert_array_equal(inputs["places"], range(6))
    assert targets.dtype == tf.int32 and tuple(targets.shape) == (6, *objective.target_shape)
    found = targets.numpy().reshape(6, -1)
    np.testing.assert_array_equal(found[clear], expected[clear])
    assert clear.mean() > 0.9 and found[0].tolist() == [511] * objective.side**2


def test_pixels_are_those_that_the_model_receives():
    size, patch = (12, 10), (4, 5)
    image = np.random.default_rng(0).uniform(0, 255, (*size, 3)).astype("float32")
    preprocessing = Preprocessing(size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    objective = data.MaskedPatches(patch, "pixels", rate=0.5)
    inputs, targets = corruption.corrupt_patches(image, objective, preprocessing, SEED)
    normal = (image.astype("float64") / 255 - preprocessing.mean) / preprocessing.std
    np.testing.assert_allclose(inputs["images"], normal, atol=1e-5)
    for place, found in zip(inputs["places"].numpy(), targets.numpy(), strict=True):
        top, left = place // 2 * 4, place % 2 * 5
        np.testing.assert_allclose(found, normal[top : top + 4, left : left + 5].ravel(), atol=1e-5)


@pytest.mark.slow
def test_batches_are_the_same_from_any_step_and_on_any_number_of_hosts():
    digits = data.load("digits").with_objective(data.MaskedPatches(4))
    small = Preprocessing((16, 16))

    def batches(**arguments):
        found = digits.train(8, small, seed=3, **arguments)
        return [tf.nest.flatten(tf.nest.map_structure(np.asarray, batch)) for batch in found]

    whole = batches(steps=3)
    for host in range(2):
        context = tf.distribute.InputContext(2, host, 2)
        part = batches(start=2, steps=3, context=context)[0]
        for a, b in zip(whole[2], part, strict=True):
            np.testing.assert_array_equal(a[4 * host : 4 * host + 4], b)
    # Another visit of an image corrupts other patches; every evaluation the same.
    assert (whole[0][1] != whole[1][1]).any()
    test = data.load("digits", "test").with_objective(digits.objective)
    once, again = (next(iter(test.evaluation(360, small))) for _ in range(2))
    tf.nest.map_structure(np.testing.assert_array_equal, once, again)
    assert float(tf.reduce_sum(once[2])) == 360
    assert len({bytes(row) for row in once[0]["places"].numpy()}) > 300


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: data.MaskedPatches(16, "colour"), "Did you mean mean-colour"),
        (lambda: data.MaskedPatches(16, rate=0.0), r"must be in \(0, 1\]. Received: 0.0"),
        (lambda: data.MaskedPatches(16, rate=float("nan")), r"must be in \(0, 1\]"),
        (lambda: data.MaskedPatches(2, "colours-4x4"), "at least 4 x 4 pixels"),
        (lambda: data.MaskedPatches(16).grid((224, 100)), "Received: 224 x 100 pixels, patches of 16 x 16"),
        (lambda: data.MaskedPatches(16).grid((16, 16)), "several whole patches"),
    ],
)
def test_objectives_that_there_are_not(make, sentence):
    with pytest.raises(data.DataError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"augmentation": "strong1"}, "no labels that mixup or cutmix could mix"),
        ({"dtype": "uint8"}, "dtype must be 'float32'"),
        ({"preprocessing": Preprocessing((32, 32), mean=(0.5,), std=(0.5,))}, "images of 3 channels. Received: 1"),
    ],
)
def test_batches_that_cannot_be_masked(arguments, sentence):
    with pytest.raises(data.DataError, match=sentence):
        data.load("digits").with_objective(data.MaskedPatches(4)).train(8, **arguments)

"""Random subsets: nested, of the right examples, and of the shares of classes that were asked for."""

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data.reading.sources import choose_numbers
from keras_vit.errors import KerasVitError
from keras_vit.models import Preprocessing

LABELS = np.repeat([0, 1, 2], [70, 25, 5])


@pytest.mark.parametrize("labels", [None, LABELS], ids=["random", "stratified"])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**70])
def test_subsets_are_nested(labels, seed):
    sets = [set(choose_numbers(100, count, seed, labels)) for count in (1, 7, 30, 99, 100)]
    assert [len(chosen) for chosen in sets] == [1, 7, 30, 99, 100]
    assert all(small < large for small, large in zip(sets, sets[1:], strict=False))


def test_seeds_choose_differently():
    first, second = (set(choose_numbers(1000, 100, seed)) for seed in (0, 1))
    assert len(first & second) < 30


@pytest.mark.parametrize("count", [1, 4, 20, 33, 60, 97])
def test_classes_keep_their_shares(count):
    for seed in range(5):
        chosen = np.bincount(LABELS[choose_numbers(100, count, seed, LABELS)], minlength=3)
        assert (np.abs(chosen - np.array([70, 25, 5]) * count / 100) <= 1).all()


def test_every_example_is_as_likely():
    """Of 400 choices of 10 out of 40, each example is in about 100."""
    counts = np.bincount(np.concatenate([choose_numbers(40, 10, seed) for seed in range(400)]), minlength=40)
    assert 65 < counts.min() and counts.max() < 140


def stored(examples):
    """{image's bytes: label} of all examples."""
    batches = examples.evaluation(64, Preprocessing((8, 8)), dtype="uint8")
    return {
        image.tobytes(): int(label)
        for images, labels, weights in batches.as_numpy_iterator()
        for image, label, weight in zip(images, labels, weights, strict=True)
        if weight
    }


@pytest.mark.slow
def test_a_subset_is_of_the_splits_own_examples():
    everything, some = data.load("digits"), data.load("digits", examples=100, seed=3)
    assert (some.num_examples, some.class_names) == (100, everything.class_names)
    assert len(stored(some)) == 100 and stored(some).items() <= stored(everything).items()
    more = data.load("digits", examples=400, seed=3)
    assert stored(some).items() <= stored(more).items()
    images, labels = next(iter(some.train(50, Preprocessing((8, 8)), augmentation="none", dtype="uint8")))
    known = stored(some)
    assert all(known[image.tobytes()] == label for image, label in zip(images.numpy(), labels.numpy(), strict=True))


def test_a_stratified_subset_has_every_class():
    some = data.load("digits", examples=20, stratified=True)
    assert np.bincount(list(stored(some).values())).tolist() == [2] * 10


@pytest.mark.parametrize("count", [0, -1, 1294])
def test_more_than_there_are(count):
    with pytest.raises(KerasVitError, match=rf"from 1 to the 1,293 that the split has. Received: {count}"):
        data.load("digits", examples=count)

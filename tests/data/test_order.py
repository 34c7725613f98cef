"""Which example comes when: shuffles, hosts, resuming."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from slowness import slow_but

from keras_vit import data
from keras_vit.data.examples import Examples
from keras_vit.data.reading import order
from keras_vit.data.reading.sources import Pixels
from keras_vit.models import Preprocessing

SIZE = Preprocessing((4, 4))
SALTS = (order.ExampleSalt, order.BatchSalt, order.ShuffleSalt)


def numbered(count):
    """Examples whose image and label are their number."""
    images = np.tile(np.arange(count, dtype="uint8")[:, None, None, None], (1, 6, 5, 1))
    return Examples("numbered", "train", tuple(map(str, range(count))), Pixels(images, np.arange(count, dtype="int32")))


def labels(batches):
    return [batch[1].numpy() for batch in batches]


def contexts(hosts, replicas):
    return [tf.distribute.InputContext(hosts, host, replicas) for host in range(hosts)]


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(-(2**70), 2**70))
@settings(max_examples=25, deadline=None)
def test_a_shuffle_is_a_permutation(count, epoch, seed):
    shuffle = order.shuffle(tf.range(count, dtype=tf.int64), epoch, count, order.run_key(seed)).numpy()
    assert sorted(shuffle) == list(range(count))


def test_shuffles_are_unrelated():
    """Correlations with the identity, the neighbour, the next epoch and seed are those of random permutations."""
    count = 50_000

    def shuffle(epoch, seed):
        return order.shuffle(tf.range(count, dtype=tf.int64), epoch, count, order.run_key(seed)).numpy()

    shuffles = [shuffle(epoch, seed) for seed in range(4) for epoch in range(6)]
    pairs = [(s, np.arange(count)) for s in shuffles] + [(s[1:], s[:-1]) for s in shuffles]
    pairs += list(zip(shuffles[1:], shuffles[:-1], strict=True))
    scores = [np.corrcoef(a, b)[0, 1] * np.sqrt(count) for a, b in pairs]
    assert np.std(scores) < 1.35
    assert np.abs(scores).max() < 4.5


def test_draws_are_those_of_earlier_versions():
    """A run that was begun with one goes on with another, bit for bit."""
    assert {salt.name: int(salt) for kind in SALTS for salt in kind} == {
        **{"CROP_BOX": 0, "FLIP": 1, "CROP_OFFSET": 2, "RANDAUGMENT": 8},
        **{"CORRUPTED": 3, "CORRUPTION": 4, "OTHER_PATCH": 5},
        **{"MIXUP_OR_CUTMIX": 0, "WEIGHT": 1, "CENTRE": 2},
        **{"EPOCH": 0, "WINDOWS": 1},
    }
    key = order.run_key(7)
    assert key == 4922007657845112901
    visit, batch = order.example_seed(key, 2, 5), order.batch_seed(key, tf.constant(3, tf.int64))
    assert visit.numpy().tolist() == [key // 2 + 2, 320] and order.add_salt(visit, 2)[1] == 322
    assert batch.numpy().tolist() == [key // 2 ^ 0x6D6978, 24]


def test_no_two_draws_of_an_example_share_a_seed():
    assert len(set(map(int, order.ExampleSalt))) == len(order.ExampleSalt)
    assert max(order.ExampleSalt) < order.SALTS_PER_EXAMPLE and max(order.BatchSalt) < order.SALTS_PER_BATCH


def test_an_epoch_has_every_example_once_also_where_it_ends_within_a_batch():
    seen = np.concatenate(labels(numbered(50).train(16, SIZE, steps=25)))
    for epoch in seen.reshape(8, 50):
        assert sorted(epoch) == list(range(50))
    assert not np.array_equal(seen[:50], seen[50:100])


def test_a_batch_larger_than_the_dataset():
    (first,) = labels(numbered(5).train(12, SIZE, steps=1))
    assert sorted(first[:5]) == sorted(first[5:10]) == list(range(5))


@pytest.mark.parametrize("hosts, replicas", slow_but([(1, 2), (2, 2), (3, 6)], (3, 6)))
def test_hosts_together_read_the_batch_of_one(hosts, replicas):
    examples, batch = numbered(100), 12
    alone = labels(examples.train(batch, SIZE, steps=20))
    parts = [labels(examples.train(batch, SIZE, steps=20, context=context)) for context in contexts(hosts, replicas)]
    assert {len(part) for host in parts for part in host} == {batch // replicas}
    parts = [np.concatenate(host).reshape(20, batch // hosts) for host in parts]
    np.testing.assert_array_equal(np.concatenate(parts, 1), np.stack(alone))


@pytest.mark.parametrize("count, hosts", slow_but([(50, 1), (48, 2), (50, 3), (5, 3)], (50, 3), (5, 3)))
def test_evaluation_counts_every_example_once(count, hosts):
    counted = []
    lengths = set()
    for context in contexts(hosts, hosts):
        batches = list(numbered(count).evaluation(12, SIZE, context=context))
        lengths.add(len(batches))
        for _, label, weight in batches:
            counted += list(label.numpy()[weight.numpy() > 0])
    assert sorted(counted) == list(range(count))
    assert len(lengths) == 1


@pytest.mark.slow
def test_seeds_differ_and_repeat():
    examples = numbered(64)
    a, b, again = (np.concatenate(labels(examples.train(16, SIZE, seed=seed, steps=4))) for seed in (0, 1, 0))
    np.testing.assert_array_equal(a, again)
    assert np.mean(a == b) < 0.2


AUGMENTED = {
    "plain": {},
    "mixed": {"augmentation": data.Augmentation(randaugment=(1, 15), mixup=0.5, cutmix=1.0), "dtype": "uint8"},
    "on the device": {"augmentation": data.Augmentation(randaugment=(1, 15), cutmix=1.0), "augment_on": "device"},
}


@pytest.mark.parametrize("name", slow_but(AUGMENTED, "plain"))
def test_resuming_gives_the_batches_of_the_uninterrupted_run(name):
    options = AUGMENTED[name]
    examples = data.load("digits")
    size = Preprocessing((16, 16))
    whole = list(examples.train(100, size, steps=30, **options))
    for start in (11, (2, 3)):
        rest = list(examples.train(100, size, start=start, steps=30, **options))
        step = start if isinstance(start, int) else start[0] * 13 + start[1]
        assert len(rest) == 30 - step
        for (images, label), (other, other_label) in zip(whole[step:], rest, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, images, other)
            np.testing.assert_array_equal(label, other_label)


def test_an_example_is_varied_anew_in_every_epoch():
    images = np.concatenate([batch[0] for batch in numbered(1).train(1, SIZE, augmentation="none", steps=3)])
    assert np.ptp(images, axis=0).max() == 0
    photo = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), "uint8")
    examples = Examples("one", "train", ("a", "b"), Pixels(photo, np.zeros(1, "int32")))
    images = np.concatenate([batch[0] for batch in examples.train(1, SIZE, steps=6)])
    assert len({image.tobytes() for image in images}) == 6


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda e: e.train(0, SIZE), "cannot be split evenly"),
        (lambda e: e.train(9, SIZE, context=tf.distribute.InputContext(2, 0, 2)), "over 2 hosts"),
        (lambda e: e.train(4, SIZE, start=9, steps=3), "start must be"),
        (lambda e: e.train(4, SIZE, start=-1), "start must be"),
        (lambda e: e.train(4, SIZE, dtype="float16"), "dtype must be"),
        (lambda e: e.train(4, SIZE, augment_on="gpu"), "augment_on must be 'host' or 'device'"),
        (lambda e: e.with_objective(data.MaskedPatches(8)).train(4, SIZE, augment_on="device"), "augment_on='host'"),
        (lambda e: e.evaluation(4, SIZE, dtype="int8"), "dtype must be"),
        (lambda e: e.train(4, SIZE, augmentation="medium"), "no augmentation 'medium'"),
        (lambda e: e.train(4, SIZE, augmentation=data.Augmentation("resize_crop", resize=3)), "Give a larger resize"),
    ],
)
def test_wrong_arguments(call, sentence):
    with pytest.raises(data.DataError, match=sentence):
        call(numbered(10))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("mixup", [0.0, 0.2])
def test_shapes_are_static(dtype, mixup):
    examples = data.load("digits")
    train = examples.train(24, SIZE, augmentation=data.Augmentation(mixup=mixup), dtype=dtype)
    label = tf.TensorSpec((24, 10), tf.float32) if mixup else tf.TensorSpec((24,), tf.int32)
    assert train.element_spec == (tf.TensorSpec((24, 4, 4, 3), dtype), label)
    assert train.cardinality() == tf.data.INFINITE_CARDINALITY
    weight = tf.TensorSpec((24,), tf.float32)
    spec = examples.evaluation(24, SIZE, dtype=dtype).element_spec
    assert spec == (tf.TensorSpec((24, 4, 4, 3), dtype), tf.TensorSpec((24,), tf.int32), weight)


def test_distributed_over_two_devices_of_one_host():
    context = tf.distribute.InputContext(1, 0, 2)
    batches = data.load("digits").train(8, SIZE, context=context, steps=2)
    assert batches.element_spec[0].shape == (4, 4, 4, 3)
    assert batches.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF

"""Random subsets of a split, each within every larger one of the same seed (section 4.3)."""

import numpy as np
import tensorflow as tf

from keras_vit.data.errors import DataError
from keras_vit.data.reading import order
from keras_vit.data.reading.sources import Indexed


def choose_numbers(num_examples, count, seed, labels=None, left_out=()):
    """Sorted numbers of `count` examples, int64 (count,): the same `seed` chooses them among any larger count too.

    Args:
        labels: of all examples, (num_examples,): each class then keeps its share, to within one example; None for a
            choice that pays no heed to classes.
        left_out: numbers that are never chosen; others then take their places, and no other choice changes.
    """
    drawn = np.random.default_rng([order.run_key(seed), num_examples]).permutation(num_examples)
    drawn = drawn[~np.isin(drawn, left_out)]
    if not 0 < count <= len(drawn):
        raise DataError(f"examples must be from 1 to the {len(drawn):,} that the split has. Received: {count}.")
    if labels is None:
        return np.sort(drawn[:count])
    # Each example's place in its class, as a share of the class: in that order, every prefix is stratified.
    drawn_labels = np.asarray(labels)[drawn]
    sizes = np.bincount(drawn_labels)
    places = np.empty(len(drawn))
    for label in np.unique(drawn_labels):
        places[drawn_labels == label] = (np.arange(sizes[label]) + 0.5) / sizes[label]
    return np.sort(drawn[np.argsort(places, kind="stable")[:count]])


class Subset(Indexed):
    """Some of the examples of a source; `numbers`, (n,), are those that the source knows them by."""

    def __init__(self, source, numbers):
        super().__init__(np.asarray(source.labels)[numbers])
        self.source, self.numbers = source, tf.constant(numbers, tf.int64)
        self.multi_label = source.multi_label

    def lookup(self, index):
        return self.source.lookup(tf.gather(self.numbers, index))

    def read_part(self, data, box, channels):
        return self.source.read_part(data, box, channels)

    def name_of(self, index, data):
        return self.source.name_of(int(self.numbers[index]), data)


def take_examples(source, count, seed, stratified, left_out=()):
    """`count` random examples of a source, as a source; those of a stream are read into memory.

    Args:
        left_out: numbers of examples that are not among them.

    Raises:
        DataError: for more than there are, and for shares of classes where these are not known beforehand.
    """
    labels = getattr(source, "labels", None)
    if stratified and (labels is None or np.ndim(labels) != 1):
        raise DataError(
            "stratified=True needs examples in memory, of one class each. Leave it out: the subset is then random."
        )
    numbers = choose_numbers(source.num_examples, count, seed, labels if stratified else None, left_out)
    return source.read_into_memory(numbers) if labels is None else Subset(source, numbers)


def leave_out(source, numbers):
    """All examples of a source but those of these numbers, as a source.

    Raises:
        DataError: when none is left.
    """
    kept = np.setdiff1d(np.arange(source.num_examples), numbers)
    if not len(kept):
        raise DataError(f"All {source.num_examples:,} examples of the split are to be left out. Leave out fewer.")
    return source.leave_out(numbers) if getattr(source, "labels", None) is None else Subset(source, kept)

"""Examples in TFRecord files that do not fit in memory: shuffled in windows, and found again at any step."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_vit.data.reading import order
from keras_vit.data.reading.decode import read_part

GROUP = 8  # files that are read together; resuming reads over at most so many
WINDOW = 4096  # records in memory that are shuffled: about half a gigabyte of ImageNet


@dataclass(frozen=True)
class Piece:
    """Records `skip` to before `skip + take` of a file; `first` is the number of the first among all examples."""

    path: str
    skip: int
    take: int
    first: int


def pieces(instructions, hosts):
    """TFDS's file instructions (filename, skip, take, examples_in_shard) as at least one `Piece` per host."""
    parts = -(-hosts // len(instructions))
    found, first = [], 0
    for file in instructions:
        length = file.take if file.take >= 0 else file.examples_in_shard - file.skip
        cuts = np.linspace(0, length, parts + 1).astype(int)
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            found.append(Piece(str(file.filename), file.skip + low, high - low, first + low))
        first += length
    return found


class Stream:
    """As `sources.Indexed`, of records on disk.

    An epoch is the files in a new order, `GROUP` of them interleaved at a time, and their records shuffled within
    windows of `WINDOW`. Every host has files of its own.

    Args:
        instructions: TFDS's for the split.
        parse: function of a serialized record to (encoded picture, label).
        gain: factor of the pixels.
    """

    def __init__(self, instructions, parse, gain=1, window=WINDOW):
        self.instructions, self.parse, self.gain, self.window = instructions, parse, gain, window
        self.num_examples = sum(piece.take for piece in pieces(instructions, 1))

    def visits(self, share, start, stop, key):
        mine = pieces(self.instructions, share.hosts)[share.host :: share.hosts]
        epoch, place = divmod(start * share.per_host, sum(piece.take for piece in mine))
        skipped, place = self.groups_before(mine, epoch, place, key)

        def whole_epoch(epoch):
            return self.epoch(mine, epoch, key)

        records = self.epoch(mine, tf.constant(epoch, tf.int64), key, skipped).skip(place)
        records = records.concatenate(tf.data.Dataset.counter(epoch + 1).flat_map(whole_epoch))
        if stop is not None:
            records = records.take((stop - start) * share.per_host)
        return self.chunks(records, share)

    def sequence(self, share):
        mine = pieces(self.instructions, share.hosts)[share.host :: share.hosts]
        missing = self.steps(share) * share.per_host - sum(piece.take for piece in mine)
        records = self.read(mine, range(len(mine)), parallel=1)
        records = records.map(lambda index, record: (tf.constant(0, tf.int64), index, record, 1.0))
        filling = records.take(1).repeat().map(lambda *visit: (*visit[:3], 0.0)).take(missing)
        return self.chunks(records.concatenate(filling), share)

    def steps(self, share):
        hosts = [pieces(self.instructions, share.hosts)[host :: share.hosts] for host in range(share.hosts)]
        return -(-max(sum(piece.take for piece in host) for host in hosts) // share.per_host)

    def groups_before(self, mine, epoch, place, key):
        """(groups, records) of an epoch that come before its record `place`: whole groups, and what is left."""
        takes = np.array([piece.take for piece in mine])
        shuffle = order.shuffled(tf.range(len(mine), dtype=tf.int64), epoch, len(mine), key).numpy()
        ends = np.cumsum(np.add.reduceat(takes[shuffle], np.arange(0, len(mine), GROUP)))
        skipped = int(np.searchsorted(ends, place, side="right"))
        return skipped, int(place - (ends[skipped - 1] if skipped else 0))

    def epoch(self, mine, epoch, key, skipped=0):
        """Dataset of (epoch, index, record, weight) of one epoch, without its first `skipped` groups."""
        files = order.shuffled(tf.range(len(mine), dtype=tf.int64), epoch, len(mine), key)
        groups = tf.data.Dataset.from_tensor_slices(files).batch(GROUP).enumerate().skip(skipped)

        def group(number, files):
            records = self.read(mine, files, parallel=GROUP).batch(self.window).enumerate()
            return records.map(lambda window, batch: mixed(1 + number * 1024 + window, *batch)).unbatch()

        def mixed(number, index, record):
            places = tf.range(tf.size(index, tf.int64))
            shuffle = order.shuffled(places, epoch, tf.size(index, tf.int64), key, salt=number)
            return tf.fill(tf.shape(index), epoch), tf.gather(index, shuffle), tf.gather(record, shuffle)

        return groups.flat_map(group).map(lambda *visit: (*visit, 1.0))

    def read(self, mine, files, parallel):
        """Dataset of (index, record) of the pieces whose numbers are `files`, `parallel` at a time."""
        paths = tf.constant([piece.path for piece in mine])
        numbers = tf.constant([[piece.skip, piece.take, piece.first] for piece in mine], tf.int64)

        def piece(file):
            number = tf.gather(numbers, file)  # indexed: with tf.unstack, TensorFlow 2.21 crashes in take
            records = tf.data.TFRecordDataset(tf.gather(paths, file), buffer_size=2**20)
            return records.skip(number[0]).take(number[1]).enumerate(number[2])

        files = tf.data.Dataset.from_tensor_slices(tf.cast(files, tf.int64))
        return files.interleave(
            piece, cycle_length=parallel, block_length=1, num_parallel_calls=parallel, deterministic=True
        )

    def chunks(self, visits, share):
        """Visits (epoch, index, record, weight) as `Indexed` gives them."""

        def example(epoch, index, record, weight):
            data, label = self.parse(record)
            return {"data": data, "label": label, "epoch": epoch, "index": index, "weight": weight}

        return visits.map(example, tf.data.AUTOTUNE, deterministic=True).batch(share.chunk, drop_remainder=True)

    def part(self, data, box, channels):
        return read_part(data, box, channels, self.gain)

    def name(self, index, data):
        return f"example {index}"

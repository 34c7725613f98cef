"""Examples in TFRecord files that do not fit in memory: shuffled in windows, and resumed at any step."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_vit.data.reading import order
from keras_vit.data.reading.sources import Indexed, Source

GROUP = 8  # files that are read together; resuming skips through at most so many
WINDOW = 4096  # records that are shuffled in memory: about half a gigabyte of ImageNet


@dataclass(frozen=True)
class Piece:
    """Records `skip` up to `skip + take` of a file."""

    path: str
    skip: int
    take: int
    first: int  # the number of the first of them among all examples
    kept: int  # how many of them are not left out


def cut_into_pieces(instructions, hosts, kept=None):
    """Cuts TFDS's file instructions (filename, skip, take, examples_in_shard) into at least one `Piece` per host.

    `kept`, a tensor of bool (examples,), says which examples are not left out; None for all.
    """
    pieces_per_file = -(-hosts // len(instructions))
    pieces, first = [], 0
    for file in instructions:
        length = file.take if file.take >= 0 else file.examples_in_shard - file.skip
        cuts = np.linspace(0, length, pieces_per_file + 1).astype(int).tolist()
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            count = high - low if kept is None else int(np.count_nonzero(kept[first + low : first + high]))
            pieces.append(Piece(str(file.filename), file.skip + low, high - low, first + low, count))
        first += length
    return pieces


def count_records(pieces):
    return sum(piece.kept for piece in pieces)


def find_group(pieces, epoch, place, key):
    """(groups, records): the whole groups before record `place` of an epoch, and the records between them and it."""
    takes = np.array([piece.kept for piece in pieces])
    files = order.shuffle(tf.range(len(pieces), dtype=tf.int64), epoch, len(pieces), key).numpy()
    ends = np.cumsum(np.add.reduceat(takes[files], np.arange(0, len(pieces), GROUP)))
    groups = int(np.searchsorted(ends, place, side="right"))
    return groups, int(place - (ends[groups - 1] if groups else 0))


def read_records(pieces, files, parallel, kept):
    """Dataset of (index, record) from the pieces numbered `files`, (n,), read `parallel` at a time, in turns."""
    paths = tf.constant([piece.path for piece in pieces])
    bounds = tf.constant([[piece.skip, piece.take, piece.first] for piece in pieces], tf.int64)

    def read_piece(file):
        bound = tf.gather(bounds, file)  # indexed below: with tf.unstack, TensorFlow 2.21 crashes in take
        records = tf.data.TFRecordDataset(tf.gather(paths, file), buffer_size=2**20)
        records = records.skip(bound[0]).take(bound[1]).enumerate(bound[2])
        return records if kept is None else records.filter(lambda index, record: tf.gather(kept, index))

    files = tf.data.Dataset.from_tensor_slices(tf.cast(files, tf.int64))
    return files.interleave(
        read_piece, cycle_length=parallel, block_length=1, num_parallel_calls=parallel, deterministic=True
    )


class Stream(Source):
    """A source of records on disk.

    In every epoch the files come in a new order, `GROUP` of them are interleaved at a time, and records are shuffled
    within windows of `window`. Every host has files of its own.

    The files are those of TFDS's `instructions` for the split. `parse` turns a serialized record into (encoded image,
    label). `kept` is as in `cut_into_pieces`.
    """

    def __init__(self, instructions, parse, gain=1, window=WINDOW, kept=None):
        self.instructions, self.parse, self.gain, self.window = instructions, parse, gain, window
        self.kept = kept
        self.num_examples = count_records(cut_into_pieces(instructions, 1, kept))

    def leave_out(self, numbers):
        """The same stream without the examples of these numbers."""
        kept = np.ones(self.num_examples, bool)
        kept[numbers] = False
        return Stream(self.instructions, self.parse, self.gain, self.window, tf.constant(kept))

    def pieces_of(self, share, host):
        return cut_into_pieces(self.instructions, share.hosts, self.kept)[host :: share.hosts]

    def training_chunks(self, share, start, stop, key):
        """Like `Indexed.training_chunks`; each host's epochs are passes over its own files."""
        pieces = self.pieces_of(share, share.host)
        epoch, place = divmod(start * share.per_host, count_records(pieces))
        groups, place = find_group(pieces, epoch, place, key)

        def whole_epoch(epoch):
            return self.read_epoch(pieces, epoch, key)

        # Whole groups of files before the first step are not opened; earlier records of its own group are skipped.
        records = self.read_epoch(pieces, tf.constant(epoch, tf.int64), key, groups).skip(place)
        records = records.concatenate(tf.data.Dataset.counter(epoch + 1).flat_map(whole_epoch))
        if stop is not None:
            records = records.take((stop - start) * share.per_host)
        return self.chunk(records, share)

    def evaluation_chunks(self, share):
        """Like `Indexed.evaluation_chunks`; a host with fewer records repeats its first with weight 0."""
        pieces = self.pieces_of(share, share.host)
        missing = self.evaluation_steps(share) * share.per_host - count_records(pieces)
        records = read_records(pieces, range(len(pieces)), 1, self.kept)
        records = records.map(lambda index, record: (tf.constant(0, tf.int64), index, record, 1.0))
        filling = records.take(1).repeat().map(lambda *visit: (*visit[:3], 0.0)).take(missing)
        return self.chunk(records.concatenate(filling), share)

    def evaluation_steps(self, share):
        """The number of global batches that the host with most records fills."""
        most = max(count_records(self.pieces_of(share, host)) for host in range(share.hosts))
        return -(-most // share.per_host)

    def read_epoch(self, pieces, epoch, key, skipped_groups=0):
        """Dataset of (epoch, index, record, weight) of one epoch, int64 (), without its first groups of files."""
        files = order.shuffle(tf.range(len(pieces), dtype=tf.int64), epoch, len(pieces), key)
        groups = tf.data.Dataset.from_tensor_slices(files).batch(GROUP).enumerate().skip(skipped_groups)

        def read_group(group, files):
            first_salt = order.ShuffleSalt.WINDOWS + group * order.WINDOWS_PER_GROUP
            windows = read_records(pieces, files, GROUP, self.kept).batch(self.window).enumerate()
            return windows.map(lambda window, batch: shuffle_window(first_salt + window, *batch)).unbatch()

        def shuffle_window(salt, index, record):
            length = tf.size(index, tf.int64)
            places = order.shuffle(tf.range(length), epoch, length, key, salt=salt)
            return tf.fill(tf.shape(index), epoch), tf.gather(index, places), tf.gather(record, places)

        return groups.flat_map(read_group).map(lambda *visit: (*visit, 1.0))

    def read_into_memory(self, numbers):
        """Reads the records of these numbers, (n,), into a source in memory; goes through all files once."""
        pieces = cut_into_pieces(self.instructions, 1)
        kept = np.zeros(count_records(pieces), bool)
        kept[numbers] = True
        records = read_records(pieces, range(len(pieces)), 1, tf.constant(kept))
        parsed = records.map(lambda index, record: self.parse(record), tf.data.AUTOTUNE).batch(1024)
        data, labels = (np.concatenate(column) for column in zip(*parsed.as_numpy_iterator(), strict=True))
        return Indexed(data, labels, self.gain)

    def chunk(self, visits, share):
        """Groups a dataset of (epoch, index, record, weight) into chunks."""

        def parse_visit(epoch, index, record, weight):
            data, label = self.parse(record)
            return {"data": data, "label": label, "epoch": epoch, "index": index, "weight": weight}

        return visits.map(parse_visit, tf.data.AUTOTUNE, deterministic=True).batch(share.chunk, drop_remainder=True)

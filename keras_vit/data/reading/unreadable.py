"""Pictures that cannot be read: named once, skipped, and too many of them an error."""

import threading

import numpy as np
import tensorflow as tf

from keras_vit.console import log
from keras_vit.data.errors import DataError
from keras_vit.data.reading.sources import readable


class Unreadable:
    """The pictures of one dataset that could not be read.

    Args:
        source: where the examples are.
        where: what the messages call the dataset.
        limit: how many may be skipped.
        channels: as `read_part`.
    """

    def __init__(self, source, where, limit, channels):
        self.source, self.where, self.limit, self.channels = source, where, limit, channels
        self.seen, self.names = set(), []
        self.lock = threading.Lock()

    def examine(self, indices, data):
        """Which of a chunk's pictures can be read: their places, int64; the others are named in the log.

        Raises:
            DataError: when more than `limit` pictures of this dataset, or all of the chunk, cannot be read.
        """
        wrong = [readable(self.source, picture, self.channels) for picture in data]
        with self.lock:
            for index, picture, reason in zip(indices.tolist(), data, wrong, strict=True):
                if reason is not None and index not in self.seen:
                    self.seen.add(index)
                    self.names.append(self.source.name(index, picture))
                    log.warning("%s cannot be read and is skipped: %s", self.names[-1], reason)
            good = np.array([place for place, reason in enumerate(wrong) if reason is None], np.int64)
            if len(self.names) > self.limit or not good.size:
                raise DataError(self.sentence())
        return good

    def sentence(self):
        names = ", ".join(self.names[-3:])
        return (
            f"{len(self.names)} pictures of {self.where} cannot be read, {self.limit} may be skipped; "
            f"the last: {names}. Remove or replace them, or give `data.load` a larger max_unreadable."
        )

    def places(self, indices, data):
        """`examine` in a graph: int64 (m,), m >= 1."""
        return tf.ensure_shape(tf.numpy_function(self.examine, [indices, data], tf.int64), (None,))

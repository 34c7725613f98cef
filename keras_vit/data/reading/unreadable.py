"""Images that cannot be read: each is named once in the log and skipped, and too many of them are an error."""

import functools
import threading

import numpy as np
import tensorflow as tf

from keras_vit.console import log
from keras_vit.data.errors import DataError
from keras_vit.data.reading.sources import why_unreadable


class Unreadable:
    """The images of one dataset that could not be read, in whichever of its pipelines.

    Args:
        source: where the examples are.
        where: what the messages call the dataset.
        limit: how many may be skipped.

    Attributes:
        seen, names: the numbers and names of those found so far.
    """

    def __init__(self, source, where, limit):
        self.source, self.where, self.limit = source, where, limit
        self.seen, self.names = set(), []
        self.lock = threading.Lock()  # tf.data reads several chunks at a time

    def find_readable(self, indices, data, channels):
        """The places in a chunk of the images that can be read, int64 (m,); the log names the others.

        `channels` is as in `decode.decode_part`.

        Raises:
            DataError: when more than `limit` images of this dataset, or all of the chunk, cannot be read.
        """
        reasons = [why_unreadable(self.source, stored, channels) for stored in data]
        with self.lock:
            for index, stored, reason in zip(indices.tolist(), data, reasons, strict=True):
                if reason is not None and index not in self.seen:
                    self.seen.add(index)
                    self.names.append(self.source.name_of(index, stored))
                    log.warning("%s cannot be read and is skipped: %s", self.names[-1], reason)
            readable = np.array([place for place, reason in enumerate(reasons) if reason is None], np.int64)
            if len(self.names) > self.limit or not readable.size:
                raise DataError(self.describe())
        return readable

    def find_readable_in_graph(self, chunk, channels):
        """`find_readable` of a chunk of examples; int64 (m,), m >= 1."""
        find = functools.partial(self.find_readable, channels=channels)
        places = tf.numpy_function(find, [chunk["index"], chunk["data"]], tf.int64)
        return tf.ensure_shape(places, (None,))

    def describe(self):
        names = ", ".join(self.names[-3:])
        return (
            f"{len(self.names)} images of {self.where} cannot be read, and at most {self.limit} are skipped; the last: "
            f"{names}. Remove or replace them, or give `data.load` a larger max_unreadable."
        )

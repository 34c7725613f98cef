"""Makes the batches of a run from chunks of stored examples. An unreadable image is named once in the log and skipped,
without losing others; too many raise an error. Errors are caught per chunk, not per example, because a dataset for
every example would take a quarter of the time of decoding a small JPEG.
"""

import atexit
import gc
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from keras_vit.console import log
from keras_vit.data.reading.sources import whole_image
from keras_vit.errors import DataError, ImageError


@atexit.register
def drop_uncaught_error():
    """Frees the iterators that an uncaught error keeps: Python's shutdown could wait for their readers for ever."""
    vars(sys).update(last_traceback=None, last_value=None, last_exc=None)
    gc.collect()


@contextmanager
def data_errors() -> Iterator[None]:
    """Raises a `DataError` from inside a dataset itself, without TensorFlow's error around it.

    Use it around code that takes batches: `fit`, `evaluate` or a loop.

    >>> with keras_vit.data.data_errors():
    ...     (images, labels), *_ = keras_vit.data.load("digits").train(4, steps=1)
    >>> tuple(images.shape), tuple(labels.shape)
    ((4, 224, 224, 3), (4,))
    """
    try:
        yield
    except tf.errors.OpError as error:
        sentence = re.search(r"^(?:\S+\.)?DataError: (.*)$", str(error), re.MULTILINE)
        if sentence is None:
            raise
        raise DataError(sentence[1]) from error


def why_unreadable(source, data, channels):
    """The reason why a stored image cannot be read; None if it can."""
    try:
        source.read_part(data, whole_image, channels)
    except tf.errors.OpError as error:
        # "{{function_node ...}} REASON [Op:DecodeImage] name: ..."
        return (error.message.partition("} ")[2] or error.message).partition(" [Op:")[0]
    except ImageError as error:
        return str(error)
    return None


class Unreadable:
    """Collects the unreadable images of one dataset, over all its pipelines; at most `limit` of them are skipped."""

    def __init__(self, source, where, limit):
        self.source, self.where, self.limit = source, where, limit  # `where`: name of the dataset in messages
        self.seen, self.names = set(), []  # numbers and names of those found so far
        self.lock = threading.Lock()  # tf.data reads several chunks at a time

    def find_readable(self, indices, data, channels, redraw):
        """Finds the places of the readable images in a chunk, int64 (m,); the log names the others.

        More than `limit` unreadable images of this dataset raise a DataError, and so does, with `redraw`, a chunk in
        which none can stand in for the others.
        """
        reasons = [why_unreadable(self.source, stored, channels) for stored in data]
        with self.lock:
            for index, reason in zip(indices.tolist(), reasons, strict=True):
                if reason is not None and index not in self.seen:
                    self.seen.add(index)
                    self.names.append(self.source.name_of(index))
                    log.warning("%s cannot be read and is skipped: %s", self.names[-1], reason)
            readable = np.array([place for place, reason in enumerate(reasons) if reason is None], np.int64)
            if redraw and not readable.size:
                raise DataError(
                    f"None of {len(data)} images that are read together can be read, so that none can stand in for the "
                    f"others: {', '.join(map(self.source.name_of, indices[-3:].tolist()))}. Remove or replace them, or "
                    "take larger batches."
                )
            if len(self.names) > self.limit:
                raise DataError(
                    f"{len(self.names)} images of {self.where} cannot be read, and at most {self.limit} are skipped; "
                    f"the last: {', '.join(self.names[-3:])}. Remove or replace them, or give `data.load` a larger "
                    "max_unreadable."
                )
        return readable


def read_chunks(chunks, size, read, fill):
    """Dataset of what `read` makes of the examples of all chunks, of `size` each, in order, several chunks at a time.

    `read` fails if the image of an example, a dict, cannot be read. `fill` makes of a chunk a dataset of `size` such
    results. They follow those of the readable images, one for each unreadable one.
    """

    @tf.autograph.experimental.do_not_convert  # which would raise a DataError of `read` as an error of its own
    def read_chunk(chunk):
        elements = tf.data.Dataset.from_tensor_slices(chunk).map(read).ignore_errors()
        # `take` requests these, and so runs `fill`, only if elements are missing.
        spares = tf.data.Dataset.from_tensors(chunk).flat_map(fill)
        return elements.concatenate(spares).take(size)

    parallel = (os.cpu_count() or 1) + 1
    return chunks.interleave(
        read_chunk, cycle_length=parallel, block_length=size, num_parallel_calls=parallel, deterministic=True
    )


def fill_with_redraws(chunk, size, places, read, num_examples):
    """Reads the readable images, at `places`, int64 (m,), of the chunk, again with other random draws."""
    places = tf.gather(places, tf.range(size) % tf.size(places))
    again = {name: tf.gather(part, places) for name, part in chunk.items()}
    again["index"] += num_examples  # a number that no example has, so other draws in the same epoch
    return tf.data.Dataset.from_tensor_slices(again).map(read)


def fill_with_blanks(chunk, read):
    """Elements of zeros, so that their weights are 0."""

    def blank(example):
        # The shapes and dtypes of what `read` returns; nothing is read.
        spec = tf.data.Dataset.from_tensors(example).map(read).element_spec
        return tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

    return tf.data.Dataset.from_tensor_slices(chunk).map(blank)


def first_step(start, steps, steps_per_epoch):
    """The number of the step `start`, given as a step or as (epoch, step); from 0 to `steps`."""
    step = start[0] * steps_per_epoch + start[1] if isinstance(start, (tuple, list)) else int(start)
    if step < 0 or (steps is not None and step > steps):
        most = "" if steps is None else f" to steps={steps}"
        raise DataError(f"start must be a step from 0{most}. Received: {start}.")
    return step


def distribute(batches, share, context, steps):
    """Prepares batches for distribution: cut to one replica's size, `steps` of them (None: endless), and prefetched.

    With a `context` the batches are the host's own and are not sharded again. Without one they are global and sharded
    batch by batch, so that several workers together train on the same batches as one.
    """
    if share.replicas > share.hosts:
        batches = batches.rebatch(share.batch_size // share.replicas, drop_remainder=True)
    if steps is not None:
        # Without it their number is unknown, since errors may drop elements, and Keras warns at their end.
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps * max(1, share.replicas // share.hosts)))
    policies, options = tf.data.experimental.AutoShardPolicy, tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA if context is None else policies.OFF
    # A strategy's iterator would optimize the graph anew in every epoch, ten seconds for nothing gained.
    options.experimental_optimization.apply_default_optimizations = False
    batches = batches.with_options(options)
    return batches.prefetch(tf.data.AUTOTUNE)

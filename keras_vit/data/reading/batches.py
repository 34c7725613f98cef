"""Makes the batches of a run from chunks of stored examples. An unreadable image is named once in the log and skipped,
at no loss of others; too many of them raise an error. Errors are caught per chunk instead of per example, because a
dataset for every example would take a quarter of the time that a small JPEG takes to decode.
"""

import os
import threading

import numpy as np
import tensorflow as tf

from keras_vit.console import log
from keras_vit.data.errors import DataError
from keras_vit.data.reading import order
from keras_vit.data.reading.decode import whole_image
from keras_vit.errors import ImageError


def why_unreadable(source, data, channels):
    """What is wrong with a stored image, as text; None when it can be read."""
    try:
        source.read_part(data, whole_image, channels)
    except tf.errors.OpError as error:
        # "{{function_node ...}} REASON [Op:DecodeImage] name: ..."
        return (error.message.partition("} ")[2] or error.message).partition(" [Op:")[0]
    except ImageError as error:
        return str(error)
    return None


class Unreadable:
    """The images of one dataset that could not be read, in whichever of its pipelines; at most `limit` are skipped."""

    def __init__(self, source, where, limit):
        self.source, self.where, self.limit = source, where, limit  # `where`: what messages call the dataset
        self.seen, self.names = set(), []  # numbers and names of those found so far
        self.lock = threading.Lock()  # tf.data reads several chunks at a time

    def find_readable(self, indices, data, channels):
        """The places of the readable images in a chunk, int64 (m,); the log names the others.

        More than `limit` unreadable images of this dataset, or a whole chunk of them, are an error.
        """
        reasons = [why_unreadable(self.source, stored, channels) for stored in data]
        with self.lock:
            for index, reason in zip(indices.tolist(), reasons, strict=True):
                if reason is not None and index not in self.seen:
                    self.seen.add(index)
                    self.names.append(self.source.name_of(index))
                    log.warning("%s cannot be read and is skipped: %s", self.names[-1], reason)
            readable = np.array([place for place, reason in enumerate(reasons) if reason is None], np.int64)
            if len(self.names) > self.limit or not readable.size:
                raise DataError(
                    f"{len(self.names)} images of {self.where} cannot be read, and at most {self.limit} are skipped; "
                    f"the last: {', '.join(self.names[-3:])}. Remove or replace them, or give `data.load` a larger "
                    "max_unreadable."
                )
        return readable


def read_chunks(chunks, size, read, fill):
    """Dataset of what `read` returns for the examples of all chunks, in order, several chunks at a time.

    Args:
        chunks: dataset of dicts of (size, ...), as `sources.Indexed` has.
        size: examples of a chunk.
        read: function of one example, a dict, to tensors; it fails if the image cannot be read.
        fill: function of a chunk to a dataset of `size` elements that are shaped as what `read` returns: as many of
            them as the chunk has unreadable images follow the others.
    """

    def read_chunk(chunk):
        elements = tf.data.Dataset.from_tensor_slices(chunk).map(read).ignore_errors()
        # `take` asks for one of these only when elements are missing, and only then `fill` is run.
        spares = tf.data.Dataset.from_tensors(chunk).flat_map(fill)
        return elements.concatenate(spares).take(size)

    parallel = (os.cpu_count() or 1) + 1
    return chunks.interleave(
        read_chunk, cycle_length=parallel, block_length=size, num_parallel_calls=parallel, deterministic=True
    )


def fill_with_redraws(chunk, size, places, read, num_examples):
    """Elements of the readable images, whose places in the chunk are int64 (m,): read again, but varied otherwise."""
    places = tf.gather(places, tf.range(size) % tf.size(places))
    again = {name: tf.gather(part, places) for name, part in chunk.items()}
    again["index"] = order.redraw_index(again["index"], num_examples)
    return tf.data.Dataset.from_tensor_slices(again).map(read)


def fill_with_blanks(chunk, read):
    """Elements of zeros, their weights too."""

    def blank(example):
        # The shapes and dtypes of what `read` returns; nothing is read.
        spec = tf.data.Dataset.from_tensors(example).map(read).element_spec
        return tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

    return tf.data.Dataset.from_tensor_slices(chunk).map(blank)


def first_step(start, steps, steps_per_epoch):
    """The step that `start`, a step or (epoch, step), means; from 0 to `steps`."""
    step = start[0] * steps_per_epoch + start[1] if isinstance(start, (tuple, list)) else int(start)
    if step < 0 or (steps is not None and step > steps):
        raise DataError(f"start must be a step from 0 to steps={steps}. Received: {start}.")
    return step


def distribute(batches, share, context, steps):
    """Batches of one replica's size, as many as `steps` (None: endless), read ahead.

    With a `context` the batches are the host's own and are not sharded a second time. Without one they are global, and
    sharded batch by batch, so that several workers together train on what one would.
    """
    if share.replicas > share.hosts:
        batches = batches.rebatch(share.batch_size // share.replicas, drop_remainder=True)
    if steps is not None:
        # Without it their number is unknown, since errors may drop elements, and Keras warns where they end.
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps * max(1, share.replicas // share.hosts)))
    policies, options = tf.data.experimental.AutoShardPolicy, tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA if context is None else policies.OFF
    # A strategy's iterator would optimize the graph anew in every epoch, ten seconds for nothing gained.
    options.experimental_optimization.apply_default_optimizations = False
    batches = batches.with_options(options)
    return batches.prefetch(tf.data.AUTOTUNE)

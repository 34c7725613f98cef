"""Chunks of stored examples to what batches are made of: an image that cannot be read costs no other image.

Errors are caught once per chunk, and not once per example: a dataset of its own for every example takes a quarter of
the time that a small JPEG takes to decode.
"""

import os

import tensorflow as tf

from keras_vit.data.reading import order


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

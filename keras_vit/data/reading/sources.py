"""Sources of examples: pixels in memory, encoded images in memory, or files; all of them or some.

Each source finds an example by its number, and decodes the requested part of its image. A random subset is part of
every larger one of the same seed (section 4.3).

A `box` is a function from an image's (height, width), int32 (2,), to the (top, left, height, width) of the requested
part, int32 (4,). It is called in the graph, once the size is known.
"""

import copy
import os
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.reading import order
from keras_vit.errors import DataError
from keras_vit.images import pillow, tf_jpeg

BORDER = 2  # pixels on every side, red to mark the test set, of ObjectNet's photos (objectnet-template-pytorch)


def whole_image(shape):
    """The `box` of the whole image."""
    return tf.concat([[0, 0], shape], 0)


def crop(image, box):
    """The part of an image (h, w, c) that `box` chooses."""
    image = tf.ensure_shape(image, (None, None, None))
    return tf.image.crop_to_bounding_box(image, *tf.unstack(box(tf.shape(image)[:2])))


def decode_and_crop_jpeg(data, box, channels):
    """`crop` of an encoded JPEG. Blocks outside are not transformed, which saves most of the work."""
    return tf.io.decode_and_crop_jpeg(data, box(tf.io.extract_jpeg_shape(data)[:2]), channels)


def as_one_op(function):
    """Makes `function` a single op of the calling graph: a branch that is not taken costs time for each of its ops."""
    if tf.executing_eagerly():
        return function
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def decode_part(data, box, channels, gain=1):
    """Decodes the part of a JPEG, PNG, BMP or GIF (first frame), a string (), in `box`: uint8 (h, w, channels).

    `gain` multiplies the pixels (dSprites are stored as 0 and 1).
    """
    decode = as_one_op(lambda data: crop(tf.io.decode_image(data, channels, expand_animations=False), box))
    is_jpeg = tf.io.is_jpeg(data)
    image = tf.cond(is_jpeg, lambda: decode_and_crop_jpeg(data, box, channels), lambda: decode(data))
    image = tf.ensure_shape(image, (None, None, channels))
    return image if gain == 1 else image * tf.constant(gain, tf.uint8)


def as_bytes(data):
    """The bytes of an argument of numpy_function: it is bytes in a graph, and an array () of bytes eagerly."""
    return data.item() if isinstance(data, np.ndarray) else data


def read_photo(data, box, channels):
    """Reads the part of a photograph that `box` chooses, uint8 (h, w, channels), as `pillow.to_array` reads the whole.

    TensorFlow decodes upright JPEGs and plain PNGs. Pillow decodes rotated ones and all other kinds, because TensorFlow
    reads some of these wrongly (BMP with a palette, transparent GIF) and others not at all (animated WebP, TIFF, JPEG
    of CMYK). Pillow also gets images that may be too large, since its error says why one is refused.
    """

    def decode_jpeg(data):
        return decode_and_crop_jpeg(data, box, channels)

    def decode_png(data):
        return crop(tf.io.decode_png(data, channels), box)

    def read_whole(data):
        with pillow.open_image(as_bytes(data)) as image:
            return pillow.to_array(image, channels)

    def decode_with_pillow(data):
        return crop(tf.numpy_function(read_whole, [data], tf.uint8, stateful=False), box)

    def decode_others(data):
        is_plain = tf.numpy_function(lambda data: pillow.is_plain_png(as_bytes(data), channels), [data], tf.bool, False)
        return tf.cond(is_plain, partial(as_one_op(decode_png), data), partial(as_one_op(decode_with_pillow), data))

    if channels not in pillow.PNG_COLOURS:  # with opacity, which TensorFlow does not give to a JPEG
        return tf.ensure_shape(decode_with_pillow(data), (None, None, channels))
    # TensorFlow can read the EXIF data, too (images/tf_jpeg.py), but by so many operations that iterators on replicas
    # would take many seconds to start.
    is_ordinary = tf.cond(tf.io.is_jpeg(data), lambda: tf_jpeg.is_ordinary(data), lambda: False)
    image = tf.cond(is_ordinary, partial(as_one_op(decode_jpeg), data), partial(as_one_op(decode_others), data))
    return tf.ensure_shape(image, (None, None, channels))


class Source:
    """Examples with numbers, stored as encoded images; subclasses define the datasets of chunks.

    `training_chunks` and `evaluation_chunks` are datasets of chunks of examples, dicts of "data" (the input of
    `read_part`), "label", "epoch", "index" and "weight", each (chunk, ...).
    """

    labels: Any = None  # those of all examples, int32 (n,) or float32 (n, classes); None if each is read with its image
    paths: Any = None  # the files of all examples, strings (n,); None for images that are not files of their own
    multi_label = False  # whether an example may have several classes or none, and all count: labels float (classes,)
    gain = 1  # the factor of the pixels
    masked = False  # whether an example has a class per pixel; `read_label` then reads the same part of its mask

    def read_part(self, data, box, channels):
        """The part of one stored image that `box` chooses: uint8 (h, w, channels)."""
        return decode_part(data, box, channels, self.gain)

    def read_label(self, label, box):
        """The label to train on, from the stored label and the `box` that is read of the image."""
        return label

    def name_of(self, index):
        """The name of an example in messages."""
        return f"example {index}"


class Indexed(Source):
    """Examples that are found by number in `stored`, a tensor (n, ...)."""

    def __init__(self, stored, labels, gain=1):
        self.stored, self.labels, self.gain = tf.constant(stored), tf.constant(labels), gain
        self.num_examples = len(labels)
        self.places = tf.range(len(labels), dtype=tf.int64)  # of the examples in `stored`

    def take(self, numbers):
        """A source of the examples of these numbers, (n,), alone; it shares what is stored."""
        part = copy.copy(self)
        part.num_examples, part.labels = len(numbers), tf.constant(np.asarray(self.labels)[numbers])
        part.places = tf.constant(np.asarray(self.places)[numbers])
        part.paths = None if self.paths is None else tf.gather(self.paths, numbers)
        return part

    def lookup(self, index):
        """The stored values, (n, ...), of the examples of these numbers, int64 (n,)."""
        return tf.gather(self.stored, tf.gather(self.places, index))

    def name_of(self, index):
        return super().name_of(int(self.places[index]))  # its number in the whole source

    def training_chunks(self, share, start, stop, key):
        """Dataset of this host's examples from step `start` up to `stop` (None: endless), shuffled."""

        def visit(positions):
            epoch, place = positions // self.num_examples, positions % self.num_examples
            index = order.shuffle(place, epoch, self.num_examples, key)
            return self.gather(index, epoch, tf.ones_like(index, tf.float32))

        return order.positions(share, start, stop).map(visit)

    def evaluation_chunks(self, share):
        """Dataset of this host's examples, each once; examples of weight 0 fill the last global batch."""

        def visit(positions):
            weight = tf.cast(positions < self.num_examples, tf.float32)
            index = tf.minimum(positions, self.num_examples - 1)
            return self.gather(index, tf.zeros_like(index), weight)

        return order.positions(share, 0, self.evaluation_steps(share)).map(visit)

    def evaluation_steps(self, share):
        """The number of global batches of `evaluation_chunks`."""
        return -(-self.num_examples // share.batch_size)

    def gather(self, index, epoch, weight):
        label = tf.gather(self.labels, index)
        return {"data": self.lookup(index), "label": label, "epoch": epoch, "index": index, "weight": weight}


class Pixels(Indexed):
    """uint8 images (n, h, w, c) in memory, c 1 or 3."""

    def read_part(self, data, box, channels):
        image = crop(data, box)
        if data.shape[-1] == channels:
            return image
        return tf.image.grayscale_to_rgb(image) if channels == 3 else tf.image.rgb_to_grayscale(image)


class Files(Indexed):
    """Image files, read when they are needed and turned upright."""

    def __init__(self, paths, labels, multi_label=False):
        super().__init__([os.fsencode(path) for path in paths], labels)
        self.multi_label = multi_label
        self.paths = self.stored

    def read_part(self, data, box, channels):
        return read_photo(tf.io.read_file(data), box, channels)

    def name_of(self, index):
        return self.paths[index].numpy().decode(errors="replace")


class BorderedFiles(Files):
    """Image files that are read without their border."""

    def read_part(self, data, box, channels):
        def inside(shape):
            return box(shape - 2 * BORDER) + tf.constant([BORDER, BORDER, 0, 0])

        return super().read_part(data, inside, channels)


class MaskedFiles(Files):
    """Image files and as many masks, PNG of class numbers."""

    masked = True

    def __init__(self, paths, masks):
        super().__init__(paths, [os.fsencode(path) for path in masks])

    def read_label(self, label, box):
        """uint8 (h, w, 1)."""
        return crop(tf.io.decode_png(tf.io.read_file(label), 1), box)


def choose_numbers(num_examples, count, seed, labels=None, left_out=()):
    """Chooses `count` random examples: sorted numbers, int64 (count,). A larger count includes those of a smaller one.

    With the `labels` of all examples, each class keeps its share, to within one example. Other numbers replace those
    `left_out`, and the rest of the choice stays the same.
    """
    drawn = np.random.default_rng([order.run_key(seed), num_examples]).permutation(num_examples)
    drawn = drawn[~np.isin(drawn, left_out)]
    if not 0 < count <= len(drawn):
        raise DataError(f"examples must be from 1 to the {len(drawn):,} that the split has. Received: {count}.")
    if labels is None:
        return np.sort(drawn[:count])
    # Sorted by an example's place in its class, as a share of the class, every prefix is stratified.
    drawn_labels = np.asarray(labels)[drawn]
    sizes = np.bincount(drawn_labels)
    places = np.empty(len(drawn))
    for label in np.unique(drawn_labels):
        places[drawn_labels == label] = (np.arange(sizes[label]) + 0.5) / sizes[label]
    return np.sort(drawn[np.argsort(places, kind="stable")[:count]])


def take_examples(source, count, seed, stratified, left_out=()):
    """Chooses `count` random examples of a source, none of them `left_out`; those of a stream are read into memory."""
    labels = source.labels
    if stratified and (labels is None or np.ndim(labels) != 1 or source.masked):
        raise DataError(
            "stratified=True needs examples in memory that have one class each. Leave it out for a random subset."
        )
    numbers = choose_numbers(source.num_examples, count, seed, labels if stratified else None, left_out)
    if labels is not None:
        return source.take(numbers)
    return source.read_into_memory(numbers if source.kept is None else np.flatnonzero(source.kept)[numbers])


def leave_out(source, numbers):
    """A source of all examples of another source except those of these numbers."""
    kept = np.setdiff1d(np.arange(source.num_examples), numbers)
    if not len(kept):
        raise DataError(f"All {source.num_examples:,} examples of the split are to be left out. Leave out fewer.")
    return source.leave_out(numbers) if source.labels is None else source.take(kept)

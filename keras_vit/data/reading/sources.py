"""Where examples are: pixels in memory, encoded pictures in memory, files. Each finds any example by its number."""

import os

import tensorflow as tf

from keras_vit.data.augment.crops import whole
from keras_vit.data.reading import order
from keras_vit.data.reading.decode import cut, read_part
from keras_vit.data.reading.photos import read_photo
from keras_vit.errors import ImageError


class Indexed:
    """Examples that are found by number.

    Subclasses give `lookup`, of numbers int64 (n,) to what is stored (n, ...), and `part`, of one that is stored to the
    pixels uint8 (h, w, channels) in the part that `box` chooses, both as in `read_part`.

    `visits` and `sequence` give chunks of examples, dicts of "data" (what `part` reads), "label", "epoch", "index" and
    "weight", each (chunk, ...).
    """

    def __init__(self, labels):
        self.labels = tf.constant(labels)
        self.num_examples = len(labels)

    def visits(self, share, start, stop, key):
        """Dataset of this host's training examples from step `start` to before `stop` (None: without end)."""

        def visit(positions):
            epoch, place = positions // self.num_examples, positions % self.num_examples
            index = order.shuffled(place, epoch, self.num_examples, key)
            return self.examples(index, epoch, tf.ones_like(index, tf.float32))

        return order.positions(share, start, stop).map(visit)

    def sequence(self, share):
        """Dataset of this host's examples, each once, filled up to whole global batches with examples of weight 0."""

        def visit(positions):
            weight = tf.cast(positions < self.num_examples, tf.float32)
            index = tf.minimum(positions, self.num_examples - 1)
            return self.examples(index, tf.zeros_like(index), weight)

        return order.positions(share, 0, self.steps(share)).map(visit)

    def steps(self, share):
        """Global batches of `sequence`."""
        return -(-self.num_examples // share.batch_size)

    def examples(self, index, epoch, weight):
        label = tf.gather(self.labels, index)
        return {"data": self.lookup(index), "label": label, "epoch": epoch, "index": index, "weight": weight}

    def name(self, index, data):
        """What messages call an example."""
        return f"example {index}"


class Pixels(Indexed):
    """uint8 pictures (n, h, w, c) in memory, c 1 or 3."""

    def __init__(self, images, labels):
        super().__init__(labels)
        self.images = tf.constant(images)

    def lookup(self, index):
        return tf.gather(self.images, index)

    def part(self, data, box, channels):
        image = cut(data, box)
        if data.shape[-1] == channels:
            return image
        return tf.image.grayscale_to_rgb(image) if channels == 3 else tf.image.rgb_to_grayscale(image)


class Encoded(Indexed):
    """Encoded pictures in memory; `gain` is `read_part`'s."""

    def __init__(self, data, labels, gain=1):
        super().__init__(labels)
        self.data, self.gain = tf.constant(data), gain

    def lookup(self, index):
        return tf.gather(self.data, index)

    def part(self, data, box, channels):
        return read_part(data, box, channels, self.gain)


class Files(Indexed):
    """Picture files, read when they are needed and turned upright."""

    def __init__(self, paths, labels):
        super().__init__(labels)
        self.paths = tf.constant([os.fsencode(path) for path in paths])

    def lookup(self, index):
        return tf.gather(self.paths, index)

    def part(self, data, box, channels):
        return read_photo(tf.io.read_file(data), box, channels)

    def name(self, index, data):
        return data.decode(errors="replace")


def readable(source, data, channels):
    """What is wrong with an example's picture, as text; None when it can be read."""
    try:
        source.part(data, whole, channels)
    except tf.errors.OpError as error:
        return (error.message.partition("} ")[2] or error.message).partition(" [Op:")[0]
    except ImageError as error:
        return str(error)
    return None

"""Where examples are: pixels in memory, encoded images in memory, files. Each source finds an example by its number."""

import os

import tensorflow as tf

from keras_vit.data.reading import order
from keras_vit.data.reading.decode import crop, decode_part, whole_image
from keras_vit.data.reading.photos import read_photo
from keras_vit.errors import ImageError


class Indexed:
    """Examples that are found by number; subclasses have `lookup` and `read_part`.

    `training_chunks` and `evaluation_chunks` are datasets of chunks of examples, dicts of "data" (what `read_part`
    takes), "label", "epoch", "index" and "weight", each (chunk, ...).

    Attributes:
        multi_label: whether an example may have several classes or none, and all count: labels are float (classes,).
    """

    multi_label = False

    def __init__(self, labels):
        self.labels = tf.constant(labels)
        self.num_examples = len(labels)

    def lookup(self, index):
        """What is stored for the examples of numbers int64 (n,): (n, ...)."""
        raise NotImplementedError

    def read_part(self, data, box, channels):
        """The part of one stored image that `box` chooses (`reading.decode`): uint8 (h, w, channels)."""
        raise NotImplementedError

    def training_chunks(self, share, start, stop, key):
        """Dataset of this host's examples from step `start` to before `stop` (None: without end), shuffled."""

        def visit(positions):
            epoch, place = positions // self.num_examples, positions % self.num_examples
            index = order.shuffle(place, epoch, self.num_examples, key)
            return self.gather(index, epoch, tf.ones_like(index, tf.float32))

        return order.positions(share, start, stop).map(visit)

    def evaluation_chunks(self, share):
        """Dataset of this host's examples, each once, filled up to whole global batches with examples of weight 0."""

        def visit(positions):
            weight = tf.cast(positions < self.num_examples, tf.float32)
            index = tf.minimum(positions, self.num_examples - 1)
            return self.gather(index, tf.zeros_like(index), weight)

        return order.positions(share, 0, self.evaluation_steps(share)).map(visit)

    def evaluation_steps(self, share):
        """How many global batches `evaluation_chunks` fills."""
        return -(-self.num_examples // share.batch_size)

    def gather(self, index, epoch, weight):
        label = tf.gather(self.labels, index)
        return {"data": self.lookup(index), "label": label, "epoch": epoch, "index": index, "weight": weight}

    def name_of(self, index, data):
        """What messages call an example."""
        return f"example {index}"


class Pixels(Indexed):
    """uint8 images (n, h, w, c) in memory, c 1 or 3."""

    def __init__(self, images, labels):
        super().__init__(labels)
        self.images = tf.constant(images)

    def lookup(self, index):
        return tf.gather(self.images, index)

    def read_part(self, data, box, channels):
        image = crop(data, box)
        if data.shape[-1] == channels:
            return image
        return tf.image.grayscale_to_rgb(image) if channels == 3 else tf.image.rgb_to_grayscale(image)


class Encoded(Indexed):
    """Encoded images in memory, strings (n,); `gain` is the factor of the pixels."""

    def __init__(self, data, labels, gain=1):
        super().__init__(labels)
        self.data, self.gain = tf.constant(data), gain

    def lookup(self, index):
        return tf.gather(self.data, index)

    def read_part(self, data, box, channels):
        return decode_part(data, box, channels, self.gain)


class Files(Indexed):
    """Image files, read when they are needed and turned upright."""

    def __init__(self, paths, labels, multi_label=False):
        super().__init__(labels)
        self.multi_label = multi_label
        self.paths = tf.constant([os.fsencode(path) for path in paths])

    def lookup(self, index):
        return tf.gather(self.paths, index)

    def read_part(self, data, box, channels):
        return read_photo(tf.io.read_file(data), box, channels)

    def name_of(self, index, data):
        return data.decode(errors="replace")


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

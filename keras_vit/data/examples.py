"""A split of a dataset, and the batches that training and evaluation take from it."""

import os
import statistics
from dataclasses import dataclass

import tensorflow as tf

from keras_vit.data.augment import mixing, randaugment
from keras_vit.data.augment import rows as rows
from keras_vit.data.augment.crops import evaluation_size, finished, training_box, training_size, whole
from keras_vit.data.errors import DataError
from keras_vit.data.reading import order
from keras_vit.data.reading.unreadable import Unreadable
from keras_vit.errors import ImageError
from keras_vit.models.preprocessing import Preprocessing

DTYPES = ("float32", "uint8")


@dataclass(frozen=True)
class Examples:
    """One split of one dataset. No picture is read before batches are asked for.

    Args:
        name, split: what was loaded.
        class_names: one per class.
        source: where the examples are (`sources`).
        augmentation: name of the row that suits the dataset; `train` takes it unless told otherwise.
        max_unreadable: how many pictures that cannot be read are skipped before it is an error.

    >>> digits = keras_vit.data.load("digits")
    >>> digits.num_examples, digits.num_classes
    (1293, 10)
    """

    name: str
    split: str
    class_names: tuple
    source: object
    augmentation: str = "inception"
    max_unreadable: int = 10

    @property
    def num_classes(self):
        return len(self.class_names)

    @property
    def num_examples(self):
        return self.source.num_examples

    def steps_per_epoch(self, batch_size):
        """Batches that one pass over the examples needs, the last of them shared with the next pass."""
        return -(-self.num_examples // batch_size)

    def picture_size(self):
        """(height, width) in pixels: the medians of 32 pictures of the split. None when none of them can be read."""
        shapes = []
        for stored in next(iter(self.source.visits(order.share(32), 0, 1, order.run_key(0))))["data"]:
            try:
                shapes.append(tuple(self.source.part(stored, whole, 3).shape[:2]))
            except (tf.errors.OpError, ImageError):
                pass  # training skips it too, and says so
        return tuple(int(statistics.median(sides)) for sides in zip(*shapes, strict=True)) or None

    def train(
        self,
        batch_size,
        preprocessing=None,
        *,
        augmentation=None,
        seed=0,
        start=0,
        steps=None,
        dtype="float32",
        context=None,
    ):
        """Shuffled, augmented batches for training: a `tf.data.Dataset` of (images, labels) with static shapes.

        Epochs follow one another in one endless row, each a new shuffle; no example is dropped between them. Batch k
        is the same whether the run started at 0 or at k, and whatever number of hosts reads it: what is random about
        an example depends on the seed, its epoch and its number alone. Mixing is within a host's part of the batch.

        Args:
            batch_size: examples of a global batch.
            preprocessing: the model's (`model.preprocessing`); None for 224 pixels in [-1, 1].
            augmentation: an `Augmentation` or the name of a row of AUGMENTATIONS; None for the dataset's own.
            seed: any int.
            start: the step to begin with, from 0, or (epoch, step) with `steps_per_epoch` steps to an epoch.
            steps: the step to end before; None for no end.
            dtype: "float32": normalized as the model expects. "uint8": pixels 0..255, rounded, a quarter of the bytes
                to the device; `(x / 255 - mean) / std` there is then up to half a pixel value from "float32".
            context: a `tf.distribute.InputContext`; batches are then this replica's part. None for the only host.

        Returns:
            Batches of images (n, h, w, c) and labels int32 (n,), or float32 (n, num_classes) when they are mixed.

        Raises:
            DataError: for a batch that cannot be split evenly, an unknown augmentation or dtype.

        >>> batches = keras_vit.data.load("digits").train(32, model.preprocessing, start=(3, 10))
        """
        preprocessing = checked(preprocessing, dtype)
        augmentation = rows.augmentation(augmentation or self.augmentation)
        share, key = order.share(batch_size, context), order.run_key(seed)
        start = first_step(start, steps, self.steps_per_epoch(batch_size))

        def picture(example):
            draw = order.draw_key(key, example["epoch"], example["index"])
            image = self.source.part(example["data"], training_box(augmentation, draw), channels(preprocessing))
            image = training_size(image, augmentation, preprocessing.image_size, draw)
            if augmentation.randaugment:
                image = randaugment.apply(image, *augmentation.randaugment, draw)
            return image if augmentation.one_hot else finished(image, preprocessing, dtype), example["label"]

        def mixed(step, batch):
            images, labels = mixing.mix(*batch, augmentation, self.num_classes, key, step)
            return finished(images, preprocessing, dtype), labels

        chunks = self.source.visits(share, start, steps, key)
        pictures = self.pictures(chunks, share, picture, preprocessing, replace=True)
        batches = pictures.batch(share.per_host, drop_remainder=True)
        if augmentation.one_hot:
            batches = batches.enumerate(start).map(mixed, tf.data.AUTOTUNE, deterministic=True)
        return distributed(batches, share, context, None if steps is None else steps - start)

    def evaluation(self, batch_size, preprocessing=None, *, dtype="float32", context=None):
        """Batches of every example once: a `tf.data.Dataset` of (images, labels, weights) with static shapes.

        The last batch is filled up with examples of weight 0, and pictures that cannot be read are blank with weight
        0, so that weighted metrics count every example once: compile with
        `weighted_metrics=[keras_vit.training.Accuracy()]`. Examples are in order, but that a blank one goes to the end
        of its chunk.

        Args:
            batch_size, preprocessing, dtype, context: as `train`.

        Returns:
            Batches of images (n, h, w, c), labels int32 (n,) (of "imagenet2012_real" float32 (n, 1000), 1 for every
            class that is right) and weights float32 (n,).

        Raises:
            DataError: as `train`.

        >>> model.evaluate(keras_vit.data.load("digits", "test").evaluation(64, model.preprocessing))
        """
        preprocessing = checked(preprocessing, dtype)
        share = order.share(batch_size, context)

        def picture(example):
            image = self.source.part(example["data"], whole, channels(preprocessing))
            image = finished(evaluation_size(image, preprocessing), preprocessing, dtype)
            return image, example["label"], example["weight"] * labelled(example["label"])

        pictures = self.pictures(self.source.sequence(share), share, picture, preprocessing, replace=False)
        batches = pictures.batch(share.per_host, drop_remainder=True)
        return distributed(batches, share, context, self.source.steps(share))

    def pictures(self, chunks, share, picture, preprocessing, replace):
        """`picture` of every example, several at a time; what cannot be read is replaced, or blank with weight 0.

        An error costs its example only, and catching it costs one small dataset per chunk (not per example: a dataset
        per example takes a quarter of the time of a small JPEG).
        """
        unreadable = Unreadable(
            self.source, f"{self.name} ({self.split})", self.max_unreadable, channels(preprocessing)
        )
        size = share.chunk
        picture = tf.function(picture, autograph=False)  # traced once, for all that calls it

        def blank(example):
            spec = tf.data.Dataset.from_tensors(example).map(picture).element_spec
            return tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

        def spare(chunk):
            good = unreadable.places(chunk["index"], chunk["data"])
            if not replace:
                return tf.data.Dataset.from_tensor_slices(chunk).map(blank)
            places = tf.gather(good, tf.range(size) % tf.size(good))
            again = {name: tf.gather(part, places) for name, part in chunk.items()}
            again["index"] += self.num_examples  # another draw of the same picture
            return tf.data.Dataset.from_tensor_slices(again).map(picture)

        def whole_chunk(chunk):
            read = tf.data.Dataset.from_tensor_slices(chunk).map(picture).ignore_errors()
            spares = tf.data.Dataset.from_tensors(chunk).flat_map(spare)
            return read.concatenate(spares).take(size)

        parallel = (os.cpu_count() or 1) + 1
        return chunks.interleave(
            whole_chunk, cycle_length=parallel, block_length=size, num_parallel_calls=parallel, deterministic=True
        )


def first_step(start, steps, steps_per_epoch):
    """The step that `start`, a step or (epoch, step), means; from 0 to `steps`."""
    step = start[0] * steps_per_epoch + start[1] if isinstance(start, (tuple, list)) else int(start)
    if step < 0 or (steps is not None and step > steps):
        raise DataError(f"start must be a step from 0 to steps={steps}. Received: {start}.")
    return step


def labelled(label):
    """1, or 0 for an example whose float label has no class (ImageNet ReaL has such)."""
    return 1.0 if label.dtype.is_integer else tf.minimum(tf.reduce_sum(label), 1.0)


def channels(preprocessing):
    return len(preprocessing.mean)


def checked(preprocessing, dtype):
    if dtype not in DTYPES:
        raise DataError(f"dtype must be 'float32' or 'uint8'. Received: {dtype!r}.")
    return preprocessing or Preprocessing()


def distributed(batches, share, context, steps):
    """Batches of one replica's size, as many as `steps` (None: endless), read ahead.

    What is a host's own is not sharded a second time; global batches are, batch by batch, so that several workers
    together train on what one would.
    """
    if share.replicas > share.hosts:
        batches = batches.rebatch(share.batch_size // share.replicas, drop_remainder=True)
    if steps is not None:
        # Not knowing their number, Keras warns where they end.
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps * max(1, share.replicas // share.hosts)))
    policies, options = tf.data.experimental.AutoShardPolicy, tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA if context is None else policies.OFF
    batches = batches.with_options(options)
    return batches.prefetch(tf.data.AUTOTUNE)

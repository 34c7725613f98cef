"""A split of a dataset, and the batches that training and evaluation take from it."""

import functools
import os
import statistics
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import tensorflow as tf

from keras_vit.data.augment import mixing, randaugment
from keras_vit.data.augment.augmentations import Augmentation, find_augmentation
from keras_vit.data.augment.corruption import corrupt_patches, require_can_corrupt
from keras_vit.data.augment.crops import normalize_or_round, resize_for_evaluation, resize_for_training, training_box
from keras_vit.data.augment.deferred import describe_batch, draw_layers
from keras_vit.data.augment.masked_patches import MaskedPatches
from keras_vit.data.datasets.masks import IGNORED
from keras_vit.data.reading import order
from keras_vit.data.reading.batches import (
    Unreadable,
    distribute,
    fill_with_blanks,
    fill_with_redraws,
    first_step,
    read_chunks,
)
from keras_vit.data.reading.sources import Indexed, whole_image
from keras_vit.data.reading.stream import Stream
from keras_vit.errors import DataError, ImageError
from keras_vit.models.preprocessing import Preprocessing

DTYPES, AUGMENT_ON = ("float32", "uint8"), ("host", "device")


def weigh_mask(mask):
    """(labels int32 (h, w), weights float32 (h, w)) from class numbers (h, w, 1); IGNORED pixels have weight 0."""
    labels = tf.cast(mask[..., 0], tf.int32)
    return labels, tf.cast(labels != IGNORED, tf.float32)


def require_dtype(dtype):
    if dtype not in DTYPES:
        raise DataError(f"dtype must be 'float32' or 'uint8'. Received: {dtype!r}.")


def require_can_defer(augment_on, examples):
    if augment_on not in AUGMENT_ON:
        raise DataError(f"augment_on must be 'host' or 'device'. Received: {augment_on!r}.")
    if augment_on == "device" and examples.objective is not None:
        raise DataError("Masked patch prediction needs augment_on='host': its targets are made of augmented images.")


@dataclass(frozen=True)
class Examples:
    """One split of one dataset. No image is read before batches are asked for.

    Args:
        name, split: the dataset's name, and the split's.
        class_names: one per class.
        source: the source of the examples (`reading.sources`).
        augmentation: name of the row that suits the dataset, the default in `train`.
        max_unreadable: number of unreadable images that are skipped before an error is raised.
        objective: None to learn labels; or `MaskedPatches`, for batches without labels (`with_objective`).
        evaluation_crop: share of the image that the central crop of `evaluation` keeps, at its aspect ratio; None for
            the crop of the model's preprocessing.

    >>> digits = keras_vit.data.load("digits")
    >>> digits.num_examples, digits.num_classes
    (1293, 10)
    """

    name: str
    split: str
    class_names: tuple[str, ...]
    source: Indexed | Stream
    augmentation: str = "inception"
    max_unreadable: int = 10
    objective: MaskedPatches | None = None
    evaluation_crop: float | None = None

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def num_examples(self) -> int:
        return self.source.num_examples

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several classes or none; labels are then float (num_classes,) of 0 and 1."""
        return self.source.multi_label

    @property
    def masked(self) -> bool:
        """Whether an image has a class per pixel; labels are then int32 (h, w), with 255 for pixels to ignore."""
        return self.source.masked

    def class_counts(self) -> np.ndarray | None:
        """The number of examples of each class, int (num_classes,); None if that required reading all of them.

        >>> keras_vit.data.load("digits").class_counts()
        array([130, 126, ...])
        """
        if self.source.labels is None or self.masked:
            return None
        labels = np.asarray(self.source.labels)
        if labels.ndim > 1:
            return (labels > 0).sum(0)
        return np.bincount(labels, minlength=self.num_classes)

    def steps_per_epoch(self, batch_size: int) -> int:
        """The number of batches for one pass over the examples; the last of them also begins the next pass."""
        return -(-self.num_examples // batch_size)

    def with_objective(self, objective: MaskedPatches | None) -> "Examples":
        """The same examples for a `keras_vit.training.MaskedPatchModel` of this objective; None to learn labels again.

        `train` then gives pairs, and `evaluation` triples with weights (n,), of

        - inputs: "images" (n, h, w, 3), "places" int32 (n, count), the patches that are corrupted and predicted, and
          "sources" int32 (n, patches), the patch whose embedding is used at each place, -1 for the mask embedding;
        - targets: those of the patches at "places", (n, count, ...); see `MaskedPatches.target_shape`.

        Corruption is drawn anew at every visit in training, and is the same in every evaluation.

        >>> digits = keras_vit.data.load("digits").with_objective(keras_vit.data.MaskedPatches(patch_size=16))
        >>> inputs, targets = next(iter(digits.train(8)))
        >>> tuple(inputs["sources"].shape), tuple(inputs["places"].shape), tuple(targets.shape)
        ((8, 196), (8, 98), (8, 98))
        """
        return replace(self, objective=objective)

    @functools.cached_property
    def unreadable(self) -> Unreadable:
        """The images that were skipped in batches of these examples so far."""
        return Unreadable(self.source, f"{self.name} ({self.split})", limit=self.max_unreadable)

    def paths(self) -> list[str] | None:
        """The image files in the order of `evaluation`, without those skipped so far; None if images are not files.

        >>> keras_vit.data.load("digits").paths()
        """
        if self.source.paths is None:
            return None
        files = self.source.paths.numpy()
        return [os.fsdecode(path) for i, path in enumerate(files) if i not in self.unreadable.seen]

    def typical_size(self) -> tuple[int, int] | None:
        """(height, width) in pixels: the medians of 32 images of the split; None if none of these can be read.

        >>> keras_vit.data.load("digits").typical_size()
        (8, 8)
        """
        shapes = []
        for stored in next(iter(self.source.training_chunks(order.share_of(None, 32), 0, 1, order.run_key(0))))["data"]:
            with suppress(tf.errors.OpError, ImageError):  # training skips it too, with a warning
                shapes.append(tuple(self.source.read_part(stored, whole_image, 3).shape[:2]))
        if not shapes:
            return None
        height, width = (int(statistics.median(sides)) for sides in zip(*shapes, strict=True))
        return height, width

    def train(
        self,
        batch_size: int,
        preprocessing: Preprocessing | None = None,
        *,
        augmentation: str | Augmentation | None = None,
        seed: int = 0,
        start: int | tuple[int, int] = 0,
        steps: int | None = None,
        dtype: Literal["float32", "uint8"] = "float32",
        augment_on: Literal["host", "device"] = "host",
        context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Shuffled, augmented batches for training, of static shapes.

        Epochs follow one another endlessly, each in a new order; no example is dropped between them. Batch k is the
        same whether the run started at 0 or at k, and for any number of hosts: all random draws for an example depend
        only on the seed, its epoch and its number. Mixing is within a host's part of the batch. Of a dataset that is
        read as a stream (large ones of TFDS), each host repeats its own files, so that batches depend on the hosts.

        Args:
            batch_size: examples of a global batch.
            preprocessing: the model's (`model.preprocessing`); None for 224 pixels in [-1, 1].
            augmentation: an `Augmentation` or the name of a row of AUGMENTATIONS; None for the dataset's own.
            seed: any int.
            start: the first step, from 0, or (epoch, step), with `steps_per_epoch` steps in an epoch.
            steps: the step to stop before; None for endless batches.
            dtype: "float32": normalized as the model expects. "uint8": pixels 0..255, rounded, a quarter of the bytes
                to transfer; normalizing them on the device differs from "float32" by up to half a pixel value.
            augment_on: "device" leaves RandAugment, mixup and cutmix, if there are any, to the model. Images are then
                a dict of uint8 images and of what is to be done to them, which a model of this package takes wherever
                it takes images. The draws are the same; images are rounded before they are mixed.
            context: that of `tf.distribute`; batches are then this replica's part. None for the only host.

        Returns:
            Dataset of images (n, h, w, c), and labels int32 (n,) or, if mixed, float32 (n, num_classes); with an
            `objective` see `with_objective`. With masks: images, labels int32 (n, h, w), cropped and mirrored like the
            images, by the nearest pixel, and weights float32 (n, h, w), 0 where a label is 255.

        Raises:
            DataError: for a batch that cannot be split evenly, an unknown augmentation or dtype, or an objective with
                augment_on="device".

        >>> batches = keras_vit.data.load("digits").train(32, start=(3, 10), dtype="uint8")
        >>> [tuple(x.shape) for x in next(iter(batches))]
        [(32, 224, 224, 3), (32,)]
        """
        require_dtype(dtype)
        require_can_defer(augment_on, self)
        preprocessing = preprocessing or Preprocessing()
        augmentation = find_augmentation(augmentation or self.augmentation)
        channels, size = len(preprocessing.mean), preprocessing.image_size
        share, key = order.share_of(context, batch_size), order.run_key(seed)
        first = first_step(start, steps, self.steps_per_epoch(batch_size))
        deferred = augment_on == "device" and bool(augmentation.one_hot or augmentation.randaugment)
        if self.objective is not None:
            require_can_corrupt(augmentation, preprocessing, dtype)
        if self.masked and (augmentation.one_hot or augmentation.randaugment):
            raise DataError(
                "Masks follow their images through crops and mirrors, not through mixup, cutmix or RandAugment. Choose "
                "an augmentation without them, such as inception or pad-crop."
            )

        def read(example):
            visit = order.example_seed(key, example["epoch"], example["index"])
            box = functools.partial(training_box, augmentation=augmentation, seed=visit)
            image = self.source.read_part(example["data"], box, channels)
            image = resize_for_training(image, augmentation, size, visit)
            if augmentation.randaugment and not deferred:
                image = randaugment.apply(image, *augmentation.randaugment, visit)
            if self.objective is not None:
                return corrupt_patches(image, self.objective, preprocessing, visit)
            # Pixels are mixed before they are normalized or rounded.
            if deferred or not augmentation.one_hot:
                image = normalize_or_round(image, preprocessing, "uint8" if deferred else dtype)
            label = self.source.read_label(example["label"], box)
            if self.masked:
                return image, *weigh_mask(resize_for_training(label, augmentation, size, visit, "nearest"))
            return (image, label, draw_layers(augmentation, visit)) if deferred else (image, label)

        def mix(step, batch):
            known = {"augmentation": augmentation, "num_classes": self.num_classes, "key": key, "step": step}
            if deferred:
                return describe_batch(*batch, **known)
            finish = functools.partial(normalize_or_round, preprocessing=preprocessing, dtype=dtype)
            return mixing.mix(*batch, **known, finish=finish)

        chunks = self.source.training_chunks(share, first, steps, key)
        batches = self.read_batches(chunks, share, read, channels, redraw=True)
        if deferred or augmentation.one_hot:
            batches = batches.enumerate(first).map(mix, tf.data.AUTOTUNE, deterministic=True)
        return distribute(batches, share, context, None if steps is None else steps - first)

    def evaluation(
        self,
        batch_size: int,
        preprocessing: Preprocessing | None = None,
        *,
        dtype: Literal["float32", "uint8"] = "float32",
        context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Batches of every example once, of static shapes.

        Examples of weight 0 fill the last batch, and blank images of weight 0 replace unreadable ones, so that weighted
        metrics count every example once: compile with `weighted_metrics=[keras_vit.training.Accuracy()]`. Examples are
        in order, except that a blank one moves to the end of its chunk of up to 32.

        Args:
            batch_size, preprocessing, dtype, context: as in `train`.

        Returns:
            Dataset of images (n, h, w, c), labels int32 (n,) and weights float32 (n,). The labels of
            "imagenet2012_real" are float32 (n, 1000), 1 for every correct class. Masks are as in `train`.

        Raises:
            DataError: as in `train`.

        >>> batches = keras_vit.data.load("digits", "test").evaluation(64)
        >>> len(batches), [tuple(x.shape) for x in next(iter(batches))]
        (6, [(64, 224, 224, 3), (64,), (64,)])
        """
        require_dtype(dtype)
        preprocessing = preprocessing or Preprocessing()
        if self.evaluation_crop is not None:
            preprocessing = replace(preprocessing, crop=self.evaluation_crop, crop_mode="center")
        channels, share = len(preprocessing.mean), order.share_of(context, batch_size)
        if self.objective is not None:
            require_can_corrupt(None, preprocessing, dtype)

        def read(example):
            image = self.source.read_part(example["data"], whole_image, channels)
            image = resize_for_evaluation(image, preprocessing)
            if self.objective is not None:
                visit = order.example_seed(order.run_key(0), 0, example["index"])
                return *corrupt_patches(image, self.objective, preprocessing, visit), example["weight"]
            image, weight = normalize_or_round(image, preprocessing, dtype), example["weight"]
            label = self.source.read_label(example["label"], whole_image)
            if self.masked:
                label, counted = weigh_mask(
                    resize_for_evaluation(label, replace(preprocessing, interpolation="nearest"))
                )
                return image, label, weight * counted
            if not self.multi_label and not label.dtype.is_integer:
                weight *= tf.minimum(tf.reduce_sum(label), 1.0)  # 0 for an image without a class, as in ImageNet ReaL
            return image, label, weight

        batches = self.read_batches(self.source.evaluation_chunks(share), share, read, channels, redraw=False)
        return distribute(batches, share, context, self.source.evaluation_steps(share))

    def read_batches(self, chunks, share, read, channels, redraw):
        """Applies `read` to each example of the chunks: a dataset of this host's batches of the results.

        An unreadable image is replaced by another of its chunk with new random draws (`redraw`), or by a blank one.
        """
        read = tf.function(read, autograph=False)  # traced once, for all that call it

        def fill(chunk):
            find = functools.partial(
                self.unreadable.find_readable, channels=channels, redraw=redraw
            )  # it also names the others
            places = tf.ensure_shape(tf.numpy_function(find, [chunk["index"], chunk["data"]], tf.int64), (None,))
            if redraw:
                return fill_with_redraws(chunk, share.chunk, places, read, self.num_examples)
            return fill_with_blanks(chunk, read)

        return read_chunks(chunks, share.chunk, read, fill).batch(share.per_host, drop_remainder=True)

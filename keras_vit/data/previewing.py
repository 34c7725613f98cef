"""Draws training images beside augmented versions of them."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from keras_vit.data.augment.augmentations import Augmentation, find_augmentation
from keras_vit.data.examples import Examples
from keras_vit.data.reading.batches import why_unreadable
from keras_vit.data.reading.sources import take_examples, whole_image
from keras_vit.errors import DataError, shorten
from keras_vit.files import local_path, write_whole
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.pages import write_figure

TILE = 1.6  # inches
LEAST_SHARE = 0.005  # of a label that is written out
LINE = 0.14  # inches of a title's line
CROPS = {
    "inception": "a random part",
    "resize": "resized",
    "resize_crop": "resized, then cropped",
    "resize_small_crop": "resized with its aspect ratio, then cropped",
    "pad_crop": "resized, padded by its reflection, then cropped",
}


def collect_views(
    examples: Examples,
    preprocessing: Preprocessing,
    augmentation: str | Augmentation,
    count: int,
    versions: int,
    seed: int = 0,
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Reads some images, and the augmented views of each that training would see in `versions` epochs.

    Returns the originals, uint8 (h, w, c) of any size; the views, uint8 (count, versions, *image_size, c); the share
    of each image in each view, (count, versions, count), with the sum 1; and the originals' labels.

    >>> digits = keras_vit.data.load("digits")
    >>> _, views, shares, _ = collect_views(digits, Preprocessing((32, 32)), "none", count=2, versions=3)
    >>> views.shape, shares[0].tolist()
    ((2, 3, 32, 32, 3), [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    """
    single = examples.source.labels is not None and np.ndim(examples.source.labels) == 1
    source = take_examples(examples.source, count, seed, stratified=single)
    labels, channels = np.asarray(source.labels), len(preprocessing.mean)
    source.labels = tf.range(count)  # numbers of images in place of classes, to find the shares in a mixed image
    numbered = dataclasses.replace(examples, class_names=tuple(map(str, range(count))), source=source)
    stored = source.lookup(tf.range(count, dtype=tf.int64))
    for i, each in enumerate(stored):
        if reason := why_unreadable(source, each, channels):
            raise DataError(f"{source.name_of(i)} cannot be read: {reason}")
    originals = [np.asarray(source.read_part(each, whole_image, channels)) for each in stored]
    views = np.empty((count, versions, *preprocessing.image_size, channels), "uint8")
    shares = np.empty((count, versions, count), "float32")
    batches = numbered.train(count, preprocessing, augmentation=augmentation, seed=seed, steps=versions, dtype="uint8")
    for version, (images, mixed) in enumerate(batches.as_numpy_iterator()):
        mixed = mixed if mixed.ndim == 2 else np.eye(count, dtype="float32")[mixed]
        rows = mixed.argmax(-1)
        views[rows, version], shares[rows, version] = images, mixed
    return originals, views, shares, labels


def describe_shares(names, shares):
    """The title of an image: "cat", or of a mixed one "cat 70% + dog 30%"."""
    present = [(share, name) for share, name in zip(shares, names, strict=True) if share > LEAST_SHARE]
    if len(present) == 1:
        return shorten(present[0][1], 18)
    return "\n+ ".join(f"{shorten(name, 13)} {share:.0%}" for share, name in sorted(present, reverse=True))


def describe_augmentation(row, name, preprocessing):
    """The augmentation's parts, in words."""
    height, width = preprocessing.image_size
    parts = [CROPS[row.crop], f"{height} x {width} pixels"]
    parts += ["mirrored by chance"] if row.flip else []
    parts += [f"RandAugment{row.randaugment}"] if row.randaugment else []
    parts += [f"{mixing} {value:g}" for mixing in ("mixup", "cutmix") if (value := getattr(row, mixing))]
    return f"Augmentation {name}: {', '.join(parts)}"


def draw_grid(path, originals, views, names, titles, heading):
    rows, columns = views.shape[:2]
    lines = 2 if any("\n" in title for row in titles for title in row) else 1
    height = max(image.shape[0] / image.shape[1] for image in (*originals, views[0, 0]))
    size = TILE * (columns + 1), (TILE * min(height, 1.5) + LINE * lines + 0.1) * rows + 0.4
    with write_figure(path, *size) as figure:
        axes = figure.subplots(rows, columns + 1, squeeze=False)
        for i, (original, name) in enumerate(zip(originals, names, strict=True)):
            pictures = [(original, f"{shorten(name, 16)}, as it is"), *zip(views[i], titles[i], strict=True)]
            for axis, (picture, title) in zip(axes[i], pictures, strict=True):
                axis.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255)
                axis.set_title(title, fontsize=7, parse_math=False)
                axis.set_axis_off()
        figure.suptitle(heading, parse_math=False)


def describe_label(class_names, label):
    """The name of a class number, or the names of a row of 0 and 1, joined as in a CSV file."""
    if not label.ndim:
        return class_names[label]
    return "|".join(name for name, has in zip(class_names, label, strict=True) if has) or "no class"


def draw_preview(
    examples: Examples,
    path: str | os.PathLike,
    preprocessing: Preprocessing | None = None,
    augmentation: str | Augmentation | None = None,
    count: int = 6,
    versions: int = 5,
    seed: int = 0,
) -> None:
    """Draws a PNG of training images: a row for each image, the original first, then augmented versions.

    The versions come from the training pipeline itself, at the model's size. Images are mixed with others of the
    preview; titles state the share of each class.

    Args:
        examples: from `keras_vit.data.load`.
        preprocessing: the model's; None for 224 pixels.
        augmentation: an `Augmentation` or the name of a row of AUGMENTATIONS; None for the dataset's own.
        count: number of images, at most all, chosen at random, from as many classes as possible.
        versions: number of augmented versions of each image.
        seed: for the choice of images and for the augmentation.

    Raises:
        DataError: for an unknown augmentation, or an image that cannot be read.

    >>> small = keras_vit.models.Preprocessing((32, 32))
    >>> draw_preview(keras_vit.data.load("digits"), "preview.png", small, augmentation="bit-mixup")
    """
    path = local_path(path)
    if examples.masked:
        raise DataError(f"A preview shows images of classes, and {examples.name} has masks. Leave it out.")
    if count < 1 or versions < 1:
        raise DataError(f"A preview has at least one image and one version. Received: {count} and {versions}.")
    preprocessing = preprocessing or Preprocessing()
    name = augmentation if isinstance(augmentation, str) else examples.augmentation
    row = find_augmentation(augmentation or examples.augmentation)
    count = min(count, examples.num_examples)
    originals, views, shares, labels = collect_views(examples, preprocessing, row, count, versions, seed)
    names = [describe_label(examples.class_names, label) for label in labels]
    titles = [[describe_shares(names, shares[i, j]) for j in range(versions)] for i in range(count)]
    heading = describe_augmentation(row, "own" if isinstance(augmentation, Augmentation) else name, preprocessing)
    with write_whole(path) as unfinished:
        draw_grid(unfinished, originals, views, names, titles, heading)

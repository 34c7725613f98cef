"""Training batches from folders of JPEG and PNG files, beside bare tf.io decoding, cropping and resizing."""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from benchmarks.subjects import Case, Contestant, Settings
from keras_vit import data
from keras_vit.models import Preprocessing

PHOTOS = 256
STEPS = 36  # batches that are timed
# Batches before and after them, more than are read at once: as many are underway when the clock starts and stops.
AHEAD = 2 + (os.cpu_count() or 1)


def write_photos(folder: Path, ending: str, count: int = PHOTOS) -> Path:
    """Writes parts of two photographs of ImageNet's usual size, 500 x 375, unless they are there."""
    from sklearn.datasets import load_sample_images

    if folder.exists():
        return folder
    rng = np.random.default_rng(0)
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True)
        for i in range(count // 2):
            top, left = rng.integers(0, 52), rng.integers(0, 140)
            part = Image.fromarray(pixels[top : top + 375, left : left + 500])
            part.save(folder / name / f"{i}.{ending}", **({"quality": 90} if ending == "jpg" else {}))
    return folder


def decode_jpeg(content, box):
    return tf.io.decode_and_crop_jpeg(content, box, 3)


def decode_png(content, box):
    return tf.slice(tf.io.decode_png(content, 3), [box[0], box[1], 0], [box[2], box[3], 3])


def read_png_shape(content):
    """(height, width, 3), of the header of a PNG, which has the width first."""
    sides = tf.io.decode_raw(tf.strings.substr(content, 16, 8), tf.int32, little_endian=False)
    return tf.concat([sides[::-1], [3]], 0)


# {last word of a kind: (ending of files, what reads a shape, what decodes a box)}
FILES = {"JPEG": ("jpg", tf.io.extract_jpeg_shape, decode_jpeg), "PNG": ("png", read_png_shape, decode_png)}
WHOLE = "bare, whole image"  # what an augmentation needs that decodes all of it
# What a training asks for; the kinds that begin with "augmented" compare AUGMENTED.
PLAIN = {
    "train, float32": {},
    "train, uint8": {"dtype": "uint8"},
    "train, uint8, not mirrored": {"dtype": "uint8", "augmentation": data.Augmentation(flip=False)},
}
AUGMENTED = {
    **{f"train, {name}": {"augmentation": name} for name in ("inception", "bit", "pad-crop-mixup-cutmix", "medium1")},
    **{
        f"train, {name} on the device": {"augmentation": name, "augment_on": "device"}
        for name in ("pad-crop-mixup-cutmix", "medium1")
    },
}


def make_bare_pipeline(paths, read_shape, decode, batch, size, steps, least_area=0.05):
    """The least that training has to do: read, draw a random box, decode and crop, resize, batch.

    With a `least_area` of 1, the box is the whole image.
    """

    def read(i, path):
        content = tf.io.read_file(path)
        begin, length, _ = tf.image.stateless_sample_distorted_bounding_box(
            read_shape(content),
            tf.zeros((1, 0, 4)),
            tf.stack([i, i]),
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(least_area, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        return tf.image.resize(decode(content, tf.concat([begin[:2], length[:2]], 0)), (size, size))

    files = tf.data.Dataset.from_tensor_slices(paths).repeat().enumerate()
    return files.map(read, tf.data.AUTOTUNE).batch(batch, drop_remainder=True).take(steps).prefetch(tf.data.AUTOTUNE)


def time_batches(make_pipeline):
    """Seconds of STEPS batches in the middle of a pipeline, after what starts with it."""
    iterator = iter(make_pipeline(steps=STEPS + 2 * AHEAD))
    for _ in range(AHEAD):
        next(iterator)
    start = time.perf_counter()
    for _ in range(STEPS):
        next(iterator)
    return time.perf_counter() - start


def enter_pipelines(case: Case, settings: Settings):
    """What a training reads, in the ways that it may be asked for."""
    *augmented, file = case.kind.split()
    ending, read_shape, decode = FILES[file]
    folder = write_photos(settings.files / f"photos-{ending}", ending)
    examples = data.load(f"folder:{folder}", "train+validation")
    preprocessing = Preprocessing((case.image_size, case.image_size))
    bare = partial(make_bare_pipeline, examples.source.paths, read_shape, decode, case.batch, case.image_size)
    pipelines = {"bare": bare} | ({WHOLE: partial(bare, least_area=1.0)} if augmented else {})
    rivals = {}
    for name, given in (AUGMENTED if augmented else PLAIN).items():
        pipelines[name] = partial(examples.train, case.batch, preprocessing, **given)
        crop = data.AUGMENTATIONS[given["augmentation"]].crop if augmented else "inception"
        rivals[name] = ("bare" if crop == "inception" else WHOLE,)

    def enter(name):
        return Contestant(partial(time_batches, pipelines[name]), STEPS * case.batch, rivals.get(name, ()))

    return {name: partial(enter, name) for name in pipelines}

"""Images per second of the data pipelines, beside bare tf.io.decode_and_crop_jpeg and a resize of the same files.

    python benchmarks/data.py [--folder photos] [--rounds 9]

The pipelines take turns: only the ratios mean anything.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import numpy as np
import tensorflow as tf
from PIL import Image
from timing import median_ratio, take_turns

from keras_vit import data
from keras_vit.models import Preprocessing

SIZE = Preprocessing((224, 224))
BATCH = 64


def write_photographs(folder, count=256):
    """Writes parts of two photographs as JPEGs of ImageNet's usual size, 500 x 375."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        path = pathlib.Path(folder, name)
        path.mkdir()
        for i in range(count // 2):
            top, left = rng.integers(0, 52), rng.integers(0, 140)
            Image.fromarray(pixels[top : top + 375, left : left + 500]).save(path / f"{i}.jpg", quality=90)


def bare_pipeline(paths, steps):
    """The least that training has to do: read, draw a random box, decode and crop, resize, batch."""

    def read(i, path):
        content = tf.io.read_file(path)
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(content),
            tf.zeros((1, 0, 4)),
            tf.stack([i, i]),
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        box = tf.concat([begin[:2], size[:2]], 0)
        return tf.image.resize(tf.io.decode_and_crop_jpeg(content, box, 3), SIZE.image_size)

    files = tf.data.Dataset.from_tensor_slices(paths).repeat().enumerate()
    batches = files.map(read, tf.data.AUTOTUNE).batch(BATCH, drop_remainder=True)
    return batches.take(steps).prefetch(tf.data.AUTOTUNE)


def images_per_second(pipeline):
    """Of a function that makes a pipeline; the first batch, and what starts with it, is left out."""
    iterator = iter(pipeline())
    next(iterator)
    start, count = time.perf_counter(), 0
    for _ in iterator:
        count += BATCH
    return count / (time.perf_counter() - start)


def report(folder, rounds, steps):
    examples = data.load(f"folder:{folder}", "train+validation")

    def train(**arguments):
        return examples.train(BATCH, SIZE, steps=steps, **arguments)

    pipelines = {
        "bare decode, crop, resize": lambda: bare_pipeline(examples.source.paths, steps),
        "train, float32": train,
        "train, uint8": lambda: train(dtype="uint8"),
        "train, uint8, not mirrored": lambda: train(dtype="uint8", augmentation=data.Augmentation(flip=False)),
        "train, AugReg medium1": lambda: train(augmentation="medium1"),
    }
    rates = take_turns(pipelines, rounds, warm_up=0, measure=images_per_second)
    bare = rates["bare decode, crop, resize"]
    for name, values in rates.items():
        ratio = median_ratio(values, bare)
        print(f"{name:28} {statistics.median(values):7.0f} images/s   {ratio:.2f} of bare (median of rounds)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="a folder of class folders of JPEGs (default: parts of two photographs)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.folder is None:
            write_photographs(folder)
        report(arguments.folder or folder, arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()

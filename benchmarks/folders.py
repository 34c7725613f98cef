"""Folders of more and more images: their list, a part of them, and the first batch of a training that goes on."""

import os
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.subjects import Case, Contestant, Settings
from keras_vit import data
from keras_vit.evaluation.device.measuring import seconds_per_call
from keras_vit.models import Preprocessing

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
CLASSES = 100
MOST_LINKS = 30_000  # to a file; file systems allow between 32,000 and 65,000
SIDE = 32


def write_names(folder: Path, count: int) -> Path:
    """Makes a folder of `count` names of few files, unless it is there."""
    if folder.exists():
        return folder
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), "uint8")
    for name in range(CLASSES):
        (folder / f"class {name}").mkdir(parents=True)
    for i in range(count):
        path = folder / f"class {i % CLASSES}" / f"{i}.png"
        if i % MOST_LINKS == 0:
            Image.fromarray(pixels).save(path)
            file = path
        else:
            os.link(file, path)
    return folder


def enter_listing(case: Case, settings: Settings):
    """A contestant for each number of images, beside the smallest."""

    def enter(count):
        dataset = f"folder:{write_names(settings.files / f'{count} names', count)}"
        load = partial(data.load, dataset, "train+validation")
        first = f"{COUNTS[0]:,} images"
        over = () if count == COUNTS[0] else (first,)
        if case.kind == "list":
            return Contestant(partial(seconds_per_call, load, 0), count, over)
        if case.kind == "tenth":
            return Contestant(partial(seconds_per_call, partial(load, examples=count // 10, seed=0), 0), count, over)
        examples, preprocessing = load(), Preprocessing((SIDE, SIDE))
        batches = partial(examples.train, case.batch, preprocessing, start=5 * count // case.batch)  # the sixth pass
        return Contestant(partial(seconds_per_call, lambda: next(iter(batches())), 0), 1, over)

    return {f"{count:,} images": partial(enter, count) for count in COUNTS}

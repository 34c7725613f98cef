"""Images without end, made by rule: fractals of 100 classes, where "more data" can mean more data.

Pictures of iterated function systems train vision models (arXiv 2101.08515), and ViTs among them (arXiv 2103.13023).
A class is a system of four affine maps of the plane, and an image draws where five of them in a row take one point, for
all 4^5 choices. In every image the maps are a little other, and the picture is turned, scaled and moved.
Images come in blocks that their numbers alone determine, so nothing is stored, and a subset holds the smaller ones.
"""

import functools

import numpy as np

from keras_vit.data import Examples
from keras_vit.data.reading.sources import Pixels

CLASSES = 100
SIZE = 28  # pixels, as Fashion-MNIST's
MAPS, DEPTH = 4, 5
BLOCK = 500  # images that are made at once
JITTER = 0.1  # deviation of the entries of an image's maps from those of its class
STREAMS = {"train": 0, "train+validation": 0, "validation": 1, "test": 2}
HELD_OUT = 5_000  # images of validation and test


@functools.cache
def draw_classes() -> np.ndarray:
    """The maps of every class, (classes, maps, 2, 3): columns are the linear part and the shift."""
    rng = np.random.default_rng(0)
    turns = rotate(rng.uniform(-np.pi, np.pi, (2, CLASSES, MAPS)))
    stretch = rng.uniform(0.2, 0.8, (CLASSES, MAPS, 1, 2)) * rng.choice([-1, 1], (CLASSES, MAPS, 1, 2))
    linear = (turns[0] * stretch) @ turns[1]
    return np.concatenate([linear, rng.uniform(-1, 1, (CLASSES, MAPS, 2, 1))], axis=-1)


def rotate(angles):
    """Matrices (..., 2, 2) that turn by angles (...)."""
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


def draw_block(stream: int, seed: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (BLOCK, SIZE, SIZE, 1) and labels (BLOCK,) of one block of a stream."""
    rng = np.random.default_rng([stream, seed, block])
    labels = rng.integers(CLASSES, size=BLOCK).astype("int32")
    maps = draw_classes()[labels]
    maps = (maps + JITTER * rng.standard_normal(maps.shape)).astype("float32")
    points = np.zeros((BLOCK, 1, 2), "float32")
    for _ in range(DEPTH):
        points = np.concatenate([points @ maps[:, i, :, :2].mT + maps[:, i, None, :, 2] for i in range(MAPS)], axis=1)
    points -= points.mean(1, keepdims=True)
    points /= np.sqrt(np.square(points).mean((1, 2), keepdims=True)) + 1e-6
    pose = rotate(rng.uniform(-0.5, 0.5, BLOCK)) * rng.uniform(0.14, 0.24, (BLOCK, 1, 1))
    points = points @ pose.astype("float32").mT + rng.uniform(0.4, 0.6, (BLOCK, 1, 2)).astype("float32")
    cells = np.clip((points * SIZE).astype("int32"), 0, SIZE - 1)
    cells = cells[..., 1] * SIZE + cells[..., 0] + SIZE**2 * np.arange(BLOCK)[:, None]
    counts = np.bincount(cells.ravel(), minlength=BLOCK * SIZE**2).reshape(BLOCK, SIZE, SIZE, 1)
    return np.minimum(80 * np.log2(1 + counts), 255).astype("uint8"), labels


@functools.lru_cache(2)  # trainings that follow one another often have the same images
def draw_images(stream: int, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` images and labels of a stream."""
    blocks = [draw_block(stream, seed, block) for block in range(-(-count // BLOCK))]
    images, labels = (np.concatenate(parts)[:count] for parts in zip(*blocks, strict=True))
    return images, labels


def load(split: str, seed: int = 0, count: int = HELD_OUT) -> Examples:
    """The first `count` images of a split and seed: no two splits and no two seeds have an image in common."""
    names = tuple(f"system {number}" for number in range(CLASSES))
    source = Pixels(*draw_images(STREAMS[split], seed, count))
    return Examples("fractals", split, names, source, augmentation="none")

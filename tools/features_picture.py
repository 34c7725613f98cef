"""Draws docs/images/nearest.png: pictures of tests/samples/emoji.zip, and beside each those that are nearest to it.

python tools/features_picture.py
"""

import tempfile
import zipfile
from pathlib import Path

from PIL import Image

import keras_vit
from keras_vit import inference
from keras_vit.images.pillow import read_image
from keras_vit.inference.listing import list_images

ROOT = Path(__file__).parents[1]
QUERIES = ("1f604", "1f1f5-1f1f1", "1f561", "1f469-200d-2695-fe0f")  # a smile, a flag, a clock, a doctor
COUNT, SIDE, GAP = 7, 56, 6  # pictures in a row, pixels of a picture and between two


def draw(rows):
    """Rows of pictures, uint8 (h, w, 3), as one picture; the first of each row stands apart."""
    step = SIDE + GAP
    sheet = Image.new("RGB", (COUNT * step + 3 * GAP, len(rows) * step + GAP), "white")
    for i, row in enumerate(rows):
        for j, pixels in enumerate(row):
            small = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
            sheet.paste(small, (GAP + j * step + (GAP if j else 0), GAP + i * step))
    return sheet


def main():
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(ROOT / "tests/samples/emoji.zip") as archive:
            archive.extractall(folder)
        paths = list_images([folder])
        vectors = keras_vit.embed("R20x0.5:emoji", paths)
        asked = [[Path(path).stem for path in paths].index(stem) for stem in QUERIES]
        numbers, _ = inference.nearest(vectors, vectors[asked], COUNT)
        draw([[read_image(paths[i]) for i in row] for row in numbers]).quantize(128).save(
            ROOT / "docs/images/nearest.png", optimize=True
        )


if __name__ == "__main__":
    main()

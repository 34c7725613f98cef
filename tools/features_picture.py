"""Draws the pictures of docs/features.md from weights that ship: nearest.png, patches.png and probes.png.

python tools/features_picture.py
"""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

import keras_vit
from keras_vit import data, evaluation, inference, inspection, zoo
from keras_vit.images.pillow import read_image
from keras_vit.inference.listing import list_images

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/images"
QUERIES = ("1f601", "1f1f8-1f1fb", "1f565", "1f468-200d-1f52c")  # a smile, a flag, a clock, a scientist
COUNT, SIDE, GAP = 7, 56, 6  # pictures in a row, pixels of a picture and between two
LARGE = 224  # pixels of a side, of which each patch has 16
MODELS = ("R20x0.5:fashion-mnist", "ViT-Mini/4:fashion-mnist")


def tile(rows, resampling, side=SIDE):
    """Rows of pictures, uint8 (h, w, 3), as one picture; the first of each row stands apart."""
    step = side + GAP
    sheet = Image.new("RGB", (len(rows[0]) * step + 3 * GAP, len(rows) * step + GAP), "white")
    for i, row in enumerate(rows):
        for j, pixels in enumerate(row):
            small = Image.fromarray(pixels).resize((side, side), resampling)
            sheet.paste(small, (GAP + j * step + (GAP if j else 0), GAP + i * step))
    return sheet


def draw_nearest(paths, asked):
    """In each row an asked picture and those that are nearest to it."""
    vectors = keras_vit.embed("R20x0.5:emoji", paths)
    numbers, _ = inference.nearest(vectors, vectors[asked], COUNT)
    return tile([[read_image(paths[i]) for i in row] for row in numbers], Image.Resampling.LANCZOS).quantize(128)


def draw_patches(paths, asked):
    """Pictures, and below them the principal components of their patches."""
    model = zoo.load("R20x0.5:emoji", image_size=LARGE, num_classes=0, classifier="patches")
    pictures = [read_image(paths[i]) for i in [*asked, 3, 40]]
    vectors = model.predict(np.concatenate([model.preprocessing(picture[None]) for picture in pictures]), verbose=0)
    colours = (255 * inspection.feature_colours(vectors)).astype("uint8")
    above = [np.asarray(Image.fromarray(picture).resize((LARGE, LARGE))) for picture in pictures]
    below = [np.asarray(Image.fromarray(x).resize((LARGE, LARGE), Image.Resampling.NEAREST)) for x in colours]
    return tile([above, below], Image.Resampling.BOX, 2 * SIDE)


def draw_probes():
    """Accuracy on digits by three probes, with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.2), layout="constrained", dpi=110)
    axis = figure.subplots()
    for i, name in enumerate(MODELS):
        model = inference.open_model(name)
        found = evaluation.probe(
            *(evaluation.extract_features(model, data.load("digits", x)) for x in ("train", "test")), [5]
        )
        places, values = np.arange(len(found)) + 0.36 * (1 - i), [100 * share.value for share in found.values()]
        ends = 100 * np.abs(np.array([[s.value - s.interval[0], s.interval[1] - s.value] for s in found.values()])).T
        axis.barh(places, values, 0.34, xerr=ends, label=name, error_kw={"elinewidth": 1})
    axis.set_yticks(np.arange(len(found)) + 0.18, list(found))
    axis.invert_yaxis()
    axis.set_xlabel("digits of the test split that are classified correctly, %")
    axis.legend(loc="lower left", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def main():
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(ROOT / "tests/samples/emoji.zip") as archive:
            archive.extractall(folder)
        paths = list_images([folder])
        asked = [[Path(path).stem for path in paths].index(f"{code}_twitter") for code in QUERIES]
        draw_nearest(paths, asked).save(OUT / "nearest.png", optimize=True)
        draw_patches(paths, asked).save(OUT / "patches.png", optimize=True)
    draw_probes().savefig(OUT / "probes.png")


if __name__ == "__main__":
    main()

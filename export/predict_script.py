"""Classifies images with a model of this folder: python predict.py IMAGE... [--model model.onnx] [--top 5]

Needs numpy, Pillow and the runtime of the model, which it names if it is missing. Reads model.json beside it.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

try:
    import numpy as np
    from PIL import Image
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is not installed. Install what this needs: pip install numpy pillow")
with contextlib.suppress(ModuleNotFoundError):
    import pillow_heif  # reads the .heic files of phones

    pillow_heif.register_heif_opener()

# In a bundle, the imported code is written out here.
from keras_vit.images.pillow import FORMATS, MOST_PIXELS, to_array
from keras_vit.images.pixels import resize_and_crop, size_before_crop

HERE = Path(__file__).resolve().parent
ImageError = ValueError  # raised in the code that is written out


def preprocess(x, image_size, crop, interpolation, mean, std, crop_mode="center"):
    """uint8 (h, w, c) to the model's input, float32 (*image_size, c)."""
    rules = SimpleNamespace(image_size=image_size, crop=crop, crop_mode=crop_mode, interpolation=interpolation)
    size = size_before_crop(np.array(x.shape[:2], "float64"), rules).astype(int)
    require_few_pixels(size)
    return ((resize_and_crop(x, size, rules) / 255 - mean) / std).astype("float32")


def require_few_pixels(size):
    if size[0] * size[1] > MOST_PIXELS:
        raise ValueError(f"{size[0]} x {size[1]} pixels are more than {MOST_PIXELS:,}")


def open_image(path, channels):
    """Reads an image file as uint8 (h, w, channels), upright; transparency is laid on white, except in 4 channels."""
    if not Path(path).is_file():
        raise ValueError("there is no such file, or it is a folder")
    Image.init()
    with Image.open(path, formats=[name for name in FORMATS if name in Image.OPEN]) as image:
        require_few_pixels(image.size)
        return to_array(image, channels)


# By format. In a bundle's predict.py they have a loader, and the package to install, for each artefact.
LOADERS = {}
PACKAGES = {}


def load_model(artefact):
    """A function from an image, float32 (1, h, w, c), to a batch of its logits, for an entry of model.json."""
    try:
        run = LOADERS[artefact["format"]](HERE / artefact["file"])
    except ModuleNotFoundError:
        package = PACKAGES[artefact["format"]]
        sys.exit(f"{artefact['file']} runs in {package}, which is not installed: pip install {package}")
    return lambda x: run([np.repeat(x, artefact["batches"][0], axis=0)])[0]


def printable(text):
    """The text with control characters escaped, since a terminal would obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def softmax(logits):
    x = np.exp(logits - logits.max())
    return x / x.sum()


def sigmoid(logits):
    return np.exp(-np.logaddexp(0, -logits))


def pixel_shares(logits):
    """Shares of the pixels, of logits (h, w, classes)."""
    return np.bincount(logits.argmax(-1).ravel(), minlength=logits.shape[-1]) / logits[..., 0].size


def main():
    about = json.loads((HERE / "model.json").read_text("utf-8"))
    artefacts = about["artefacts"]
    parser = argparse.ArgumentParser(description="Asks a model of this folder for classes, or its vectors.")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--model", default=artefacts[0]["file"], help="a file or folder beside this script")
    parser.add_argument("--top", type=int, default=5)
    arguments = parser.parse_args()
    chosen = [entry for entry in artefacts if HERE / entry["file"] == HERE / arguments.model]
    if not chosen or not (HERE / arguments.model).exists():
        sys.exit(f"There is no {printable(arguments.model)} beside this script. Expected a file that model.json lists.")
    run = load_model(chosen[0])
    to_probabilities = {"softmax": softmax, "sigmoid": sigmoid, "output": lambda x: x}.get(about["probabilities"])
    Image.MAX_IMAGE_PIXELS = None  # MOST_PIXELS is stricter
    failed = False
    for path in arguments.images:
        try:
            x = preprocess(open_image(path, about["inputs"][0]["shape"][-1]), **about["preprocessing"])
        except Exception as error:  # Pillow raises many errors for damaged files, and MemoryError
            print(f"{printable(path)} cannot be read as an image: {printable(error)}", file=sys.stderr)
            failed = True
            continue
        logits = run(x[None])[0].astype("float64")
        if to_probabilities is None:
            print(printable(path), *(f"{x:.6g}" for x in logits.ravel()), sep="\t")
            continue
        probabilities = to_probabilities(logits) if logits.ndim == 1 else pixel_shares(logits)
        scores = logits if logits.ndim == 1 else probabilities
        for i in np.argsort(-scores, kind="stable")[: arguments.top]:  # of equal ones the first, as `keras-vit predict`
            name = about["labels"][i] if about["labels"] else i
            print(f"{printable(path)}\t{probabilities[i]:.4f}\t{printable(name)}")
    sys.exit(failed)


if __name__ == "__main__":
    main()

"""The pictures that a page tries itself on, with what the package makes of them."""

import numpy as np

from keras_vit.export.proof.probes import generate_images
from keras_vit.images.pillow import ORIENTATION, read_image

SHOWN = 4
LARGEST = 1024  # pixels of a picture's longer side
SIZES = ((301, 224), (223, 330))  # of photographs, which must be resized: (height, width)
LYING = 6  # EXIF 2.3, section 4.6.4: to be turned clockwise by 90 degrees


def choose_pictures(pictures, inputs, preprocessing):
    """Up to SHOWN uint8 images (h, w, c): those given, or two of the bundle's examples and two photographs."""
    if pictures is not None:
        return list(pictures)[:SHOWN]
    photographs = [next(generate_images(*size, seed=seed)) for seed, size in enumerate(SIZES, 3)]
    return [*as_pixels(inputs[:2], preprocessing), *photographs]


def write_pictures(folder, pictures):
    """Writes pictures, uint8 (h, w, c), and returns the files' names; the last is a JPEG that lies on its side."""
    from PIL import Image

    names = []
    for number, pixels in enumerate(pictures, 1):
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        image.thumbnail((LARGEST, LARGEST))
        names.append(f"{number - 1}.{'png' if number < len(pictures) else 'jpg'}")
        if number < len(pictures):
            image.save(folder / names[-1])
        else:
            exif = Image.Exif()
            exif[ORIENTATION] = LYING
            image.transpose(Image.Transpose.ROTATE_90).save(folder / names[-1], quality=95, subsampling=0, exif=exif)
    return names


def as_pixels(inputs, preprocessing):
    """A model's inputs (n, h, w, c) as the uint8 images that they were made of."""
    pixels = (inputs * np.asarray(preprocessing.std) + np.asarray(preprocessing.mean)) * 255
    return np.clip(np.rint(pixels), 0, 255).astype("uint8")


def write_examples(folder, pictures, inputs, model, run):
    """Writes pictures and, beside each, the model's input for it as little-endian float32.

    Args:
        pictures: uint8 images (h, w, c) of any size, of which up to four are shown; None for others.
        inputs: float32 (n, h, w, c), the bundle's examples.
        run: float32 images (n, h, w, c) to the model's logits.

    Returns:
        A list of {"file": the picture, "input": the file beside it, "logits": the model's}.
    """
    entries = []
    channels = inputs.shape[-1]
    for name in write_pictures(folder, choose_pictures(pictures, inputs, model.preprocessing)):
        x = np.asarray(model.preprocessing(read_image(folder / name, channels)[None]), "<f4")
        raw = f"{name.partition('.')[0]}.f32"
        (folder / raw).write_bytes(x.tobytes())
        entries.append({"file": name, "input": raw, "logits": [float(logit) for logit in run(x)[0]]})
    return entries

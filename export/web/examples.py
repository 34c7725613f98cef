"""The pictures that a page tries itself on, with what the package makes of them."""

import itertools

import numpy as np

from keras_vit.export.proof.probes import generate_images
from keras_vit.images.pillow import ORIENTATION, read_image

OWN = 2  # of the bundle's examples, as they are
# Of photographs, which must be resized: (height, width), ending. The JPEG lies on its side and its EXIF says so.
PHOTOGRAPHS = (((301, 224), "png"), ((223, 330), "jpg"))
LYING = 6  # EXIF 2.3, section 4.6.4: to be turned clockwise by 90 degrees


def write_pictures(folder, inputs, preprocessing):
    """Writes pictures into the folder; the names of the files.

    Args:
        inputs: float32 (n, h, w, c), the bundle's examples.
        preprocessing: the model's.
    """
    from PIL import Image

    names = []
    for i, image in enumerate(as_pixels(inputs[:OWN], preprocessing)):
        names.append(f"{i}.png")
        Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(folder / names[-1])
    for size, ending in PHOTOGRAPHS:
        names.append(f"{len(names)}.{ending}")
        (pixels,) = itertools.islice(generate_images(*size, seed=len(names)), 1)
        image = Image.fromarray(pixels)
        if ending == "jpg":
            exif = Image.Exif()
            exif[ORIENTATION] = LYING
            image.transpose(Image.Transpose.ROTATE_90).save(folder / names[-1], quality=95, subsampling=0, exif=exif)
        else:
            image.save(folder / names[-1])
    return names


def as_pixels(inputs, preprocessing):
    """A model's inputs (n, h, w, c) as the uint8 images that they were made of."""
    pixels = (inputs * np.asarray(preprocessing.std) + np.asarray(preprocessing.mean)) * 255
    return np.clip(np.rint(pixels), 0, 255).astype("uint8")


def write_examples(folder, inputs, model, run):
    """Writes pictures and, beside each, the model's input for it as little-endian float32.

    Args:
        inputs: float32 (n, h, w, c), the bundle's examples.
        run: float32 images (n, h, w, c) to the model's logits.

    Returns:
        A list of {"file": the picture, "input": the file beside it, "logits": the model's}.
    """
    entries = []
    channels = inputs.shape[-1]
    for name in write_pictures(folder, inputs, model.preprocessing):
        x = np.asarray(model.preprocessing(read_image(folder / name, channels)[None]), "<f4")
        raw = f"{name.partition('.')[0]}.f32"
        (folder / raw).write_bytes(x.tobytes())
        entries.append({"file": name, "input": raw, "logits": [float(logit) for logit in run(x)[0]]})
    return entries

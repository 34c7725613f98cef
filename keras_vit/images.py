"""Pictures from files, as the command line and the data pipelines take them."""

import struct
from contextlib import contextmanager

import numpy as np

from keras_vit.errors import ConfigError, ImageError

MOST_PIXELS = 100_000_000
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
ORIENTATION = 0x0112  # EXIF 2.3, section 4.6.4
# What Pillow raises for damaged files (tens of thousands of them tried).
BROKEN = (OSError, ValueError, TypeError, LookupError, SyntaxError, EOFError, RuntimeError, struct.error)


def read_image(path, num_channels=3):
    """A picture file (JPEG, PNG and what else Pillow reads) as uint8 (h, w, num_channels), upright.

    Of several frames it is the first; transparency is left out unless the model takes 4 channels.

    Raises:
        ImageError: when there is no such file, it is no picture, or has over 100 million pixels.
        ConfigError: for a number of channels that pictures do not have.
    """
    if num_channels not in MODES:
        raise ConfigError(f"A picture file has 1, 3 or 4 channels. The model takes {num_channels}.")
    try:
        with opened(path) as picture:
            return pixels(picture, num_channels)
    except FileNotFoundError as error:
        raise ImageError(f"There is no picture {path}.") from error
    except ImageError as error:
        raise ImageError(f"{path} cannot be read as a picture: {error} Expected a JPEG or PNG file.") from error


@contextmanager
def opened(file):
    """Pillow's picture of a file, a path or a binary file, of which only the header is read.

    Raises:
        ImageError: here and within the context, for a damaged or too large picture; a sentence without its name.
        FileNotFoundError: when there is no such path.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ImageError(
                    f"it has {picture.width:,} x {picture.height:,} pixels, at most {MOST_PIXELS:,} are read."
                )
            yield picture
    except (FileNotFoundError, ImageError):
        raise
    except UnidentifiedImageError as error:
        raise ImageError("it is of no kind that Pillow knows, or its beginning is damaged.") from error
    except (*BROKEN, Image.DecompressionBombError) as error:
        raise ImageError(f"{str(error).rstrip('.')}.") from error


def pixels(picture, num_channels):
    """Pillow's picture as uint8 (h, w, num_channels), upright."""
    from PIL import ImageOps

    if orientation(picture) > 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # straight to RGB gives the same, and a warning
    converted = np.asarray(in_8_bits(picture).convert(MODES[num_channels]))
    return converted[..., None] if num_channels == 1 else converted


def orientation(picture):
    """How the camera was turned, 1 (upright) to 8; 1 where a picture says nothing or nonsense."""
    try:
        found = picture.getexif().get(ORIENTATION, 1)
    except BROKEN:
        return 1
    return found if found in range(1, 9) else 1


def in_8_bits(picture):
    """The picture, if it is of 16 bits of grey, by its upper 8, where Pillow would clip it."""
    from PIL import Image

    if picture.mode == "F":
        raise ImageError("its pixels are fractions of no known range.")
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture) >> 8).astype("uint8"))

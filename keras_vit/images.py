"""Pictures from files, as the command line takes them."""

import numpy as np

from keras_vit.errors import ConfigError, ImageError

MOST_PIXELS = 100_000_000
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path, num_channels=3):
    """A picture file (JPEG, PNG and what else Pillow reads) as uint8 (h, w, num_channels).

    Raises:
        ImageError: when there is no such file, it is no picture, or has over 100 million pixels.
        ConfigError: for a number of channels that pictures do not have.
    """
    from PIL import Image, ImageOps

    if num_channels not in MODES:
        raise ConfigError(f"A picture file has 1, 3 or 4 channels. The model takes {num_channels}.")
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ImageError(
                    f"{path} has {picture.width:,} x {picture.height:,} pixels; at most {MOST_PIXELS:,} are read."
                )
            upright = in_8_bits(ImageOps.exif_transpose(picture))
            pixels = np.asarray(upright.convert(MODES[num_channels]))
    except FileNotFoundError as error:
        raise ImageError(f"There is no picture {path}.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path} cannot be read as a picture: {error}. Expected a JPEG or PNG file.") from error
    return pixels[..., None] if num_channels == 1 else pixels


def in_8_bits(picture):
    """The picture, if it is of 16 bits of grey, by its upper 8, where Pillow would clip it."""
    from PIL import Image

    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture) >> 8).astype("uint8"))

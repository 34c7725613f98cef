"""Pictures from files, as the command line takes them."""

import numpy as np

from keras_vit.errors import ImageError

MOST_PIXELS = 100_000_000


def read_image(path, num_channels=3):
    """A picture file (JPEG, PNG and what else Pillow reads) as uint8 (h, w, num_channels).

    Raises:
        ImageError: when there is no such file, it is no picture, or has over 100 million pixels.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ImageError(
                    f"{path} has {picture.width:,} x {picture.height:,} pixels; at most {MOST_PIXELS:,} are read."
                )
            upright = ImageOps.exif_transpose(picture).convert("L" if num_channels == 1 else "RGB")
            pixels = np.asarray(upright)
    except FileNotFoundError as error:
        raise ImageError(f"There is no picture {path}.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path} cannot be read as a picture: {error}. Expected a JPEG or PNG file.") from error
    return pixels[..., None] if num_channels == 1 else pixels

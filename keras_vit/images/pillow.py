"""Images from files, as the command line and the data pipelines take them: what may be opened, and how much of it."""

import io
import os
import re
import stat
from contextlib import contextmanager

import numpy as np

from keras_vit.errors import ConfigError, ImageError

# What Pillow may open; JPEG includes MPO. Others start programs (EPS: Ghostscript) or have old decoders (PSD, FITS).
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000")
MOST_PIXELS = 2**26  # 8192 x 8192; cameras' 61 million
MOST_BYTES = 8 * MOST_PIXELS  # four channels of 16 bits each
MOST_SCANNED = 64 * MOST_PIXELS  # pixels times scans of a JPEG: seconds. Encoders write 1 to 20 scans.
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
ORIENTATION = 0x0112  # EXIF 2.3, section 4.6.4

ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://([^?#]*@)?(?P<place>[^?#]*)", re.IGNORECASE)
KINDS = {
    "a folder": stat.S_ISDIR,
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}
# A marker of ITU-T T.81, table B.1, that ends coded data and has a length: neither a stuffed zero nor a restart.
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
SOI, SOS, EOI = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"


def read_image(path, num_channels=3):
    """An image file of one of FORMATS as uint8 (h, w, num_channels), upright.

    Of several frames it is the first; transparency is left out unless the model takes 4 channels.

    Raises:
        ImageError: when there is no such file, or it is not an image, or is too large.
        ConfigError: for a number of channels that images do not have.
    """
    if num_channels not in MODES:
        raise ConfigError(f"A picture file has 1, 3 or 4 channels. The model takes {num_channels}.")
    try:
        with opened(contents(path)) as picture:
            return pixels(picture, num_channels)
    except FileNotFoundError as error:
        raise ImageError(missing(path)) from error
    except ImageError as error:
        raise ImageError(f"{path} cannot be read as a picture: {error} Expected a JPEG or PNG file.") from error


def missing(path):
    """The sentence about a path where there is no file; of an address, it leaves out what may be secret."""
    address = ADDRESS.match(str(path))
    if address:
        return f"{address['scheme']}://{address['place']} is an address. Download it first, and give the file."
    return f"There is no picture {path}."


def contents(path):
    """The bytes of a file; what is not a regular file is not opened.

    Raises:
        ImageError: as `opened`.
        FileNotFoundError: when there is no such path.
    """
    try:
        about = os.stat(path)
        for kind, is_kind in KINDS.items():
            if is_kind(about.st_mode):
                raise ImageError(f"it is {kind}.")
        if about.st_size > MOST_BYTES:
            raise ImageError(f"it has {about.st_size:,} bytes; at most {MOST_BYTES:,} are read.")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ImageError(sentence(error)) from error


@contextmanager
def opened(data):
    """Pillow's picture of a file's bytes, of which only the header is decoded.

    Raises:
        ImageError: here and within the context, for a damaged or too large picture; a sentence without its name.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            require_few_pixels(picture, data)
            yield picture
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(f"it has more than the {MOST_PIXELS:,} pixels that are read.") from error
    except UnidentifiedImageError as error:
        raise ImageError("it has none of the formats that are read, or its beginning is damaged.") from error
    except Exception as error:  # damaged files make Pillow raise nearly all that Python has
        raise ImageError(sentence(error)) from error


def sentence(error):
    """What an error of Python's or Pillow's says, or its kind, with a full stop."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is."
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{said.rstrip('.')}."


def require_few_pixels(picture, data):
    """Raises ImageError for too many pixels, or for too many scans of a JPEG, each of which takes time for them all."""
    number = picture.width * picture.height
    if number > MOST_PIXELS:
        raise ImageError(f"it has {picture.width:,} x {picture.height:,} pixels; at most {MOST_PIXELS:,} are read.")
    most = MOST_SCANNED // max(number, 1)
    if data.startswith(SOI) and data.count(SOS) > most:
        scans = number_of_scans(data)
        if scans > most:
            raise ImageError(f"it has {scans:,} scans of {number:,} pixels; at most {most:,} of these are read.")


def number_of_scans(data):
    """Scans of a JPEG; what looks like others may lie in its notes and after its end."""
    scans, at = 0, len(SOI)
    while (marker := MARKER.search(data, at)) and marker[0] != EOI:
        scans += marker[0] == SOS
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return scans


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
    except Exception:  # as in `opened`
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

"""Reads image files by Pillow as uint8 arrays, within limits on their formats and sizes.

TensorFlow's side, for the pipelines and exports that decode in a graph, is in tf_jpeg.py.
"""

import functools
import io
import os
import re
from contextlib import contextmanager, suppress

import numpy as np

from keras_vit.errors import ConfigError, ImageError, describe_install
from keras_vit.files import name_address, open_regular

# Limits on images for every reader; `export.card` also writes them into predict.py of a bundle.
MOST_PIXELS = 2**26  # 8192 x 8192; cameras have up to 61 million
MOST_BYTES = 8 * MOST_PIXELS  # of a file: four channels of 16 bits each
MOST_SCANNED = 64 * MOST_PIXELS  # pixels times scans of a JPEG: seconds. Encoders write 1 to 20 scans.
# What Pillow may open; JPEG includes MPO. Others start programs (EPS: Ghostscript) or have old decoders (PSD, FITS).
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "AVIF", "JPEG2000", "HEIF")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
ORIENTATION = 0x0112  # EXIF 2.3, section 4.6.4
# What turns an image upright, by its orientation from 2 on: names of Pillow's transpositions.
UPRIGHT = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")

# A marker of ITU-T T.81, table B.1, that ends coded data and has a length: neither a stuffed zero nor a restart.
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
HEIC = re.compile(rb".{4}ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL)  # ISO/IEC 23008-12, clause 10
SOI, SOS, EOI = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
# The first bytes of a PNG (ISO/IEC 15948, clauses 5 and 11.2.2) with sides under 8192, of grey or RGB in 8 bits.
PNG = re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR(\0\0[\0-\x1f].){2}\x08(?P<colour>[\0\x02])\0\0[\0\x01]", re.DOTALL)
PNG_COLOURS = {1: b"\0", 3: b"\x02"}
PNG_FRAME = 12  # bytes of a chunk besides its content: length, type and checksum
# Chunks that change how a PNG's pixels are shown: transparency, animation, and the ways to state a rotation.
ASIDE = re.compile(rb"tRNS|acTL|eXIf|[tzi](?:TXt|EXt)(?:XML:com\.adobe\.xmp|Raw profile type)")


@functools.cache
def installed_formats():
    """The formats in FORMATS that Pillow reads here; HEIF needs pillow-heif, from the extra `heic`."""
    from PIL import Image

    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def describe_missing(path):
    """The message for a path where there is no file."""
    if address := name_address(path):
        return f"{address} is an address. Download it first, and pass the file."
    return f"There is no image {path}."


def describe_error(error):
    """The message of an error of Python's or Pillow's, or else its class, with a full stop."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is."
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{message.rstrip('.')}."


def read_bytes(path):
    """The bytes of a regular file, or of a link to one; errors are ImageErrors, except FileNotFoundError."""
    try:
        with open_regular(os.path.expanduser(path), follow_links=True) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise ImageError(f"it has {size:,} bytes; at most {MOST_BYTES:,} are read.")
            return file.read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ImageError(describe_error(error)) from error


def count_scans(data):
    """The number of scans in a JPEG; bytes in its comments or after its end only look like more scans."""
    scans, at = 0, len(SOI)
    while (marker := MARKER.search(data, at)) and marker[0] != EOI:
        scans += marker[0] == SOS
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return scans


def require_within_limits(image, data):
    """Refuses too many pixels, and too many scans of a JPEG, since each scan takes time for all pixels."""
    number = image.width * image.height
    if number > MOST_PIXELS:
        raise ImageError(f"it has {image.width:,} x {image.height:,} pixels; the limit is {MOST_PIXELS:,}.")
    most = MOST_SCANNED // max(number, 1)
    if data.startswith(SOI) and data.count(SOS) > most:
        scans = count_scans(data)
        if scans > most:
            raise ImageError(f"it has {scans:,} scans of {number:,} pixels; at most {most:,} of these are read.")


def is_plain_png(data, num_channels):
    """Whether a file is an upright PNG of `num_channels` channels of 8 bits, without transparency.

    Its pixels are skipped, not decoded.
    """
    header = PNG.match(data)
    if header is None or header["colour"] != PNG_COLOURS[num_channels]:
        return False
    at, kind = header.end() + 4, b""  # after the header's checksum
    while kind != b"IEND" and at + PNG_FRAME <= len(data):
        kind = data[at + 4 : at + 8]
        if ASIDE.match(data, at + 4):
            return False
        at += PNG_FRAME + int.from_bytes(data[at : at + 4], "big")
    return kind == b"IEND" and at == len(data)


@contextmanager
def blame_image():
    """A context for reading an image by Pillow: turns every error into an ImageError that begins with "it"."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(f"it has more than the {MOST_PIXELS:,} pixels that are read.") from error
    except UnidentifiedImageError as error:
        known = ", ".join(installed_formats())
        raise ImageError(f"it has none of the formats that are read ({known}), or its beginning is damaged.") from error
    except Exception as error:  # damaged files make Pillow raise nearly all that Python has
        raise ImageError(describe_error(error)) from error


@contextmanager
def open_image(data):
    """Opens the bytes of a file as Pillow's image, inside `blame_image`; decodes only the header."""
    from PIL import Image

    if HEIC.match(data) and "HEIF" not in installed_formats():
        raise ImageError(f"it is a HEIC picture, which pillow-heif reads: {describe_install('heic')}.")
    with blame_image(), Image.open(io.BytesIO(data), formats=installed_formats()) as image:
        require_within_limits(image, data)
        yield image


def read_orientation(image):
    """The EXIF orientation of Pillow's image, 1 (upright) to 8; 1 if it is missing or invalid."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # as in `blame_image`
        return 1
    return found if found in range(1, 9) else 1


def to_8_bits(image):
    """The image in 8 bits, with its transparency: the upper 8 bits of 16-bit grey, where Pillow would clip.

    Of 32 bits, numbers up to 255 are taken for 8 bits, up to 65,535 for 16.
    """
    from PIL import Image

    if image.mode == "F":
        raise ImageError("its pixels are fractions of an unstated range.")
    if not image.mode.startswith("I"):
        return image
    deep = np.asarray(image)
    if deep.min() < 0 or deep.max() > 0xFFFF:
        raise ImageError("its pixels are whole numbers of more than 16 bits.")
    is_short = image.mode == "I" and deep.max() < 256
    grey = Image.fromarray((deep if is_short else deep >> 8).astype("uint8"))
    if "transparency" not in image.info:
        return grey
    opaque = np.where(deep == image.info["transparency"], 0, 255).astype("uint8")
    return Image.merge("LA", (grey, Image.fromarray(opaque)))


def lay_on_white(pixels: np.ndarray) -> np.ndarray:
    """Pixels (..., 4), uint8, the last channel opacity, laid on white: uint8 (..., 3), rounded.

    >>> lay_on_white(np.array([[255, 0, 0, 0], [255, 0, 0, 128], [255, 0, 0, 255]], "uint8")).tolist()
    [[255, 255, 255], [255, 127, 127], [255, 0, 0]]
    """
    colours, opacity = pixels[..., :3].astype("uint16"), pixels[..., 3:].astype("uint16")
    return ((colours * opacity + 255 * (255 - opacity) + 127) // 255).astype("uint8")


def to_array(image, num_channels):
    """Pillow's image as uint8 (h, w, num_channels), upright; transparency is laid on white, except in 4 channels."""
    from PIL import Image

    image.load()  # turns a TIFF upright
    # ImageOps.exif_transpose also writes the EXIF data again, and fails at entries of unusual types.
    if (orientation := read_orientation(image)) > 1:
        image = image.transpose(Image.Transpose[UPRIGHT[orientation - 2]])
    image = to_8_bits(image)
    if num_channels < 4 and image.has_transparency_data:
        image = Image.fromarray(lay_on_white(np.asarray(image.convert("RGBA"))))
    array = np.asarray(image.convert(MODES[num_channels]))
    return array[..., None] if num_channels == 1 else array


def read_image(path: str | os.PathLike, num_channels: int = 3) -> np.ndarray:
    """Reads an image file of one of FORMATS as uint8 (h, w, num_channels), upright.

    It reads the first of several frames. Transparency is laid on white, unless `num_channels` is 4.

    Raises:
        ImageError: when the file does not exist, is not an image, or is too large.
        ConfigError: when num_channels is not 1, 3 or 4.

    >>> keras_vit.images.pillow.read_image("cat.jpg").shape  # doctest: +SKIP
    (375, 500, 3)
    """
    if num_channels not in MODES:
        raise ConfigError(f"An image file has 1, 3 or 4 channels. The model takes {num_channels}.")
    try:
        with open_image(read_bytes(path)) as image:
            return to_array(image, num_channels)
    except FileNotFoundError as error:
        raise ImageError(describe_missing(path)) from error
    except ImageError as error:
        raise ImageError(f"{path} cannot be read as an image: {error} Expected a JPEG or PNG file.") from error

"""Turns what callers pass as an image into pixels; resizes them for a model's crop; paints them by classes.

`preprocessing` is any object with the fields image_size, crop, crop_mode and interpolation of `models.Preprocessing`.
"""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import MODES, blame_image, open_image, read_image, require_within_limits, to_array

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | os.PathLike[str] | bytes | np.ndarray[Any, Any] | Image

# Kernels with negative weights: pixels beside an edge can leave [0, 255].
OVERSHOOTING = ("bicubic", "lanczos3")
EXPECTED = "Expected whole numbers from 0 to 255 (uint8)."


def require_pixels(array: np.ndarray) -> None:
    """Refuses an array whose numbers are not pixels from 0 to 255.

    Floats up to 1 are refused: they may be pixels divided by 255, and would all be black.
    """
    if array.dtype == "uint8" or not array.size:
        return
    if array.dtype.kind not in "iuf":
        raise ImageError(f"An array of {array.dtype} is no image. {EXPECTED}")
    least, most = array.min(), array.max()
    if not np.isfinite([least, most]).all():
        raise ImageError(f"{EXPECTED} Received: {array.dtype} with NaN or infinity.")
    received = f"{EXPECTED} Received: {array.dtype} from {least:.5g} to {most:.5g}."
    if least < 0:
        raise ImageError(f"{received} If the image is normalized already, give it to the model itself: model(images).")
    if not most <= 255:
        raise ImageError(f"{received} For 16 bits keep the upper 8: (image // 256).astype('uint8').")
    if array.dtype.kind == "f" and 0 < most <= 1:
        raise ImageError(f"{received} Multiply it by 255: (255 * image).round().astype('uint8').")


def require_images(images: Any, num_channels: int) -> None:
    """Refuses all but images (n, h, w, num_channels) with pixels from 0 to 255; of symbolic ones, other shapes."""
    if isinstance(images, str | bytes | os.PathLike):
        raise ImageError(
            f"preprocessing takes pixels, not a file. Received: a {type(images).__name__}. "
            "keras_vit.predict(model, path) reads files."
        )
    if not hasattr(images, "shape"):
        sizes = {np.shape(image) for image in images}
        if len(sizes) > 1:
            raise ImageError(f"preprocessing takes images of one size at a time. Received: {sorted(sizes)}.")
        images = np.asarray(images)
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[-1] not in (None, num_channels) or 0 in shape[1:]:
        raise ImageError(
            f"preprocessing takes images of the shape (n, height, width, {num_channels}). Received: {shape}. "
            "keras_vit.predict(model, image) takes one image of any kind."
        )
    try:
        array = np.asarray(images)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):  # a symbolic tensor of TensorFlow, JAX or Keras
        return
    if isinstance(images, np.ndarray) or array.dtype.kind in "iuf":  # not bfloat16
        require_pixels(array)


def image_of_array(array):
    """Makes Pillow's image from an array, or from anything that numpy converts to one, such as a tensor."""
    from PIL import Image

    if not hasattr(array, "__array__") and not hasattr(array, "shape"):
        raise ImageError(
            "An image is a path, bytes, an image of Pillow, or an array of pixels. Received: an object of the type "
            f"{type(array).__name__}."
        )
    array = np.asarray(array)
    if array.ndim not in (2, 3) or not array.size or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        several = " For several images pass a list of them." if array.ndim == 4 else ""
        raise ImageError(
            "An image is an array of the shape (height, width), or (height, width, channels) with 1, 3 or 4 channels. "
            f"Received: {array.shape}.{several}"
        )
    require_pixels(array)
    array = array.round().astype("uint8")
    return Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)


def read_any_image(image: "Picture", num_channels: int = 3) -> np.ndarray:
    """Reads one image of any kind as uint8 (h, w, num_channels), upright; transparency is laid on white.

    Args:
        image: a path, the bytes of a file, Pillow's image, or an array (h, w), (h, w, 1), (h, w, 3), or (h, w, 4) with
            opacity, of pixels from 0 to 255.

    Raises:
        ImageError: when it cannot be read as an image, or its numbers are not pixels.
        ConfigError: when num_channels is not 1, 3 or 4.

    >>> read_any_image(np.full((30, 40), 255, "uint8")).shape
    (30, 40, 3)
    """
    from PIL import Image

    if num_channels not in MODES:
        raise ConfigError(f"An image has 1, 3 or 4 channels. The model takes {num_channels}.")
    if isinstance(image, str | os.PathLike):
        return read_image(image, num_channels)
    what = "The image cannot be read"
    try:
        if isinstance(image, bytes | bytearray | memoryview):
            what = "The bytes cannot be read as an image"
            with open_image(bytes(image)) as opened:
                return to_array(opened, num_channels)
        if isinstance(image, Image.Image):
            with blame_image():  # Pillow reads a file's pixels here
                require_within_limits(image, b"")
                return to_array(image, num_channels)
    except ImageError as error:
        raise ImageError(f"{what}: {error}") from error
    return to_array(image_of_array(image), num_channels)


def passes(height, size, interpolation):
    """The sizes (height, width) of the successive passes that resize an image of the given height to `size`.

    If a kernel overshoots, the width is resized first, as in Pillow; each pass is followed by clipping to [0, 255].
    """
    return ((height, size[1]), size) if interpolation in OVERSHOOTING else (size,)


def size_before_crop(lengths, preprocessing, xp=np):
    """(height, width) to which an image is resized before the central crop: image_size / crop; image_size for no crop.

    They are whole numbers (2,) of any type. `lengths`, float64 (2,), are the image's, an array or, with
    tensorflow.experimental.numpy as `xp`, a tensor.
    """
    # Rounded down, as torchvision does; the summand makes up for the division's rounding.
    least = np.floor(np.array(preprocessing.image_size) / (preprocessing.crop or 1) + 1e-6)
    if preprocessing.crop is None or preprocessing.crop_mode == "squash":
        return least.astype("int64")
    return xp.maximum(xp.floor(lengths * xp.max(least / lengths) + 1e-6), least)


def crop_offset(size, image_size):
    """(top, left) of the central crop of an image of `size`, an int32 array or tensor (2,)."""
    spare = size - np.array(image_size, "int32")
    half = spare // 2
    return half + spare % 2 * (half % 2)  # halves to even, as torchvision rounds


def linear(x):
    return np.maximum(1 - np.abs(x), 0)


def cubic(x):
    x = np.abs(x)
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0))


def lanczos(x):
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


KERNELS = {"bilinear": (linear, 1), "bicubic": (cubic, 2), "lanczos3": (lanczos, 3)}  # and their reach


def average_lines(lines, centres, scale, kernel, reach):
    """Means of the lines (n, ...) around places between 0 and n, by a kernel that is `scale` lines wide."""
    count = min(int(2 * reach * scale) + 2, len(lines))
    first = np.clip(centres - reach * scale, 0, len(lines) - count).astype(int)
    weights = kernel((first[:, None] + np.arange(count) + 0.5 - centres[:, None]) / scale)
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype("float32")
    return np.stack([np.tensordot(row, lines[i : i + count], 1) for i, row in zip(first, weights, strict=True)])


def resize_and_crop(images, size, preprocessing):
    """Resizes images (..., h, w, c) to `size` and crops their centre: (..., *image_size, c) in [0, 255]."""
    starts, method = crop_offset(np.array(size), preprocessing.image_size), preprocessing.interpolation
    for axis in (1, 0) if method in OVERSHOOTING else (0, 1):
        lines = np.ascontiguousarray(np.moveaxis(images, axis - 3, 0))
        scale = len(lines) / size[axis]
        centres = (starts[axis] + np.arange(preprocessing.image_size[axis]) + 0.5) * scale
        if method == "nearest" or scale == 1:
            lines = lines[centres.astype(int)]
        else:
            width = max(scale, 1) if preprocessing.crop else 1
            lines = average_lines(lines, centres, width, *KERNELS[method]).clip(0, 255)
        images = np.moveaxis(lines, 0, axis - 3)
    return images


def graph_size_before_crop(images, preprocessing):
    """`size_before_crop`, int64, for images (..., h, w, c) whose size is only known inside a TensorFlow graph."""
    import tensorflow as tf

    lengths = tf.cast(tf.shape(images)[-3:-1], tf.float64)
    return tf.cast(size_before_crop(lengths, preprocessing, tf.experimental.numpy), tf.int64)


def graph_resize_and_crop(images, size, preprocessing):
    """Resizes images (..., h, w, c) to `size` and crops their centre in a graph: float32 (..., *image_size, c)."""
    import tensorflow as tf

    size, method = tf.cast(size, tf.int32), preprocessing.interpolation
    antialias = preprocessing.crop is not None and method != "nearest"
    for part in passes(tf.shape(images)[-3], size, method):
        # "nearest" keeps uint8.
        images = tf.clip_by_value(
            tf.cast(tf.image.resize(images, part, method, antialias=antialias), tf.float32), 0, 255
        )
    height, width = preprocessing.image_size
    top, left = tf.unstack(crop_offset(size, preprocessing.image_size))
    part = images[..., top : top + height, left : left + width, :]
    return tf.ensure_shape(part, (*images.shape[:-3], height, width, None))


def class_colours(count: int) -> np.ndarray:
    """Colours of classes, float (count, 3) in [0, 1]; the hues of neighbours differ by the golden section of a circle.

    The script of an exported page has the same colours.

    >>> class_colours(2).round(2).tolist()
    [[0.25, 0.25, 1.0], [0.98, 0.39, 0.13]]
    """
    turns = 1 / 3 + np.arange(count)[:, None] * (5**0.5 - 1) / 2 + np.array([0, 1, 2]) / 3
    return 0.5 + 0.5 * np.cos(2 * np.pi * turns)


def paint_classes(image: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Paints an image (h, w, c) in [0, 1] with the colours of its pixels' classes (h, w); other classes stay bare."""
    colours = np.vstack([class_colours(count), np.zeros(3)])
    painted = 0.45 * image + 0.55 * colours[np.minimum(classes, count)]
    return np.where((classes < count)[..., None], painted, image)

"""The size of an image before its central crop, in Python or inside a TensorFlow graph.

`preprocessing` is any object with the fields image_size, crop, crop_mode and interpolation of `models.Preprocessing`.
"""

import numpy as np

# Kernels with negative weights: pixels beside an edge can leave [0, 255].
OVERSHOOTING = ("bicubic", "lanczos3")


def passes(height, size, interpolation):
    """The sizes (height, width) of the successive passes that resize an image of the given height to `size`.

    If a kernel overshoots, the width is resized first, as in Pillow; each pass is followed by clipping to [0, 255].
    """
    return ((height, size[1]), size) if interpolation in OVERSHOOTING else (size,)


def size_before_crop(lengths, preprocessing, xp=np):
    """(height, width) to which an image is resized before the central crop: image_size / crop; image_size for no crop.

    Args:
        lengths: height and width of the image, a float64 array or tensor (2,).
        xp: numpy or tensorflow.experimental.numpy, for its floor, max and maximum.

    Returns:
        Whole numbers (2,), of any type.
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

"""The size that an image has before its middle is kept, known beforehand or only when a TensorFlow graph runs.

`preprocessing` is anything with the fields image_size, crop, crop_mode and interpolation of `models.Preprocessing`.
"""

import numpy as np

# Kernels with negative weights: pixels beside an edge leave [0, 255].
OVERSHOOTING = ("bicubic", "lanczos3")


def passes(height, size, interpolation):
    """The sizes (height, width) that an image of that height is resized to, one after the other, to have `size`.

    As in Pillow the width comes first where a kernel overshoots: pixels are cut to [0, 255] after either pass.
    """
    return ((height, size[1]), size) if interpolation in OVERSHOOTING else (size,)


def size_before_crop(lengths, preprocessing, xp=np):
    """(height, width) that an image is resized to so that image_size is the part `crop` of it, without one all of it.

    Args:
        lengths: height and width of the image, a float64 array or tensor (2,).
        xp: the module with floor, max and maximum for it: numpy or tensorflow.experimental.numpy.

    Returns:
        Whole numbers (2,), of any type.
    """
    # Rounded down, as torchvision does; the summand undoes what the division lost.
    least = np.floor(np.array(preprocessing.image_size) / (preprocessing.crop or 1) + 1e-6)
    if preprocessing.crop is None or preprocessing.crop_mode == "squash":
        return least.astype("int64")
    return xp.maximum(xp.floor(lengths * xp.max(least / lengths) + 1e-6), least)


def crop_offset(size, image_size):
    """(top, left) of the middle of an image of `size`, an int32 array or tensor (2,)."""
    spare = size - np.array(image_size, "int32")
    half = spare // 2
    return half + spare % 2 * (half % 2)  # halves to even, as torchvision rounds


def graph_size_before_crop(images, preprocessing):
    """`size_before_crop`, int64, of images (..., h, w, c) whose size is known only when a TensorFlow graph runs."""
    import tensorflow as tf

    lengths = tf.cast(tf.shape(images)[-3:-1], tf.float64)
    return tf.cast(size_before_crop(lengths, preprocessing, tf.experimental.numpy), tf.int64)


def graph_resize_and_crop(images, size, preprocessing):
    """Images (..., h, w, c) resized to `size` and cut to their middle, float32 (..., *image_size, c), in a graph."""
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

"""Chooses the part of an image to read, and resizes it to the model's input."""

import numpy as np
import tensorflow as tf

from keras_vit.data.reading.order import ExampleSalt, add_salt
from keras_vit.data.reading.sources import whole_image
from keras_vit.errors import DataError
from keras_vit.images.pixels import graph_resize_and_crop, graph_size_before_crop


def training_box(shape, augmentation, seed):
    """(top, left, height, width) of the part to read of a training image of `shape`, (height, width)."""
    if augmentation.crop != "inception":
        return whole_image(shape)
    # A random part by TensorFlow's own op, as in vit_jax/input_pipeline.py.
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([shape, [3]], 0),
        tf.zeros((1, 0, 4)),
        seed=add_salt(seed, ExampleSalt.CROP_BOX),
        min_object_covered=0.0,
        aspect_ratio_range=augmentation.ratio,
        area_range=augmentation.area,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], 0)


def size_before_random_crop(image, augmentation, size):
    """((height, width), antialias) of the resize before a random crop of `size`."""
    side = augmentation.resize or max(size) * 7 // 6
    if side < max(size):
        raise DataError(
            f"A crop of {size[0]} x {size[1]} does not fit into images resized to {side} pixels. Give a larger resize."
        )
    if augmentation.crop == "resize_crop":
        return tf.constant([side, side]), False
    shape = tf.shape(image)[:2]
    scale = side / tf.reduce_min(shape)
    return tf.maximum(tf.cast(tf.round(tf.cast(shape, scale.dtype) * scale), tf.int32), side), True


def shift_reflected(image, offset, axis):
    """Moves an image by -offset pixels, int32 (), along axis 0 or 1; beyond its edges there is its reflection."""
    length, back, forth = image.shape[axis], tf.minimum(offset, 0), tf.maximum(offset, 0)

    def piece(begin, end):
        return image[begin:end] if axis == 0 else image[:, begin:end]

    before = tf.reverse(piece(1, 1 - back), [axis])
    after = tf.reverse(piece(length - 1 - forth, length - 1), [axis])
    return tf.concat([before, piece(forth, length + back), after], axis)


def crop_padded(image, size, seed):
    """A random part of `size` of an image (*size, c) padded by its reflection, 1/8 of the size on every side.

    Copying pieces takes a sixth of the time of `tf.pad` and `tf.image.stateless_random_crop`, whose draws these are.
    """
    margin = np.array(size) // 8
    draw = tf.random.stateless_uniform((3,), seed, maxval=tf.int32.max, dtype=tf.int32)
    rows, columns = tf.unstack(draw[:2] % (2 * margin + 1) - margin)
    return tf.ensure_shape(shift_reflected(shift_reflected(image, rows, 0), columns, 1), image.shape)


def resize_for_training(image, augmentation, size, seed, method="bilinear"):
    """Resizes the part that was read, uint8 (h, w, c), to (*size, c) in [0, 255], and mirrors it at random: float32, or
    uint8 by the method "nearest". The pixels of an image and its mask stay aligned."""
    seed_of_offset = add_salt(seed, ExampleSalt.CROP_OFFSET)
    if augmentation.crop in ("inception", "resize", "pad_crop"):
        image = tf.image.resize(image, size, method)
        if augmentation.crop == "pad_crop":
            image = crop_padded(image, size, seed_of_offset)
    else:
        larger, antialias = size_before_random_crop(image, augmentation, size)
        image = tf.image.resize(image, larger, method, antialias=antialias and method != "nearest")
        image = tf.image.stateless_random_crop(image, (*size, image.shape[-1]), seed_of_offset)
    image = tf.ensure_shape(image, (*size, None))
    if not augmentation.flip:
        return image
    return tf.image.stateless_random_flip_left_right(image, add_salt(seed, ExampleSalt.FLIP))


def resize_for_evaluation(image, preprocessing):
    """Resizes a whole image, uint8 (h, w, c), as `Preprocessing` does: float32 (*image_size, c) in [0, 255]."""
    return graph_resize_and_crop(image, graph_size_before_crop(image, preprocessing), preprocessing)


def normalize_or_round(image, preprocessing, dtype):
    """Turns pixels in [0, 255], float32 (..., h, w, c), into inputs: "float32" normalizes them, "uint8" rounds them."""
    if dtype == "uint8":
        return tf.cast(image + 0.5, tf.uint8)
    # (x / 255 - mean) / std, as one product and one difference
    scale = 1 / (255 * np.array(preprocessing.std))
    offset = np.array(preprocessing.mean) / preprocessing.std
    if len(set(scale)) == len(set(offset)) == 1:
        return image * tf.constant(scale[0], tf.float32) - tf.constant(offset[0], tf.float32)
    # Broadcasting over a last axis of 3 takes longer than the resize (`benchmarks pipeline`), unlike over pixels.
    scale, offset = (tf.constant(np.broadcast_to(x, image.shape[-3:]), tf.float32) for x in (scale, offset))
    return image * scale - offset

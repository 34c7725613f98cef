"""Boxes and sizes: which part of a picture is read, and how it becomes the model's input size."""

import numpy as np
import tensorflow as tf

from keras_vit.data.errors import DataError
from keras_vit.data.reading.order import salted
from keras_vit.images.resizing import graph_resize_and_crop, graph_size_before_crop

BOX, FLIP, OFFSET = 0, 1, 2  # salts


def whole(shape):
    return tf.concat([[0, 0], shape], 0)


def inception_box(shape, draw, area, ratio):
    """A random part, (top, left, height, width); TensorFlow's own op, as in vit_jax/input_pipeline.py."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([shape, [3]], 0),
        tf.zeros((1, 0, 4)),
        seed=salted(draw, BOX),
        min_object_covered=0.0,
        aspect_ratio_range=ratio,
        area_range=area,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], 0)


def training_box(augmentation, draw):
    """The function that `read_part` asks for the part to read of a training picture."""
    if augmentation.crop != "inception":
        return whole
    return lambda shape: inception_box(shape, draw, augmentation.area, augmentation.ratio)


def training_size(image, augmentation, size, draw):
    """The part read, uint8 (h, w, c), as float32 (*size, c) in [0, 255], mirrored by chance."""
    if augmentation.crop in ("inception", "resize"):
        image = tf.image.resize(image, size)
    else:
        larger, antialias = enlarged(image, augmentation, size)
        image = tf.image.resize(image, larger, antialias=antialias)
        image = tf.image.stateless_random_crop(image, (*size, image.shape[-1]), salted(draw, OFFSET))
    image = tf.ensure_shape(image, (*size, None))
    return tf.image.stateless_random_flip_left_right(image, salted(draw, FLIP)) if augmentation.flip else image


def enlarged(image, augmentation, size):
    """((height, width), antialias) that a picture has before a random part of `size` is taken."""
    side = augmentation.resize or max(size) * 7 // 6
    if side < max(size):
        raise DataError(f"Pictures of {side} pixels have no part of {size[0]} x {size[1]}. Give a larger resize.")
    if augmentation.crop == "resize_crop":
        return tf.constant([side, side]), False
    shape = tf.shape(image)[:2]
    scale = side / tf.reduce_min(shape)
    return tf.maximum(tf.cast(tf.round(tf.cast(shape, scale.dtype) * scale), tf.int32), side), True


def evaluation_size(image, preprocessing):
    """A whole picture, uint8 (h, w, c), as float32 (*image_size, c) in [0, 255]: what `Preprocessing` does to it."""
    if preprocessing.crop is not None:
        return graph_resize_and_crop(image, graph_size_before_crop(image, preprocessing), preprocessing)
    size, method = preprocessing.image_size, preprocessing.interpolation
    image = tf.cast(tf.image.resize(image, size, method), tf.float32)  # "nearest" keeps uint8
    return tf.ensure_shape(image, (*size, None))


def spread(values, shape):
    return tf.constant(np.broadcast_to(values, shape), tf.float32)


def finished(image, preprocessing, dtype):
    """Pixels in [0, 255], float32 (..., h, w, c), as the input: normalized for "float32", rounded for "uint8"."""
    if dtype == "uint8":
        if preprocessing.interpolation in ("bicubic", "lanczos3"):  # they overshoot
            image = tf.clip_by_value(image, 0.0, 255.0)
        return tf.cast(image + 0.5, tf.uint8)
    scale = 1 / (255 * np.array(preprocessing.std))
    offset = np.array(preprocessing.mean) / preprocessing.std
    if len(set(scale)) == len(set(offset)) == 1:
        return image * tf.constant(scale[0], tf.float32) - tf.constant(offset[0], tf.float32)
    # Broadcasting over a last axis of 3 takes longer than the resize (benchmarks/data.py); over pixels it does not.
    shape = image.shape[-3:]
    return image * spread(scale, shape) - spread(offset, shape)

"""Classes computed from what TFDS stores: VTAB's structured tasks (task_adaptation/data) and ImageNet ReaL.

Each is a function of an example, a dict as TFDS has it, to its class, an integer (), or for ReaL its classes, float
(1000,).
"""

import tensorflow as tf

CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
NO_VEHICLE = 1000.0


def find_interval(value, lower):
    """The number of the interval that `value` is in; `lower` holds the lower bound of each, which is not in it."""
    return tf.reduce_sum(tf.cast(value > tf.constant(lower, value.dtype), tf.int32)) - 1


def clevr_count_all(example):
    """3 to 10 objects, as classes 0 to 7."""
    return tf.size(example["objects"]["size"]) - 3


def clevr_closest_object_distance(example):
    return find_interval(tf.reduce_min(example["objects"]["pixel_coords"][:, 2]), CLEVR_DISTANCES)


def kitti_closest_vehicle_distance(example):
    """Of cars, vans and trucks (types 0 to 2); class 3 where there is none."""
    objects = example["objects"]
    away = tf.where(objects["type"] < 3, objects["location"][:, 2], NO_VEHICLE)
    return find_interval(tf.reduce_min(tf.concat([away, [NO_VEHICLE]], 0)), KITTI_DISTANCES)


def dsprites_x_position(example):
    """32 places in 16 classes."""
    return example["label_x_position"] // 2


def dsprites_orientation(example):
    """40 angles in 16 classes, of 2.5 angles each."""
    return example["label_orientation"] * 2 // 5


def imagenet2012_real(example):
    return tf.minimum(tf.reduce_sum(tf.one_hot(example["real_label"], 1000), 0), 1.0)


LABELS = {
    function.__name__: function
    for function in (
        clevr_count_all,
        clevr_closest_object_distance,
        kitti_closest_vehicle_distance,
        dsprites_x_position,
        dsprites_orientation,
        imagenet2012_real,
    )
}

"""Named datasets, preprocessing, augmentation: tf.data in, tf.data out. Only `load` imports TensorFlow."""

from keras_vit import _lazy
from keras_vit.data.augment.rows import AUGMENTATIONS, Augmentation, hyper_rule_sizes
from keras_vit.data.datasets.catalogue import CATALOGUE, VTAB
from keras_vit.data.errors import DataError, data_errors

__all__ = [
    "AUGMENTATIONS",
    "CATALOGUE",
    "VTAB",
    "Augmentation",
    "DataError",
    "Examples",
    "data_errors",
    "hyper_rule_sizes",
    "load",
]

__getattr__, __dir__ = _lazy.attributes(
    __name__, {"load": "keras_vit.data.loading", "Examples": "keras_vit.data.examples"}
)

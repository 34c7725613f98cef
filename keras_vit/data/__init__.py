"""Named datasets, preprocessing, augmentation: tf.data in, tf.data out. Only `load` imports TensorFlow."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Models by name: `load`, `save`, `list`, `info`. Importing it imports no Keras until a model is asked for."""

import lazy_loader

from keras_vit.errors import point_from

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = point_from(__getattr__)

"""Models by name: `load`, `save`, `list`, `info`. Importing it imports no Keras until a model is asked for."""

from keras_vit import _lazy
from keras_vit.zoo.names.registry import info, list

__all__ = ["info", "list", "load", "save"]

__getattr__, __dir__ = _lazy.attributes(__name__, {"load": "keras_vit.zoo.loading", "save": "keras_vit.zoo.saving"})

"""How good a model is, and where it errs."""

from keras_vit import _lazy

__all__ = ["mistakes"]

__getattr__, __dir__ = _lazy.attributes(__name__, {"mistakes": "keras_vit.evaluation.mistakes"})

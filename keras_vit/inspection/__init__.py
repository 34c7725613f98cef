"""Looking inside a Vision Transformer (section 4.5, Appendix D)."""

from keras_vit import _lazy

__all__ = ["attention_weights", "rollout"]

__getattr__, __dir__ = _lazy.attributes(__name__, dict.fromkeys(__all__, "keras_vit.inspection.attention"))

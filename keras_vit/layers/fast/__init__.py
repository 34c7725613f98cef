"""Faster or smaller ways to compute a layer's `call`, each a decorator of it.

    @fast.layer_norm
    def call(self, x, training=None): ...

`call` is the equation, in `keras.ops`. The fast path is tried first, and runs `call` where it has no advantage: on
another backend, outside training, for a small input.
"""

from keras_vit.layers.fast.gradients import gelu, group_norm, layer_norm, standardized_convolution
from keras_vit.layers.fast.memory import attention_in_blocks, rematerialized, rematerialized_block

__all__ = [
    "attention_in_blocks",
    "gelu",
    "group_norm",
    "layer_norm",
    "rematerialized",
    "rematerialized_block",
    "standardized_convolution",
]

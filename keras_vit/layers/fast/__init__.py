"""Faster or smaller ways to compute what a layer's `call` says, one name each, entered by one line above it.

    @fast.layer_norm
    def call(self, x, training=None): ...

In `call` stands the equation, in `keras.ops`. A fast path is asked first, and hands on to `call` where it is of no use:
on another backend, outside training, for a small input.
"""

from keras_vit.layers.fast.blockwise import attention_in_blocks
from keras_vit.layers.fast.gradients import gelu, group_norm, layer_norm, standardized_convolution
from keras_vit.layers.fast.remat import rematerialized, rematerialized_block

__all__ = [
    "attention_in_blocks",
    "gelu",
    "group_norm",
    "layer_norm",
    "rematerialized",
    "rematerialized_block",
    "standardized_convolution",
]

"""Rematerialization: a layer's inner values are computed again for the gradient instead of being kept."""

import functools

from keras import StatelessScope, ops, remat

from keras_vit.distribution.replicas import TENSORFLOW
from keras_vit.layers.base import fast_path
from keras_vit.layers.fast.blockwise import is_too_large


def rematerialize(layer, function, x):
    """Computes function(x), a part of `layer`, so that training keeps x alone for the gradient (arXiv 1604.06174).

    The gradient is the same to rounding. Both computations start from the same seed states, so random layers draw the
    same numbers twice; the states advance once. The weights are passed as arguments because TensorFlow does not find
    the variables of a strategy's replicas by itself.
    """
    weights, others = layer.trainable_variables, layer.non_trainable_variables
    states = [ops.copy(variable) for variable in others]
    moved = {}

    def compute(x, *values):
        with StatelessScope([*zip(weights, values, strict=True), *zip(others, states, strict=True)]) as scope:
            before = [scope.get_current_value(variable) for variable in others]
            y = function(x)
            after = [scope.get_current_value(variable) for variable in others]
        for variable, old, new in zip(others, before, after, strict=True):
            if new is not old:
                moved.setdefault(id(variable), (variable, new))  # of the first computation
        return y

    y = remat(compute)(x, *map(ops.copy, weights))
    for variable, state in list(moved.values()):
        variable.assign(state)
    return y


@fast_path
def rematerialized(call, layer, x, training=None, **asked):
    """If `layer.remat` is set, training keeps x alone, unless attention weights are asked for."""
    compute = functools.partial(call, layer, training=training, **asked)
    if layer.remat and training and not asked.get("return_weights"):
        return rematerialize(layer, compute, x)
    return compute(x)


@fast_path
def rematerialized_block(call, block, z, training=None, return_weights=False, class_token=False, places=None):
    """Does what `rematerialized` does. Without `remat`, TensorFlow rematerializes Eq. 3 if A is computed in blocks.

    With so many tokens, the MLP's values would take most of the memory.
    """
    asked = {"return_weights": return_weights, "class_token": class_token, "places": places}
    compute = functools.partial(call, block, training=training, **asked)
    if not training or return_weights:
        return compute(z)
    if block.remat:
        return rematerialize(block, compute, z)
    if class_token or not TENSORFLOW or not is_too_large(block.attention, z.shape[1]):
        return compute(z)
    z, _ = block.attend(z, training, places=places)
    return rematerialize(block, functools.partial(block.transform, training=training), z)

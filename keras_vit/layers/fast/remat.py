"""Rematerialization: a layer's inner values are computed a second time for the gradient, in place of being kept."""

import functools

from keras import StatelessScope, ops, remat

from keras_vit.distribution.replicas import TENSORFLOW
from keras_vit.layers.base import fast_path
from keras_vit.layers.fast.blockwise import is_too_large


def rematerialize(layer, function, x):
    """function(x), a computation of `layer`, of which training keeps x alone (arXiv 1604.06174).

    The gradient is the same to rounding. Random layers draw the same in both computations, which start from the same
    states of their seeds; these move on once. The weights are arguments of what is computed again: TensorFlow does not
    find the variables of a strategy's replicas by itself.
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
    """Where `layer.remat` is set, training keeps x alone; not where attention weights are asked for."""
    compute = functools.partial(call, layer, training=training, **asked)
    if layer.remat and training and not asked.get("return_weights"):
        return rematerialize(layer, compute, x)
    return compute(x)


@fast_path
def rematerialized_block(call, block, z, training=None, return_weights=False, class_token=False, places=None):
    """`rematerialized`, and by itself Eq. 3 alone under TensorFlow where `attention_in_blocks` does without A.

    The MLP's values would then be most of what so many tokens take.
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

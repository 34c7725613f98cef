"""Rematerialization: a layer's inner values are computed a second time for the gradient, in place of being kept."""

from keras import StatelessScope, ops, remat


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

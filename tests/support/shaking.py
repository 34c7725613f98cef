"""Models whose every weight is away from its initial value, so that no head is zero."""

import numpy as np


def shaken(model, seed=0, deviation=0.1):
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, deviation, weight.shape))
        if "moving_variance" in weight.path:
            weight.assign(np.abs(weight) + 0.5)
    return model

"""The machine's own ceilings: what the framework reaches in bare matrix products and convolutions, in the same rounds.

A model's rate divided by the matrix product's is its share of what the machine can do.
"""

from functools import partial

import numpy as np

from benchmarks.timing import Contestant, seconds_per_call

TIMES = 4  # products, one after the other, in a call: reading the result is then little beside them
SIDE = {"cpu": 1536, "gpu": 8192}  # of the square matrices
IMAGES = {"cpu": (8, 28, 28, 128), "gpu": (64, 28, 28, 512)}  # (n, h, w, c) of a 3x3 convolution to as many channels


def measure_repeated(operate, x, weights, operations, dtype):
    """A contestant that applies `operate(x, weights)` to its own result, TIMES times."""
    from keras import ops

    from benchmarks.keras_models import compile_call

    def call(x, weights):
        for _ in range(TIMES):
            x = operate(x, weights)
        return ops.sum(ops.cast(x, "float32"))

    given = [ops.cast(ops.convert_to_tensor(values.astype("float32")), dtype) for values in (x, weights)]
    return Contestant(partial(seconds_per_call, compile_call(call, given)), TIMES * operations)


def measure_matrix_product(dtype: str, kind: str) -> Contestant:
    """Products of square matrices of a dtype, on a "cpu" or "gpu"; its work is in operations."""
    from keras import ops

    rng, side = np.random.default_rng(0), SIDE[kind]
    x, weights = rng.normal(size=(2, side, side)) / [[[1]], [[side**0.5]]]  # results keep their size
    return measure_repeated(ops.matmul, x, weights, 2 * side**3, dtype)


def measure_convolution(dtype: str, kind: str) -> Contestant:
    """3x3 convolutions as in the middle of a ResNet-50; its work is in operations."""
    from keras import ops

    rng, shape = np.random.default_rng(0), IMAGES[kind]
    channels = shape[-1]
    weights = rng.normal(size=(3, 3, channels, channels)) / (9 * channels) ** 0.5
    operations = 2 * 9 * channels * np.prod(shape)
    convolve = partial(ops.conv, padding="same", data_format="channels_last")
    return measure_repeated(convolve, rng.normal(size=shape), weights, float(operations), dtype)


CEILINGS = {"matrix product": measure_matrix_product, "convolution": measure_convolution}

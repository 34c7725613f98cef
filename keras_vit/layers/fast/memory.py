"""Layers in less memory: attention in blocks of queries (arXiv 2112.05682), and rematerialization.

Each softmax over the keys concerns a single query. So A is computed for a block of queries at a time, and again for the
gradient. Only queries, keys, values and A v are kept for the gradient (arXiv 2205.14135, section 3.1). Where a layer is
rematerialized, its inner values are computed again for the gradient, too.
"""

import functools

import keras
from keras import StatelessScope, ops, remat

from keras_vit.distribution.replicas import TENSORFLOW
from keras_vit.layers.base import fast_path, widen

AVAILABLE = keras.backend.backend() in ("tensorflow", "jax")  # elsewhere A is always whole
BLOCK = 2**21  # elements of A in a block of an image: 8 MiB in float32, so that it fits a processor's cache
ROWS = 128  # least queries of a block: with fewer, reading the keys takes longer than the products


def transpose(x):
    return ops.swapaxes(x, -1, -2)


def put_block(blocks, block, i):
    return ops.slice_update(blocks, (i, 0, 0, 0, 0), block[None])


def next_after(i, done):
    """i + 1, but only once `done` is computed: TensorFlow's loops otherwise run up to ten steps at a time."""
    return i + 1 + ops.minimum(ops.cast(ops.isnan(ops.reshape(done, (-1,))[0]), "int32"), 0)


def weigh(q, k):
    """The attention weights A (Eq. 6) of scaled queries and keys."""
    return ops.softmax(ops.matmul(q, transpose(k)))


class BlockwiseAttention:
    """A v of scaled queries, keys and values, each (n, heads, l, d / heads), with a gradient of its own.

    Args:
        heads, l: numbers of heads and tokens.
    """

    def __init__(self, heads, l):
        rows = max(ROWS, BLOCK // (heads * l))
        self.count = -(-l // rows)
        self.rows = -(-l // self.count)  # queries of a block; the last is padded by up to count - 1 zeros
        self.heads, self.length = heads, l

    def attend(self, q, k, v):
        return ops.custom_gradient(self.attend_with_gradient)(q, k, v)

    def attend_with_gradient(self, q, k, v):
        blocks = self.split(q)

        def step(_, state):
            i, y = state
            block = ops.matmul(weigh(blocks[i], k), v)
            return next_after(i, block), put_block(y, block, i)

        y = ops.fori_loop(0, self.count, step, (ops.zeros((), "int32"), ops.zeros_like(blocks)))[1]
        y = self.join(y)

        def differentiate(dy):
            return self.differentiate(q, k, v, y, dy)

        return y, differentiate

    def differentiate(self, q, k, v, y, dy):
        """The gradients of q, k and v, given dy, that of y = A v."""
        blocks, dys = self.split(q), self.split(dy)
        # The softmax's gradient subtracts sum(A dA) of each row, which equals sum(y dy).
        inner = self.split(ops.sum(widen(dy) * widen(y), axis=-1, keepdims=True))

        def step(_, state):
            i, dq, dk, dv = state
            block, dy = blocks[i], dys[i]
            a = weigh(block, k)
            dv = dv + widen(ops.matmul(transpose(a), dy))
            da = ops.matmul(dy, transpose(v))
            dlogits = a * (da - ops.cast(inner[i], a.dtype))
            dk = dk + widen(ops.matmul(transpose(dlogits), block))
            return next_after(i, dk), put_block(dq, ops.matmul(dlogits, k), i), dk, dv

        zeros = ops.zeros_like(widen(dy))  # made from dy, so that they exist in the backward pass alone
        state = (ops.zeros((), "int32"), ops.zeros_like(dys), zeros, zeros)
        _, dq, dk, dv = ops.fori_loop(0, self.count, step, state)
        return self.join(dq), *(ops.cast(x, q.dtype) for x in (dk, dv))

    def split(self, x):
        """(n, heads, l, c) to (count, n, heads, rows, c), with zeros to fill the last block."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, self.count * self.rows - self.length), (0, 0)))
        x = ops.reshape(x, (-1, self.heads, self.count, self.rows, x.shape[-1]))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join(self, x):
        """The inverse of `split`."""
        x = ops.reshape(ops.transpose(x, (1, 2, 0, 3, 4)), (-1, self.heads, self.count * self.rows, x.shape[-1]))
        return x[:, :, : self.length]


def is_too_large(attention, l):
    """Whether A of this layer for l tokens is too large to keep whole in memory; False where l is unknown."""
    return AVAILABLE and l is not None and attention.num_heads * l * l > attention.largest_whole


@fast_path
def attention_in_blocks(call, layer, q, k, v, training=None, whole=False):
    """Returns A v as `attend` does, and None in place of A. Dropout keeps A whole."""
    l, drops = q.shape[1], training and layer.dropout.rate
    if whole or drops or l != k.shape[1] or not is_too_large(layer, l):
        return call(layer, q, k, v, training, whole)
    y = BlockwiseAttention(layer.num_heads, l).attend(*(layer.split_heads(x) for x in (q * layer.scale, k, v)))
    return layer.join_heads(y), None


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
def rematerialized(call, layer, x, training=None):
    """If `layer.remat` is set, training keeps x alone."""
    compute = functools.partial(call, layer, training=training)
    return rematerialize(layer, compute, x) if layer.remat and training else compute(x)


@fast_path
def rematerialized_block(call, block, z, training=None, return_weights=False, class_token=False, places=None):
    """Does what `rematerialized` does, unless attention weights are asked for.

    Without `remat`, TensorFlow rematerializes Eq. 3 if A is computed in blocks: with so many tokens, the MLP's values
    would take most of the memory.
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

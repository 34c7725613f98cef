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
from keras_vit.layers.positions import align_offsets, spread_offsets

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


class BlockwiseAttention:
    """A v of scaled queries, keys and values, each (n, heads, l, d / heads), with a gradient of its own.

    Args:
        heads, l: numbers of heads and tokens.
        drop: applies dropout to (a block of A or of its gradient, number of the block), with the same mask each time.
        patches: number of patches, the last tokens, for relative position embeddings; 0 for no such embeddings.
    """

    def __init__(self, heads, l, drop, patches=0):
        rows = max(ROWS, BLOCK // (heads * l))
        self.count = -(-l // rows)
        # Queries of a block; the last is padded by up to count - 1 zeros. `align_offsets` needs two rows.
        self.rows = max(2, -(-l // self.count))
        self.heads, self.length = heads, l
        self.drop, self.patches = drop, patches

    def attend(self, q, k, v, *embedding):
        """A v; `embedding` is that of relative positions, (2 * patches - 1, d / heads), or absent."""
        return ops.custom_gradient(self.attend_with_gradient)(q, k, v, *embedding)

    def attend_with_gradient(self, q, k, v, *embedding):
        blocks, tables = self.split(q), self.pad_tables(embedding)

        def step(_, state):
            i, y = state
            block = ops.matmul(self.drop(self.weigh(blocks[i], k, tables, i), i), v)
            return next_after(i, block), put_block(y, block, i)

        y = ops.fori_loop(0, self.count, step, (ops.zeros((), "int32"), ops.zeros_like(blocks)))[1]
        y = self.join(y)

        def differentiate(dy):
            return self.differentiate(q, k, v, embedding, y, dy)

        return y, differentiate

    def differentiate(self, q, k, v, embedding, y, dy):
        """The gradients of q, k, v and the embedding, given dy, that of y = A v."""
        blocks, tables, dys = self.split(q), self.pad_tables(embedding), self.split(dy)
        # The softmax's gradient subtracts sum(A dA) of each row, which equals sum(y dy).
        inner = self.split(ops.sum(widen(dy) * widen(y), axis=-1, keepdims=True))

        def step(_, state):
            i, dq, dk, dv, dtables = state
            block, dy = blocks[i], dys[i]
            a = self.weigh(block, k, tables, i)
            dv = dv + widen(ops.matmul(transpose(self.drop(a, i)), dy))
            da = self.drop(ops.matmul(dy, transpose(v)), i)
            dlogits = a * (da - ops.cast(inner[i], a.dtype))
            dk = dk + widen(ops.matmul(transpose(dlogits), block))
            dblock = ops.matmul(dlogits, k)
            if self.patches:
                more, dtables = self.differentiate_relative(dlogits, block, tables, dtables, i)
                dblock = dblock + more
            return next_after(i, dk), put_block(dq, dblock, i), dk, dv, dtables

        zeros = ops.zeros_like(widen(dy))  # made from dy, so that they exist in the backward pass alone
        state = (ops.zeros((), "int32"), ops.zeros_like(dys), zeros, zeros, [ops.zeros_like(widen(x)) for x in tables])
        _, dq, dk, dv, dtables = ops.fori_loop(0, self.count, step, state)
        dtables = [x[self.padding : self.padding + 2 * self.patches - 1] for x in dtables]
        return self.join(dq), *(ops.cast(x, q.dtype) for x in (dk, dv, *dtables))

    @property
    def padding(self):
        """The number of queries of zeros at the end."""
        return self.count * self.rows - self.length

    def split(self, x):
        """(n, heads, l, c) to (count, n, heads, rows, c), with zeros to fill the last block."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, self.padding), (0, 0)))
        x = ops.reshape(x, (-1, self.heads, self.count, self.rows, x.shape[-1]))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join(self, x):
        """The inverse of `split`."""
        x = ops.reshape(ops.transpose(x, (1, 2, 0, 3, 4)), (-1, self.heads, self.count * self.rows, x.shape[-1]))
        return x[:, :, : self.length]

    def weigh(self, q, k, tables, i):
        """A of the i-th block, (n, heads, rows, l)."""
        logits = ops.matmul(q, transpose(k))
        return ops.softmax(logits + self.relate(q, tables, i) if self.patches else logits)

    def pad_tables(self, embedding):
        """Pads the relative embedding, if there is one, by zeros at both ends, so that every `window` fits."""
        tokens = self.length - self.patches
        return [ops.pad(x, ((self.padding, tokens), (0, 0))) for x in embedding]

    def window(self, i):
        """First row and number of the embeddings of the offsets from the i-th block's queries to the patches."""
        return (self.count - 1 - i) * self.rows, self.patches + self.rows - 1

    def patches_alone(self, q, i):
        """Sets queries of the i-th block to 0 if their tokens are before the patches, where there are no offsets."""
        is_patch = i * self.rows + ops.arange(self.rows) >= self.length - self.patches
        return q * ops.cast(is_patch, q.dtype)[:, None]

    def relate(self, q, tables, i):
        """`RelativePositionLogits` of the i-th block's queries: (n, heads, rows, d / heads) to (n, heads, rows, l)."""
        start, length = self.window(i)
        table = ops.slice(tables[0], (start, 0), (length, q.shape[-1]))
        logits = ops.matmul(self.patches_alone(q, i), transpose(table))
        logits = align_offsets(ops.reshape(logits, (-1, self.heads, self.rows * length)), self.rows, self.patches)
        return ops.pad(logits, ((0, 0), (0, 0), (0, 0), (self.length - self.patches, 0)))

    def differentiate_relative(self, dlogits, q, tables, dtables, i):
        """Differentiates `relate`: the gradient of the queries, and the table's with this block's added."""
        start, length = self.window(i)
        size = (length, q.shape[-1])
        by_offset = spread_offsets(dlogits[..., self.length - self.patches :])
        dq = self.patches_alone(ops.matmul(by_offset, ops.slice(tables[0], (start, 0), size)), i)
        dtable = widen(ops.einsum("nhqo,nhqc->oc", by_offset, self.patches_alone(q, i)))
        dtable = dtable + ops.slice(dtables[0], (start, 0), size)
        return dq, [ops.slice_update(dtables[0], (start, 0), dtable)]


class DrawnSeed(keras.random.SeedGenerator):
    """Gives a seed that is drawn already to code of Keras that expects a generator."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def draw_blocks(dropout, training=False):
    """A function that applies `dropout` to x, the i-th block of a tensor, with the same mask in every call for i.

    `draw_blocks` draws one seed, as a call of the layer does.
    """
    if not training or dropout.rate == 0:
        return lambda x, i: x
    seed = dropout.seed_generator.next()

    def drop(x, i):
        # The second number counts calls: so far apart, no block of a run has the seed of another call.
        block = ops.cast(i, seed.dtype) * ops.cast(2**24 + 43, seed.dtype)
        block = ops.stack([ops.zeros_like(block), block])
        return keras.random.dropout(x, dropout.rate, seed=DrawnSeed(seed + block))

    return drop


def is_too_large(attention, l):
    """Whether A of this layer for l tokens is too large to keep whole in memory; False where l is unknown."""
    return AVAILABLE and l is not None and attention.num_heads * l * l > attention.largest_whole


@fast_path
def attention_in_blocks(call, layer, q, k, v, training=None, whole=False):
    """Returns A v as `attend` does, apart from the numbers drawn by dropout, and None in place of A."""
    l = q.shape[1]
    if whole or l != k.shape[1] or not is_too_large(layer, l):
        return call(layer, q, k, v, training, whole)
    embedding = () if layer.relative is None else (ops.cast(layer.relative.embedding, q.dtype),)
    blockwise = BlockwiseAttention(
        layer.num_heads, l, draw_blocks(layer.dropout, training), layer.relative_patches or 0
    )
    y = blockwise.attend(*(layer.split_heads(x) for x in (q * layer.scale, k, v)), *embedding)
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

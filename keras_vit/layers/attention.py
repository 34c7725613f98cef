"""Multi-head self-attention (Appendix A, Eq. 5 to 8)."""

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_vit.layers import fast
from keras_vit.layers.base import ConfiguredLayer, by_token
from keras_vit.layers.elementary import Dropout, as_dense, assign_products, fold_norm_into_dense, fold_scale
from keras_vit.layers.positions import RelativePositionLogits, RotaryPositions

# The projections that have a bias, by `qkv_bias`.
BIASED = {"qkv": ("query", "key", "value", "out"), "qv": ("query", "value", "out"), "none": ("out",)}


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(ConfiguredLayer):
    """MSA of Eq. 5 to 8: (n, l, d) -> (n, l, d), with d / num_heads channels per head.

    Args:
        num_heads: number of heads; must divide d.
        dropout_rate: dropout of the attention weights A, in [0, 1). 0 in every official configuration.
        relative_patches: number of patches, the last tokens, for relative position embeddings (Appendix D.4); None
            for no such embeddings.
        rotary_grid: (rows, columns) of the patches, the last tokens, for rotary positions; None for no such positions.
        prefix_tokens: number of tokens before the patches, for rotary positions and images of any size.
        qkv_bias: which of queries, keys and values have a bias: "qkv", "qv" or "none".

    Call arguments:
        return_weights: also return A, (n, num_heads, l, l), rows summing to 1.
        class_token: compute only the first token's output, (n, 1, d); not with `return_weights`.
        queries: separate tokens (n, m, d) that attend to x; the output is then (n, m, d). Not with `return_weights`.
        places: the output of `PatchPlaces`, for rotary positions and images of any size.

    Attributes:
        largest_whole: the most elements, num_heads * l * l, that A of an image may have to be computed whole and kept
            for the gradient. A larger A is computed by `fast.attention_in_blocks`. The limit is 128 MiB in float32,
            above every model of the paper; there is none with relative position embeddings.

    Raises:
        ValueError: when num_heads does not divide d.

    >>> tuple(MultiHeadSelfAttention(num_heads=4)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    # H/14 at 518 pixels, the paper's largest, has 16 heads * 1370**2 = 3.0e7; S/16 at 1,024 has 1.0e8.
    largest_whole: float = 2**25

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float = 0.0,
        relative_patches: int | None = None,
        rotary_grid: tuple[int, int] | None = None,
        prefix_tokens: int = 0,
        qkv_bias: Literal["qkv", "qv", "none"] = "qkv",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.relative_patches = relative_patches
        self.rotary_grid: Any = None if rotary_grid is None else tuple(rotary_grid)
        self.prefix_tokens = prefix_tokens
        self.qkv_bias = qkv_bias

    def build(self, input_shape):
        d = input_shape[-1]
        if d % self.num_heads:
            raise ValueError(f"{self.name}: num_heads must divide the width. Received: {self.num_heads} and {d}.")
        for name in ("query", "key", "value", "out"):
            use_bias = name in BIASED[self.qkv_bias]
            dense = keras.layers.Dense(d, use_bias=use_bias, dtype=self.dtype_policy, name=name)
            dense.build((None, d))
            setattr(self, name, dense)
        self.scale = (d // self.num_heads) ** -0.5
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.relative = None
        if self.relative_patches is not None:
            self.relative = RelativePositionLogits(self.relative_patches, dtype=self.dtype_policy, name="relative")
            self.relative.build((None, self.num_heads, input_shape[1], d // self.num_heads))
            self.largest_whole = math.inf  # blocks do without relative logits
        self.rotary = None
        if self.rotary_grid is not None:
            where = self.rotary_grid, self.num_heads, self.prefix_tokens
            self.rotary = RotaryPositions(*where, dtype=self.dtype_policy, name="rotary")
            self.rotary.build((None, *input_shape[1:]))

    def call(self, x, training=None, return_weights=False, class_token=False, queries=None, places=None):
        denses = (self.query, self.key, self.value, self.out)
        return self.compute(x, denses, training, return_weights, class_token, queries, places)

    def compute_output_spec(self, x, training=None, return_weights=False, class_token=False, queries=None, places=None):
        (n, l, d), dtype = x.shape, self.compute_dtype
        m = 1 if class_token else l if queries is None else queries.shape[1]
        y = keras.KerasTensor((n, m, d), dtype)
        return (y, keras.KerasTensor((n, self.num_heads, m, l), dtype)) if return_weights else y

    def compute(
        self, x, denses, training, return_weights=False, class_token=False, queries=None, places=None, whole=False
    ):
        """Does what `call` does; `denses` make queries, keys and values (Eq. 5), and the output from A v (Eq. 8)."""
        query, key, value, out = denses
        if queries is None:
            queries = x[:, :1] if class_token else x
        q, k, v = by_token(query, queries), by_token(key, x), by_token(value, x)
        q, k = self.rotate(q, k, queries is x, places)
        y, a = self.attend(q, k, v, training, whole=whole or return_weights)
        y = by_token(out, y)
        return (y, self.spread_weights(a)) if return_weights else y

    def export_call(self, x, training=None, norm=None, scale=None, **asked):
        """Computes `call` by the weights of `fold_products`; `asked` are the other arguments of `call`.

        Args:
            norm: if given, `x` was normalized by it without its scale and shift.
            scale: if given, the `LayerScale` of the output.
        """
        denses = [as_dense(*product) for product in self.fold_products(norm, scale)]
        return self.compute(x, denses, training, whole=True, **asked)

    def fold_products(self, norm, scale):
        """(kernel, bias) of query, key, value and out, with norm and scale folded in, and two of the biases left out.

        The key's bias adds one number to a whole row of q k^T, so softmax ignores it. Relative logits do not contain
        it: they depend on queries alone. Rotary positions turn it by each key's place, so it stays there. The rows of
        A sum to 1, so the value's bias passes through A unchanged and becomes part of the bias of `out`.

        Args:
            norm: the layer norm before the projections, or None.
            scale: the `LayerScale` of the output, or None.
        """
        projections = (self.query, self.key, self.value)
        query, (k, k_bias), (v, v_bias) = (fold_norm_into_dense(norm, dense) for dense in projections)
        out = fold_scale(scale, self.out.kernel, ops.matmul(v_bias, self.out.kernel) + self.out.bias)
        return query, (k, None if self.rotary is None else k_bias), (v, None), out

    def fold(self, norm=None, scale=None):
        """Replaces the weights by `fold_products` for inference, and multiplies the scale of Eq. 6 into the query's."""
        (q, q_bias), *others = self.fold_products(norm, scale)
        denses = (self.query, self.key, self.value, self.out)
        assign_products(denses, ((q * self.scale, q_bias * self.scale), *others), norm, scale)
        self.scale = 1.0

    def needs_biases(self):
        """The projections that need a bias once a norm's shift is folded into them."""
        return (self.query,) if self.rotary is None else (self.query, self.key)

    def rotate(self, q, k, all_queries, places=None):
        """Turns queries and keys by their places if positions are rotary; separate queries have no place."""
        if self.rotary is None:
            return q, k
        return (self.rotary(q, places=places) if all_queries else q), self.rotary(k, places=places)

    @fast.attention_in_blocks
    def attend(self, q, k, v, training, whole=False):
        """A v (Eq. 6 and 7), (n, m, d), and A, (n, heads, m, l), of queries (n, m, d), keys and values (n, l, d).

        m is not l for separate queries, such as the class token's. They are at no offset from any patch. A may be None
        unless `whole` is set.
        """
        q, k, v = (self.split_heads(x) for x in (q * self.scale, k, v))
        y, a = self.weigh(q, k, v, training, self.relative if q.shape[2] == k.shape[2] else None)
        return self.join_heads(y), a

    def weigh(self, q, k, v, training, relative=None):
        """A v and A of scaled queries, keys and values, each (n, heads, its length, d / heads)."""
        logits = ops.matmul(q, ops.swapaxes(k, -1, -2))
        a = ops.softmax(logits if relative is None else logits + relative(q))
        return ops.matmul(self.dropout(a, training=training), v), a

    def split_heads(self, x):
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, x.shape[2] // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))  # (n, heads, l, d / heads)

    def join_heads(self, y):
        return ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, ops.shape(y)[2], y.shape[1] * y.shape[3]))  # (n, l, d)

    def spread_weights(self, a):
        """Brings A from `attend` to (n, heads, l, l)."""
        return a

"""The pre-norm Transformer encoder block (section 3.1, Eq. 2 and 3)."""

from typing import Any, Literal

import keras
from keras import ops

from keras_vit.layers import fast
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.base import ConfiguredLayer, by_token, takes_arguments_of
from keras_vit.layers.elementary import (
    GELU,
    Dropout,
    LayerNormalization,
    as_dense,
    assign_products,
    fold_norm_into_dense,
    fold_scale,
)


def quick_gelu(x):
    """CLIP's approximation of GELU."""
    return x * ops.sigmoid(1.702 * x)


ACTIVATIONS = {"quick_gelu": quick_gelu, "silu": ops.silu}  # GELU is a layer of its own


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(ConfiguredLayer):
    """The MLP of Eq. 3: dense, GELU, dropout, dense, dropout: (n, l, d) -> (n, l, d).

    Args:
        mlp_dim: width of the hidden layer.
        dropout_rate: dropout after each dense layer (Appendix B.1), in [0, 1).
        gelu_approximate: GELU by tanh, as the official weights expect; False for exact GELU.
        activation: "gelu", "quick_gelu" (CLIP's x sigmoid(1.702 x)) or "silu".
        gated_mlp: multiply the hidden layer by an activated second dense layer, the gate, instead of activating the
            hidden layer itself; with "silu" this is SwiGLU (arXiv 2002.05202).

    >>> tuple(MLP(mlp_dim=128)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    def __init__(
        self,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        gelu_approximate: bool = True,
        activation: Literal["gelu", "quick_gelu", "silu"] = "gelu",
        gated_mlp: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.gelu_approximate = gelu_approximate
        self.activation = activation
        self.gated_mlp = gated_mlp

    def dense(self, units, name):
        # vit_jax's initial biases.
        normal = keras.initializers.RandomNormal(stddev=1e-6)
        return keras.layers.Dense(units, bias_initializer=normal, dtype=self.dtype_policy, name=name)

    def build(self, input_shape):
        d = input_shape[-1]
        self.hidden = self.dense(self.mlp_dim, "hidden")
        self.hidden.build((None, d))
        self.gate = self.dense(self.mlp_dim, "gate") if self.gated_mlp else None
        if self.gate is not None:
            self.gate.build((None, d))
        self.gelu = GELU(self.gelu_approximate, dtype=self.dtype_policy, name="gelu")
        self.gelu.build((None, self.mlp_dim))
        self.activate = {"gelu": self.gelu, **ACTIVATIONS}[self.activation]
        self.out = self.dense(d, "out")
        self.out.build((None, self.mlp_dim))
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")

    def call(self, x, training=None):
        return self.compute(x, self.denses(), training)

    def compute(self, x, denses, training):
        """Does what `call` does, by the given dense layers in the order of the method `denses`."""

        def transform(x):
            hidden, *gates, out = denses
            y = hidden(x)
            y = self.activate(gates[0](x)) * y if gates else self.activate(y)
            y = out(self.dropout(y, training=training))
            return self.dropout(y, training=training)

        return by_token(transform, x)

    def export_call(self, x, training=None, norm=None, scale=None):
        """Computes `call` by `fold_products`; `x` lacks the norm's scale and shift, which the products contain."""
        return self.compute(x, [as_dense(*product) for product in self.fold_products(norm, scale)], training)

    def denses(self):
        return (self.hidden, *([self.gate] if self.gated_mlp else []), self.out)

    def fold_products(self, norm, scale):
        """(kernel, bias) of `denses`, with the norm before and the `LayerScale` after folded in, if not None."""
        inner = [fold_norm_into_dense(norm, dense) for dense in self.denses()[:-1]]
        return *inner, fold_scale(scale, self.out.kernel, self.out.bias)

    def fold(self, norm=None, scale=None):
        """Replaces the weights by those of `fold_products`, for inference."""
        assign_products(self.denses(), self.fold_products(norm, scale), norm, scale)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(ConfiguredLayer):
    """Scales each channel of a branch before it is added (arXiv 2103.17239): (..., d) -> (..., d).

    Args:
        initial: the initial scale of every channel.

    Attributes:
        folded: whether the scale is folded into the layer before.

    >>> tuple(LayerScale()(keras.ops.ones((2, 17, 64))).shape)
    (2, 17, 64)
    """

    folded = False

    def __init__(self, initial: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.initial = initial

    def build(self, input_shape):
        initializer = keras.initializers.Constant(self.initial)
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer=initializer)

    def call(self, x):
        return x if self.folded else x * ops.cast(self.gamma, x.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(ConfiguredLayer):
    """z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (Eq. 2 and 3): (n, l, d) -> (n, l, d).

    Args:
        num_heads: attention heads; must divide d.
        mlp_dim: width of the MLP's hidden layer.
        dropout_rate: dropout after every dense layer but the q, k, v projections (Appendix B.1), in [0, 1).
        attention_dropout_rate: dropout of the attention weights, in [0, 1).
        layer_norm_epsilon: added to the variance in both layer norms.
        stochastic_depth_rate: probability, in [0, 1), that training skips the MSA for an example, and likewise the MLP.
            Where it is not skipped, its output is scaled up to keep the mean (arXiv 1603.09382).
        layer_scale: initial value of the `LayerScale` after the MSA and of that after the MLP; None for no scales.
        **kwargs: the other arguments of `MultiHeadSelfAttention` and `MLP`.

    Call arguments:
        return_weights: also return the attention weights, (n, num_heads, l, l).
        class_token: compute only the first token's output, (n, 1, d), since nothing else of the last block is read;
            not with `return_weights`.
        places: see `MultiHeadSelfAttention`.

    Attributes:
        remat: whether training recomputes the block's inner values for the gradient; see `fast.rematerialized`.

    >>> tuple(EncoderBlock(num_heads=4, mlp_dim=128)(keras.ops.zeros((2, 17, 64))).shape)
    (2, 17, 64)
    """

    attention_class: type[MultiHeadSelfAttention] = MultiHeadSelfAttention
    remat = False

    @takes_arguments_of(MultiHeadSelfAttention, MLP)
    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        layer_norm_epsilon: float = 1e-6,
        stochastic_depth_rate: float = 0.0,
        layer_scale: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_scale = layer_scale

    def build(self, input_shape):
        dtype = self.dtype_policy
        attention = self.attention_class.arguments_in(self) | {"dropout_rate": self.attention_dropout_rate}
        self.attention_norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=dtype, name="attention_norm")
        self.attention = self.attention_class(**attention, dtype=dtype, name="attention")
        self.dropout = Dropout(self.dropout_rate, dtype=dtype, name="dropout")
        self.mlp_norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=dtype, name="mlp_norm")
        self.mlp = MLP(**MLP.arguments_in(self), dtype=dtype, name="mlp")
        # One number for all tokens and channels of an example.
        self.stochastic_depth = Dropout(
            self.stochastic_depth_rate, noise_shape=(None, 1, 1), dtype=dtype, name="stochastic_depth"
        )
        self.attention_scale = self.mlp_scale = keras.layers.Identity(dtype=dtype, name="no_scale")
        if self.layer_scale is not None:
            self.attention_scale = LayerScale(self.layer_scale, dtype=dtype, name="attention_scale")
            self.mlp_scale = LayerScale(self.layer_scale, dtype=dtype, name="mlp_scale")
        for name in ("attention_norm", "attention", "attention_scale", "mlp_norm", "mlp", "mlp_scale"):
            getattr(self, name).build(input_shape)

    @fast.rematerialized_block
    def call(self, z, training=None, return_weights=False, class_token=False, places=None):
        z, weights = self.attend(z, training, return_weights, class_token, places)
        z = self.transform(z, training)
        return (z, weights) if return_weights else z

    def attend(self, z, training, return_weights=False, class_token=False, places=None):
        """z' (Eq. 2), and the attention weights or None."""
        asked = {"return_weights": return_weights, "class_token": class_token, "places": places}
        y = self.attention(self.attention_norm(z), training=training, **asked)
        y, weights = y if return_weights else (y, None)
        y = self.attention_scale(self.dropout(y, training=training))
        z = z[:, :1] if class_token else z
        return z + self.stochastic_depth(y, training=training), weights

    def transform(self, z, training):
        """Eq. 3: from z' to the block's output."""
        y = self.mlp_scale(self.mlp(self.mlp_norm(z), training=training))
        return z + self.stochastic_depth(y, training=training)

    def scales(self):
        """The `LayerScale` of the MSA's and of the MLP's output, or None."""
        return (None, None) if self.layer_scale is None else (self.attention_scale, self.mlp_scale)

    def export_call(self, z, training=None, return_weights=False, class_token=False, places=None):
        """Computes `call` with both norms and the layer scales folded into the dense layers beside them."""
        attention_scale, mlp_scale = self.scales()
        y = self.attention_norm.without_affine(z)
        asked = {"return_weights": return_weights, "class_token": class_token, "places": places}
        y = self.attention.export_call(y, **asked, norm=self.attention_norm, scale=attention_scale)
        y, weights = y if return_weights else (y, None)
        z = (z[:, :1] if class_token else z) + y
        z = z + self.mlp.export_call(self.mlp_norm.without_affine(z), norm=self.mlp_norm, scale=mlp_scale)
        return (z, weights) if return_weights else z

    def fold(self):
        """Folds scale and shift of both norms, and the layer scales, into the dense layers beside them, for inference.

        The attention's norm is not folded if a projection lacks the bias that must take its shift.
        """
        attention_scale, mlp_scale = self.scales()
        shifted = all(dense.use_bias for dense in self.attention.needs_biases())
        self.attention.fold(self.attention_norm if shifted else None, attention_scale)
        self.mlp.fold(self.mlp_norm, mlp_scale)

    def compute_output_spec(self, z, training=None, return_weights=False, class_token=False, places=None):
        (n, l, d), dtype = z.shape, self.compute_dtype
        y = keras.KerasTensor((n, 1 if class_token else l, d), dtype)
        return (y, keras.KerasTensor((n, self.num_heads, l, l), dtype)) if return_weights else y

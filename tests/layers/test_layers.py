"""The layers against their equations, written in numpy with float64."""

import keras
import numpy as np
import pytest
from scipy import special

from keras_vit import layers, models
from keras_vit.layers.pooling import PatchesToPixels

RNG = np.random.default_rng(0)


def values(layer):
    """{path under the layer: float64 value}, after making every variable random."""
    for v in layer.variables:
        if v.trainable:
            v.assign(RNG.normal(0, 0.3, v.shape))
    return {v.path.split("/", 1)[1]: keras.ops.convert_to_numpy(v).astype("float64") for v in layer.trainable_variables}


def built(layer, x):
    layer(x)
    return layer, values(layer)


def close(actual, expected):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(actual), expected, rtol=1e-4, atol=1e-5)


def layer_norm(x, gamma, beta, epsilon):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * gamma + beta


def attention(x, w, heads, patches=0):
    n, l, d = x.shape
    q, k, v = (
        (x @ w[f"{name}/kernel"] + w[f"{name}/bias"]).reshape(n, l, heads, d // heads)
        for name in ("query", "key", "value")
    )
    logits = np.einsum("nlhe,nmhe->nhlm", q, k)
    if patches:
        logits = logits + relative_logits(q.transpose(0, 2, 1, 3), w["relative/embedding"], patches)
    a = special.softmax(logits / np.sqrt(d // heads), axis=-1)
    y = np.einsum("nhlm,nmhe->nlhe", a, v).reshape(n, l, d)
    return y @ w["out/kernel"] + w["out/bias"], a


def relative_logits(q, embedding, patches):
    """The extra attention of Appendix D.4, a pair of patches at a time: (n, h, l, e) to (n, h, l, l)."""
    n, h, l, _ = q.shape
    logits = np.zeros((n, h, l, l))
    for i in range(patches):
        for j in range(patches):
            logits[:, :, l - patches + i, l - patches + j] = q[:, :, l - patches + i] @ embedding[j - i + patches - 1]
    return logits


def gelu(x, approximate):
    if approximate:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * special.erfc(-x / np.sqrt(2))


def mlp(x, w, approximate):
    x = gelu(x @ w["hidden/kernel"] + w["hidden/bias"], approximate)
    return x @ w["out/kernel"] + w["out/bias"]


def under(w, prefix):
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def test_patch_embedding_cuts_in_raster_order():
    x = RNG.normal(size=(2, 12, 8, 3))
    layer, w = built(layers.PatchEmbedding(5, (4, 2)), x)
    patches = x.reshape(2, 3, 4, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 12, 24)
    close(layer(x), patches @ w["kernel"].reshape(24, 5) + w["bias"])


def test_tokens_and_positions():
    x = RNG.normal(size=(2, 4, 6))
    token, w = built(layers.ClassToken(), x)
    with_token = np.concatenate([np.repeat(w["token"], 2, 0), x], 1)
    close(token(x), with_token)
    positions, w = built(layers.PositionEmbedding(), with_token)
    close(positions(with_token), with_token + w["embedding"])
    close(layers.TakeClassToken()(with_token), with_token[:, 0])


@pytest.mark.parametrize("token", [0, 1])
def test_2d_positions_are_a_columns_beside_a_rows(token):
    x = RNG.normal(size=(2, token + 6, 8))
    layer, w = built(layers.PositionEmbedding2D((2, 3)), x)
    expected = x.copy()
    for row, column in np.ndindex(2, 3):
        both = np.concatenate([w["column_embedding"][column], w["row_embedding"][row]])
        expected[:, token + 3 * row + column] += both
    close(layer(x), expected)
    with pytest.raises(ValueError, match="even width. Received: 7"):
        layers.PositionEmbedding2D((2, 3))(x[..., :7])
    with pytest.raises(ValueError, match="a width of 8, 12, 16, ... Received: 4"):
        layers.SineCosineEmbedding2D((2, 3))(x[..., :4])


@pytest.mark.parametrize("tokens", [0, 1, 3])
@pytest.mark.parametrize("patches", [1, 2, 6])
def test_relative_positions_are_keys_by_offset(patches, tokens):
    q = RNG.normal(size=(2, 3, tokens + patches, 4))
    layer, w = built(layers.RelativePositionLogits(patches), q)
    found = keras.ops.convert_to_numpy(layer(q))
    np.testing.assert_allclose(found, relative_logits(q, w["embedding"], patches), rtol=1e-4, atol=1e-5)


def test_a_shift_of_query_and_key_changes_no_relative_logit():
    """The same query at two places finds the same at the same offsets, and something else at others."""
    q = np.broadcast_to(RNG.normal(size=(1, 1, 1, 4)), (1, 1, 8, 4))
    layer, _ = built(layers.RelativePositionLogits(8), q)
    logits = keras.ops.convert_to_numpy(layer(q))[0, 0]
    np.testing.assert_allclose(logits[2:, 2:], logits[:-2, :-2], atol=1e-6)
    assert len(np.unique(logits.round(5))) == 15


@pytest.mark.parametrize("patches", [0, 6, 7])
def test_attention(patches):
    x = RNG.normal(size=(2, 7, 12))
    layer, w = built(layers.MultiHeadSelfAttention(num_heads=3, relative_patches=patches or None), x)
    y, a = layer(x, return_weights=True)
    expected, weights = attention(x, w, 3, patches)
    close(y, expected)
    close(a, weights)
    y, a = layer.export_call(keras.ops.convert_to_tensor(x, "float32"), return_weights=True)
    close(y, expected)
    close(a, weights)
    if patches < 7:  # the first token is no patch
        close(layer(x, class_token=True), expected[:, :1])
        close(layer.export_call(keras.ops.convert_to_tensor(x, "float32"), class_token=True), expected[:, :1])


def test_shapes_of_attention_are_known_before_it_runs():
    x, queries = keras.Input((7, 12)), keras.Input((3, 12))
    layer = layers.MultiHeadSelfAttention(num_heads=3)
    y, a = layer(x, return_weights=True)
    assert (y.shape, a.shape) == ((None, 7, 12), (None, 3, 7, 7))
    assert layer(x, class_token=True).shape == (None, 1, 12) and layer(x, queries=queries).shape == (None, 3, 12)


@pytest.mark.parametrize("approximate", [True, False])
def test_encoder_block(approximate):
    x = RNG.normal(size=(2, 5, 8))
    layer, w = built(layers.EncoderBlock(2, 12, gelu_approximate=approximate, layer_norm_epsilon=1e-3), x)
    y = layer_norm(x, w["attention_norm/gamma"], w["attention_norm/beta"], 1e-3)
    x1 = x + attention(y, under(w, "attention/"), 2)[0]
    y = layer_norm(x1, w["mlp_norm/gamma"], w["mlp_norm/beta"], 1e-3)
    expected = x1 + mlp(y, under(w, "mlp/"), approximate)
    close(layer(x), expected)
    z = keras.ops.convert_to_tensor(x, "float32")
    close(layer.export_call(z), expected)
    for call in (layer, layer.export_call):
        close(call(z, class_token=True), expected[:, :1])
    again, weights = layer.export_call(z, return_weights=True)
    close(again, expected)
    close(weights, layer(x, return_weights=True)[1])


def test_gelu_exact_and_approximate_part():
    x = np.linspace(-6, 6, 401, dtype="float32")
    close(layers.GELU(approximate=True)(x), gelu(x.astype("float64"), True))
    close(layers.GELU(approximate=False)(x), gelu(x.astype("float64"), False))
    assert np.abs(gelu(x, True) - gelu(x, False)).max() > 4e-4


def test_layer_norm_far_from_zero():
    """A mean of 1,000 leaves two-pass moments exact where E[x^2] - E[x]^2 would lose them."""
    x = (RNG.normal(size=(3, 4, 64)) + 1000).astype("float32")
    layer, w = built(layers.LayerNormalization(1e-6), x)
    expected = layer_norm(x.astype("float64"), w["gamma"], w["beta"], 1e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(x)), expected, atol=1e-3)


def group_norm(x, groups, gamma, beta, epsilon):
    n, h, w, c = x.shape
    y = x.reshape(n, h * w, groups, c // groups)
    mean, var = y.mean((1, 3), keepdims=True), y.var((1, 3), keepdims=True)
    return ((y - mean) / np.sqrt(var + epsilon)).reshape(x.shape) * gamma + beta


@pytest.mark.parametrize("offset", [0, 100])
def test_group_norm(offset):
    x = RNG.normal(size=(2, 5, 3, 8)) * RNG.uniform(0.5, 3, 8) + offset + RNG.normal(size=8)
    layer, w = built(layers.GroupNormalization(groups=2, epsilon=1e-5), x)
    expected = group_norm(x, 2, w["gamma"], w["beta"], 1e-5)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(x.astype("float32"))), expected, atol=3e-4)


def convolve(x, kernel, strides, before, after):
    """A direct convolution with the given zeros before and after each axis."""
    x = np.pad(x, ((0, 0), (before, after), (before, after), (0, 0)))
    k = kernel.shape[0]
    rows, columns = (x.shape[1] - k) // strides + 1, (x.shape[2] - k) // strides + 1
    y = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * strides : i * strides + k, j * strides : j * strides + k]
            y[:, i, j] = np.tensordot(window, kernel, ([1, 2, 3], [0, 1, 2]))
    return y


@pytest.mark.parametrize(
    ("padding", "k", "strides", "before", "after"),
    [("fixed", 7, 2, 3, 3), ("fixed", 3, 2, 1, 1), ("fixed", 3, 1, 1, 1), ("fixed", 1, 2, 0, 0), ("fixed", 2, 1, 0, 0)]
    + [("same", 7, 2, 2, 3), ("same", 3, 2, 0, 1), ("same", 3, 1, 1, 1), ("same", 1, 2, 0, 0)],
)
def test_standardized_convolution(padding, k, strides, before, after):
    x = RNG.normal(size=(2, 12, 10, 4))
    layer = layers.StandardizedConv2D(6, k, strides, padding, variance_epsilon=0.01, std_epsilon=0.1)
    layer, w = built(layer, x)
    kernel = w["kernel"]
    moments = {"axis": (0, 1, 2), "keepdims": True}
    kernel = (kernel - kernel.mean(**moments)) / (np.sqrt(kernel.var(**moments) + 0.01) + 0.1)
    close(layer(x), convolve(x, kernel, strides, before, after))
    assert layer.compute_output_shape(x.shape) == tuple(layer(x).shape)


def test_dropout_is_where_appendix_b1_puts_it(monkeypatch):
    """After the position embeddings, the attention's output and both dense layers of each MLP."""
    seen = []
    call = layers.Dropout.call

    def record(self, x, training=False):
        if self.rate:  # stochastic depth, which has none here, is a dropout too
            seen.append((self.rate, tuple(x.shape)))
        return call(self, x, training=training)

    monkeypatch.setattr(layers.Dropout, "call", record)
    model = models.VisionTransformer(
        16, 4, 8, 2, 2, 12, num_classes=3, representation_size=5, dropout_rate=0.1, attention_dropout_rate=0.2
    )
    seen.clear()
    model(np.zeros((3, 16, 16, 3)), training=True)
    block = [(0.2, (3, 2, 17, 17)), (0.1, (3, 17, 8)), (0.1, (51, 12)), (0.1, (51, 8))]
    last = [(0.2, (3, 2, 1, 17)), (0.1, (3, 1, 8)), (0.1, (3, 12)), (0.1, (3, 8))]  # of the class token alone
    assert seen == [(0.1, (3, 17, 8)), *block, *last]


def test_impossible_layers_say_why():
    with pytest.raises(ValueError, match="whole numbers of 8x8 patches"):
        layers.PatchEmbedding(4, 8)(np.zeros((1, 30, 32, 3)))
    with pytest.raises(ValueError, match="num_heads must divide"):
        layers.MultiHeadSelfAttention(3)(np.zeros((1, 4, 8)))
    with pytest.raises(ValueError, match="groups must divide"):
        layers.GroupNormalization(32)(np.zeros((1, 4, 4, 48)))
    with pytest.raises(ValueError, match="padding must be"):
        layers.StandardizedConv2D(8, 3, padding="valid")


def test_images_of_another_size_than_those_before_are_refused_in_a_sentence():
    model = models.VisionTransformer(8, 4, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8, num_classes=2)
    model.compile("sgd", "mse")
    model.train_on_batch(np.zeros((2, 8, 8, 3)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"needs a known height and width(.|\n)*model.preprocessing"):
        model.train_on_batch(np.zeros((2, 12, 12, 3)), np.zeros((2, 2)))


@pytest.mark.parametrize("size", [24, 29])
def test_pixels_lie_between_the_centres_of_their_own_patches(size):
    """Also where a remainder of 5 pixels belongs to no patch: it repeats the last centre."""
    x = np.random.default_rng(0).normal(size=(1, 9, 2)).astype("float32")
    found = PatchesToPixels(step=(8, 8))(x, images=np.zeros((1, size, 24, 3), "float32"))
    centres, pixels = 8 * np.arange(3) + 3.5, np.arange(size)
    grid = x.reshape(3, 3, 2)
    for channel in range(2):
        down = np.stack([np.interp(pixels, centres, grid[:, j, channel]) for j in range(3)], axis=1)
        expected = np.stack([np.interp(np.arange(24), centres, row) for row in down])
        np.testing.assert_allclose(found[0, :, :, channel], expected, atol=1e-5)

"""Axial attention against its equations, written in numpy with float64, and what it leaves untouched."""

import keras
import numpy as np
import pytest
from scipy import special

from keras_vit.models import axial

RNG = np.random.default_rng(0)
GRID = 3, 5
PATCHES = GRID[0] * GRID[1]


def shaken(layer, x):
    """The layer, built on x, with every variable random."""
    layer(x)
    for v in layer.trainable_variables:
        v.assign(RNG.normal(0, 0.3, v.shape))
    return layer


def array(x):
    return keras.ops.convert_to_numpy(x).astype("float64")


def close(actual, expected):
    np.testing.assert_allclose(array(actual), expected, rtol=1e-4, atol=1e-5)


def tokens(token, width=12):
    return RNG.normal(size=(2, PATCHES + token, width)).astype("float32")


def same_line(axis, token):
    """(l, l): whether the second token is in the first one's line; the class token, the first, attends to all."""
    place = np.indices(GRID)[0 if axis == "row" else 1].ravel()
    allowed = np.zeros((PATCHES + token,) * 2, bool)
    allowed[token:, token:] = place[:, None] == place[None]
    allowed[:token] = True
    return allowed


@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize("axis", ["row", "column"])
def test_axial_self_attention_is_masked_attention(axis, token):
    x, heads = tokens(token), 3
    layer = shaken(axial.AxialSelfAttention(axis, GRID, num_heads=heads), x)
    q, k, v = (
        (x @ array(dense.kernel) + array(dense.bias)).reshape(2, -1, heads, 4)
        for dense in (layer.query, layer.key, layer.value)
    )
    logits = np.einsum("nlhe,nmhe->nhlm", q, k) / 2
    a = special.softmax(np.where(same_line(axis, token), logits, -np.inf), axis=-1)
    y = np.einsum("nhlm,nmhe->nlhe", a, v).reshape(x.shape) @ array(layer.out.kernel) + array(layer.out.bias)
    found, weights = layer(x, return_weights=True)
    close(found, y)
    close(weights, a)
    close(layer(x), y)
    close(layer.export_call(keras.ops.convert_to_tensor(x)), y)
    if token:
        close(layer(x, class_token=True), y[:, :1])


@pytest.mark.parametrize("axis", ["row", "column"])
def test_position_sensitive_attention_is_its_sum_over_places(axis):
    x = RNG.normal(size=(2, 3, 4, 32)).astype("float32")
    heads, width = 4, 8
    layer = shaken(axial.PositionSensitiveAttention(axis, heads), x)
    r = array(layer.relative_embedding)
    lines = x if axis == "row" else x.swapaxes(1, 2)
    expected = np.zeros(lines.shape)
    for image, line in np.ndindex(lines.shape[:2]):
        qkv = group_norm(lines[image, line] @ array(layer.qkv.kernel), layer.qkv_norm).reshape(-1, heads, 2 * width)
        length = len(qkv)
        y = np.zeros((length, heads, width))
        for o, head in np.ndindex(length, heads):
            q, logits = qkv[o, head, :4], []
            for p in range(length):
                k, r_q, r_k = qkv[p, head, 4:8], r[p - o + length - 1, :4], r[p - o + length - 1, 4:8]
                logits.append(q @ k + q @ r_q + k @ r_k)
            a = special.softmax(logits)
            y[o, head] = sum(a[p] * (qkv[p, head, 8:] + r[p - o + length - 1, 8:]) for p in range(length))
        expected[image, line] = group_norm(y.reshape(length, -1), layer.out_norm)
    close(layer(x), expected if axis == "row" else expected.swapaxes(1, 2))


def group_norm(x, layer):
    """(places, channels), normalized in 32 groups of channels over all places."""
    groups = x.reshape(len(x), 32, -1)
    mean, variance = groups.mean((0, 2), keepdims=True), groups.var((0, 2), keepdims=True)
    return ((groups - mean) / np.sqrt(variance + 1e-4)).reshape(x.shape) * array(layer.gamma) + array(layer.beta)


def changed_places(layer, x, place):
    """Which places of the output change, to the bit, when the input changes at one."""
    other = x.copy()
    other[0][place] += RNG.normal(size=x.shape[-1])  # layer norm would take away a constant
    return (array(layer(x)) != array(layer(other)))[0].any(-1)


def line_of(axis, row, column, shape):
    rows, columns = np.indices(shape)
    return rows == row if axis == "row" else columns == column


@pytest.mark.parametrize("axis", ["row", "column"])
def test_a_place_sees_its_line_alone(axis):
    x = RNG.normal(size=(1, 4, 6, 32)).astype("float32")
    layer = shaken(axial.PositionSensitiveAttention(axis, num_heads=4), x)
    np.testing.assert_array_equal(changed_places(layer, x, (1, 2)), line_of(axis, 1, 2, (4, 6)))


@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize("axis", ["row", "column"])
def test_a_patch_sees_its_line_alone(axis, token):
    x = tokens(token)
    block = shaken(axial.AxialEncoderBlock(axis, GRID, num_heads=3, mlp_dim=16), x)
    changed = changed_places(block, x, token + 1 * GRID[1] + 2)
    np.testing.assert_array_equal(changed[token:].reshape(GRID), line_of(axis, 1, 2, GRID))
    assert changed[:token].all(), "the class token sees every patch"
    if token:
        np.testing.assert_array_equal(changed_places(block, x, 0), np.arange(PATCHES + 1) == 0)


def test_only_offsets_count_as_positions():
    """Attention moves along with what it looks at, where nothing else is in the line."""
    x = np.zeros((1, 1, 8, 32), "float32")
    layer = axial.PositionSensitiveAttention("row", num_heads=4)
    layer(x)
    vectors = array(layer.relative_vectors(8))
    np.testing.assert_array_equal(vectors[1:, 1:], vectors[:-1, :-1])
    assert (vectors[0, 1:] != vectors[0, :-1]).any(-1).all()


@pytest.mark.parametrize(
    ("make", "shape", "sentence"),
    [
        (lambda: axial.AxialSelfAttention("diagonal", GRID, num_heads=2), None, "'row' or 'column'. Received"),
        (lambda: axial.AxialSelfAttention("row", GRID, num_heads=2), (2, 14, 8), "15 tokens of 3x5 .* Received: 14"),
        (lambda: axial.PositionSensitiveAttention("diagonal"), None, "'row' or 'column'. Received"),
        (lambda: axial.PositionSensitiveAttention("row"), (2, 4, None, 64), "a known height and width"),
        (lambda: axial.PositionSensitiveAttention("row", num_heads=5), (2, 4, 4, 64), "channels that 10"),
        (lambda: axial.AxialBottleneck(32, strides=2), (2, 4, 5, 64), "that 2 divides"),
    ],
)
def test_bad_input_is_a_sentence(make, shape, sentence):
    with pytest.raises(ValueError, match=sentence):
        make().build(shape)

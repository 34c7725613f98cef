"""Appendix D.4: what is learned of a patch's place, and where it is added; each by a property that it alone has."""

import keras
import numpy as np
import pytest
from positions import GRID, KINDS, PLACES, answer, images, make, position_weights
from slowness import slow_but

from keras_vit import models, zoo
from keras_vit.errors import ConfigError
from keras_vit.models import cost

PATCHES, WIDTH, LAYERS, HEADS = GRID[0] * GRID[1], 16, 2, 2
# Weights of one layer that adds them, or of one block that attends by them, with and without a class token.
ONE = {
    "none": (0, 0),
    "1d": ((PATCHES + 1) * WIDTH, PATCHES * WIDTH),
    "2d": (sum(GRID) * WIDTH // 2,) * 2,
    "relative": ((2 * PATCHES - 1) * WIDTH // HEADS,) * 2,
    "sincos2d": (0, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("classifier", slow_but(["token", "gap"], "token"))
@pytest.mark.parametrize(
    ("kind", "place"), slow_but(KINDS, ("none", "stem"), ("relative", "stem"), ("2d", "every-layer"))
)
def test_shape_parameters_and_gradient(kind, place, classifier):
    model = make(kind, place, classifier=classifier)
    own = position_weights(model)
    often = LAYERS if kind == "relative" or place == "every-layer" else 1
    assert sum(v.shape.num_elements() for v in own) == often * ONE[kind][classifier == "gap"]
    assert model.count_params() == cost.count_parameters(model.config)
    assert answer(model, images()).shape == (2, 3)
    before = [keras.ops.convert_to_numpy(v) for v in own]
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(images(), np.ones((2, 3)), verbose=0)
    changed = [(keras.ops.convert_to_numpy(v) != b).all() for v, b in zip(own, before, strict=True)]
    # Of the last block the class token's query alone is read, which is at no offset from any patch.
    idle = kind == "relative" and classifier == "token"
    assert changed == [True] * (len(own) - idle) + [False] * idle


@pytest.mark.parametrize("kind", ["2d", "relative"])
def test_hybrids_have_them_too(kind):
    backbone = {"depths": (1,), "width_factor": 0.5}
    model = make(kind, patch_size=2, backbone=backbone)
    assert model.config.grid == GRID and position_weights(model)
    assert model.count_params() == cost.count_parameters(model.config)
    assert answer(model, images()).shape == (2, 3)


def permuted(x, order):
    """The images with their patches of 8 x 8 in another order."""
    n, (rows, columns) = len(x), GRID
    patches = x.reshape(n, rows, 8, columns, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, PATCHES, 8, 8, 3)
    patches = patches[:, order].reshape(n, rows, columns, 8, 8, 3)
    return patches.transpose(0, 1, 3, 2, 4, 5).reshape(x.shape)


@pytest.mark.parametrize(("kind", "place"), KINDS)
def test_none_alone_sees_a_bag_of_patches(kind, place):
    """Without positions the tokens of permuted patches are the permuted tokens, and the class token stays."""
    model, order = make(kind, place), [4, 2, 5, 0, 1, 3]
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    found, expected = (answer(tokens, x) for x in (permuted(images(), order), images()))
    expected = expected[:, [0, *(1 + i for i in order)]]
    difference = np.abs(found - expected).max()
    assert difference < 1e-5 if kind == "none" else difference > 1e-2


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_where_they_are_added(kind, place):
    """Once before the encoder; or to the input of every block, whose output is what the block before made."""
    model = make(kind, place)
    names = model.config.position_layers
    assert len(names) == (1 if place == "stem" else LAYERS) and len(set(names)) == (2 if place == "every-layer" else 1)
    blocks = [model.get_layer(f"encoderblock_{i}") for i in range(LAYERS)]
    cls, dropout = model.get_layer("cls").output, model.get_layer("dropout").output
    outputs = [cls, dropout, *(x for block in blocks for x in (block.input, block.output))]
    tokens, stem, first, between, second, _ = map(np.asarray, keras.Model(model.input, outputs)(images()))
    tables = [keras.ops.convert_to_numpy(model.get_layer(name).compose()) for name in names]
    added = {"stem": (tables[0], 0, 0), "every-layer": (0, *tables), "every-layer-shared": (0, *tables)}[place]
    for found, expected in zip((stem - tokens, first - stem, second - between), added, strict=True):
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-5)


def test_shared_embeddings_are_one_variable():
    """A change of it moves the inputs of both blocks; of one in every layer's own, that of its block alone."""
    for place, moved in (("every-layer-shared", [True, True]), ("every-layer", [False, True])):
        model = make("1d", place)
        inputs = keras.Model(model.input, [model.get_layer(f"encoderblock_{i}").input for i in range(LAYERS)])
        before = [np.asarray(x) for x in inputs(images())]
        table = model.get_layer(model.config.position_layers[-1]).embedding
        table.assign(table + 1)
        after = [np.asarray(x) for x in inputs(images())]
        assert [not np.array_equal(a, b) for a, b in zip(after, before, strict=True)] == moved


@pytest.mark.parametrize("grid", [GRID, (1, 3), (3, 1), (1, 1)])
def test_2d_positions_are_a_row_and_a_column(grid):
    model = make("2d", image_size=tuple(8 * side for side in grid))
    table = keras.ops.convert_to_numpy(model.get_layer("posembed_input").compose())[0]
    assert not table[0].any()  # the class token is at no place
    x, y = np.split(table[1:].reshape(*grid, WIDTH), 2, axis=-1)
    assert (x == x[:1]).all() and (y == y[:, :1]).all()
    assert len(np.unique(table[1:], axis=0)) == grid[0] * grid[1]


def test_a_shift_of_both_patches_changes_nothing():
    """Where all patches look alike, a query's preference of one offset to another is the same at every place."""
    model = make("relative", classifier="gap", num_layers=1)
    logits = np.log(np.asarray(model.attention(np.zeros((1, 16, 24, 3), "float32")))[0, 0])  # (heads, l, l)
    to_next = [logits[:, i, i + 1] - logits[:, i, i] for i in range(PATCHES - 1)]
    back_two = [logits[:, i, i - 2] - logits[:, i, i] for i in range(2, PATCHES)]
    for preferences in (to_next, back_two):
        np.testing.assert_allclose(preferences, np.broadcast_to(preferences[0], np.shape(preferences)), atol=1e-5)
    assert np.abs(to_next[0] - back_two[0]).min() > 1e-3


@pytest.mark.parametrize(("kind", "place"), KINDS)
def test_attention_is_that_of_the_blocks(kind, place):
    """`attention` goes from block to block as the model does."""
    model = make(kind, place)
    inputs = keras.Model(model.input, [model.get_layer(f"encoderblock_{i}").input for i in range(LAYERS)])(images())
    weights = np.asarray(model.attention(images()))
    for i, x in enumerate(inputs):
        _, expected = model.get_layer(f"encoderblock_{i}")(x, return_weights=True)
        np.testing.assert_allclose(weights[:, i], np.asarray(expected), atol=1e-6)


def test_a_resnet_has_no_positions():
    with pytest.raises(ConfigError, match="A ResNet has no position_embedding; only ViTs and hybrids do. Received"):
        zoo.load("R50x1", weights=None, position_embedding="2d")
    assert models.variant("R50x1").config == zoo.load("R50x1", weights=None, position_embedding="none").config

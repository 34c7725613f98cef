"""Filters, position embeddings, attention and features, on cases whose answer is known, and against numpy."""

import tracemalloc

import keras
import numpy as np
import pytest

from keras_vit import inspection, layers, models
from keras_vit.errors import ConfigError

VIT = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 16}
HYBRID = {**VIT, "patch_size": 1, "image_size": (64, 96), "backbone": {"depths": (1, 1), "width_factor": 1}}
IMAGES = np.random.default_rng(1).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")


def shake(model):
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.3, variable.shape))
    return model


@pytest.fixture(scope="module", params=["token", "gap"])
def vit(request):
    return shake(models.VisionTransformer(**VIT, num_classes=3, classifier=request.param))


@pytest.fixture(scope="module")
def hybrid():
    return shake(models.VisionTransformer(**HYBRID, num_classes=3))


@pytest.fixture(scope="module")
def resnet():
    return shake(models.ResNet(image_size=(64, 96), depths=(1, 1), num_classes=5))


def test_filters_are_the_kernels_principal_components(vit):
    found = inspection.filters(vit, count=5)
    rows = keras.ops.convert_to_numpy(vit.get_layer("embedding").kernel).reshape(-1, 16).T.astype("float64")
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    expected = vectors[:, ::-1][:, :5].T
    cosines = np.abs(np.einsum("ij,ij->i", found.reshape(5, -1), expected))
    np.testing.assert_allclose(cosines, 1, atol=1e-9)
    assert found.shape == (5, 8, 8, 3)


def test_filters_of_the_first_convolution(hybrid, resnet):
    assert inspection.filters(hybrid).shape == (28, 7, 7, 3)
    assert inspection.filters(resnet, 1000).shape == (64, 7, 7, 3)  # as many as it has


def test_similarity_of_a_planted_grid(vit):
    """Embeddings that are angles in two planes, one for the row, one for the column."""
    rows, columns = vit.config.grid
    row, column = np.indices((rows, columns)) * 0.5
    planted = np.stack([np.cos(row), np.sin(row), np.cos(column), np.sin(column)], -1)
    layer = vit.get_layer("posembed_input")
    before = keras.ops.convert_to_numpy(layer.embedding)
    embedding = np.full(before.shape, 7.0)
    embedding[0, -rows * columns :] = np.pad(planted.reshape(-1, 4), ((0, 0), (0, 12))) * 3
    layer.embedding.assign(embedding)
    similarity = inspection.position_similarity(vit)
    layer.embedding.assign(before)
    expected = (np.cos(row[:, :, None, None] - row) + np.cos(column[:, :, None, None] - column)) / 2
    np.testing.assert_allclose(similarity, expected, atol=1e-6)


def test_similarity_of_position_embeddings_elsewhere():
    """2-D ones as they are added; every layer's own by block; none, or relative ones, have no map."""
    fields = {**VIT, "position_embedding": "2d", "position_embedding_at": "every-layer"}
    model = shake(models.VisionTransformer(**fields))
    y, x = (np.asarray(getattr(model.get_layer("posembed_1"), f"{axis}_embedding")) for axis in ("row", "column"))
    rows, columns = model.config.grid
    patches = np.stack([np.r_[x[i % columns], y[i // columns]] for i in range(rows * columns)])
    unit = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    found = inspection.position_similarity(model, block=1).reshape(rows * columns, -1)
    np.testing.assert_allclose(found, unit @ unit.T, atol=1e-6)
    assert not np.allclose(inspection.position_similarity(model).reshape(found.shape), found, atol=0.1)
    with pytest.raises(ConfigError, match="at 3 places. Received: block=3"):
        inspection.position_similarity(model, block=3)
    for kind in ("none", "relative"):
        with pytest.raises(ConfigError, match=f"1d or 2d. Received: one with position_embedding='{kind}'"):
            inspection.position_similarity(models.VisionTransformer(**VIT, position_embedding=kind))


def test_weights_are_each_blocks_own(vit):
    weights, tokens = inspection.attention_weights(vit, IMAGES), 6 + (vit.config.classifier == "token")
    assert weights.shape == (3, 2, 2, tokens, tokens)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    block = vit.get_layer("encoderblock_2")
    x = keras.Model(vit.input, block.input)(IMAGES)
    y = keras.ops.convert_to_numpy(block.attention_norm(x))
    q, k = (
        (y @ keras.ops.convert_to_numpy(d.kernel) + keras.ops.convert_to_numpy(d.bias)).reshape(2, tokens, 2, 8)
        for d in (block.attention.query, block.attention.key)
    )
    scores = np.einsum("nlhe,nmhe->nhlm", q, k) / np.sqrt(8)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights[2], expected, atol=1e-5)


def uniform(tokens):
    return np.full((2, 3, 4, tokens, tokens), 1 / tokens)


def test_attention_to_itself_has_distance_0():
    weights = np.broadcast_to(np.eye(7), (2, 3, 4, 7, 7))
    np.testing.assert_array_equal(inspection.attention_distance(weights, (2, 3), 16), np.zeros((2, 4)))


@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize("columns", [2, 5, 14])
def test_uniform_attention_in_a_row(token, columns):
    """The mean of |i - j| over a row of n is (n^2 - 1) / 3n."""
    weights = uniform(columns + token)
    expected = (columns**2 - 1) / (3 * columns) * 16
    np.testing.assert_allclose(inspection.attention_distance(weights, (1, columns), (8, 16)), expected)


def test_attention_to_the_next_row_alone():
    """In pixels of the image's height, whatever the class token takes."""
    weights = np.zeros((1, 1, 1, 7, 7))
    weights[..., 0] = 0.75
    for i in range(6):
        weights[..., 1 + i, 1 + (i + 3) % 6] = 0.25
    np.testing.assert_allclose(inspection.attention_distance(weights, (2, 3), (8, 16)), 8)


def test_distance_takes_less_memory_than_the_weights():
    weights = np.random.default_rng(0).uniform(size=(12, 2, 2, 101, 101)).astype("float32")
    tracemalloc.start()
    inspection.attention_distance(weights, (10, 10))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < weights.nbytes


def test_distance_of_a_model(vit):
    weights = inspection.attention_weights(vit, IMAGES)
    found = inspection.attention_distance(weights, vit.config.grid, vit.config.pixels_per_token)
    assert found.shape == (3, 2) and (found > 0).all() and (found < np.hypot(8, 16)).all()
    first = weights[0, :, 1, -6:, -6:]
    first = first / first.sum(-1, keepdims=True)
    places = [(8 * r, 8 * c) for r in range(2) for c in range(3)]
    by_hand = np.mean(
        [[first[n, q] @ [np.hypot(*np.subtract(p, places[q])) for p in places] for q in range(6)] for n in (0, 1)]
    )
    np.testing.assert_allclose(found[0, 1], by_hand, rtol=1e-6)


def test_rollout(vit):
    token = vit.config.classifier == "token"
    weights = inspection.attention_weights(vit, IMAGES)
    seen = inspection.rollout(weights, vit.config.grid)
    np.testing.assert_array_equal(seen, inspection.rollout(weights, vit.config.grid, token))
    assert seen.shape == (2, 2, 3)
    np.testing.assert_allclose(seen.sum((1, 2)), 1, atol=1e-5)
    joint = np.eye(weights.shape[-1])
    for block in weights.mean(2)[:, 0]:
        joint = (block + np.eye(len(block))) / 2 @ joint
    first = joint[0, 1:] / joint[0, 1:].sum() if token else joint.mean(0)
    np.testing.assert_allclose(seen[0].ravel(), first, atol=1e-5)


def test_uniform_attention_is_seen_everywhere():
    np.testing.assert_allclose(inspection.rollout(uniform(5), (2, 2)), np.full((3, 2, 2), 0.25))


def test_rollout_of_a_mean_is_over_the_patches_that_the_model_reads():
    """By hand: the mean of the patches' rows of one block, without the columns of the tokens before them."""
    for before, registers in ((1, 0), (2, 2), (3, 2)):
        l = before + 6
        weights = np.random.default_rng(0).dirichlet(np.ones(l), (1, 2, 3, l))
        mixed = (weights[0].mean(1) / 2 + np.eye(l) / 2)[:, before:, before:].mean(1)
        expected = (mixed / mixed.sum(-1, keepdims=True)).reshape(2, 2, 3)
        found = inspection.rollout(weights, (2, 3), token=False, registers=registers)
        np.testing.assert_allclose(found, expected)


def test_figure_10_is_a_row_of_models(vit):
    similarity = inspection.position_similarity(vit)
    figure = inspection.plot_position_similarity({"a": similarity, "b": -similarity})
    maps = [panel.axes[0].get_images()[0].get_array() for panel in figure.subfigs]
    np.testing.assert_array_equal(maps, [similarity[0, 0], -similarity[0, 0]])


def test_features_are_the_blocks_outputs(vit, hybrid):
    for model, images in ((vit, IMAGES), (hybrid, np.zeros((1, 64, 96, 3), "float32"))):
        rows, columns = model.config.grid
        found = inspection.features(model, images, as_grid=True)
        assert found.shape == (3, len(images), rows, columns, 16)
        last = keras.Model(model.inputs[0], model.get_layer("encoderblock_2").output)(images)
        patches = keras.ops.convert_to_numpy(last)[:, -rows * columns :]
        np.testing.assert_allclose(found[2].reshape(patches.shape), patches, atol=1e-5)
        np.testing.assert_allclose(inspection.features(model, images, -1), patches, atol=1e-5)
        np.testing.assert_allclose(
            inspection.features(model, images, (2, -3))[1], found[0].reshape(patches.shape), atol=1e-5
        )


def test_colours_are_principal_components():
    rng = np.random.default_rng(0)
    grids = rng.normal(size=(2, 5, 6, 8)) * np.array([9, 0.1, 5, 0.1, 2, 0.1, 0.1, 0.1])
    colours = inspection.feature_colours(grids)
    assert colours.shape == (2, 5, 6, 3) and colours.min() == 0 and colours.max() == 1
    for channel, feature in enumerate((0, 2, 4)):
        correlation = np.corrcoef(colours[..., channel].ravel(), grids[..., feature].ravel())[0, 1]
        assert abs(correlation) > 0.97
    assert inspection.feature_colours(grids[:1, :1, :2]).shape == (1, 1, 2, 3)  # fewer patches than colours


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the other backends compile no single operations")
def test_a_resnet_is_made_inspected_and_copied_by_few_programs(resnet):
    import jax

    compiled, images = [], np.random.default_rng(0).uniform(-1, 1, (2, 64, 96, 3)).astype("float32")
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **about: compiled.append(name))

    def count(call):
        jax.clear_caches()
        compiled.clear()
        call()
        return sum("backend_compile" in name for name in compiled)

    assert 0 < count(lambda: inspection.class_activation(resnet, images)) < 15
    assert 0 < count(lambda: models.fold(resnet)) < 40
    assert 0 < count(lambda: models.ResNet(image_size=64, depths=(1, 1, 1), num_classes=5)) < 25
    layer = layers.StandardizedConv2D(64, 3)
    layer.build((None, 8, 8, 32))
    kernel = 288**0.5 * np.asarray(layer.kernel)  # LeCun's normal distribution, cut off at two deviations
    assert abs(kernel.mean()) < 0.02 and abs(kernel.std() - 1) < 0.02 and 2.2 < abs(kernel).max() < 2.28


def test_the_mean_of_a_class_activation_is_the_logit(resnet):
    images = np.random.default_rng(2).uniform(-1, 1, (2, 64, 96, 3)).astype("float32")
    logits = keras.ops.convert_to_numpy(resnet(images))
    bias = keras.ops.convert_to_numpy(resnet.get_layer("head").bias)
    for asked, classes in ((None, logits.argmax(-1)), (3, [3, 3]), ([1, 4], [1, 4])):
        maps = inspection.class_activation(resnet, images, asked)
        assert maps.shape == (2, 8, 12)
        np.testing.assert_allclose(maps.mean((1, 2)) + bias[classes], logits[[0, 1], classes], rtol=1e-4, atol=1e-4)


def test_what_cannot_be_looked_at_is_a_sentence(vit, resnet):
    images = np.zeros((1, 64, 96, 3), "float32")
    for call, sentence in (
        (lambda: inspection.position_similarity(resnet), "takes a VisionTransformer. Received: a ResNet"),
        (lambda: inspection.features(resnet, images), "takes a VisionTransformer. Received: a ResNet"),
        (lambda: inspection.attention_weights(resnet, images), "Received: a ResNet. For a ResNet there is class_activ"),
        (
            lambda: inspection.attention_weights(vit, images[:, :16]),
            r"shape \(n, 16, 24, 3\). Received: \(1, 16, 96, 3",
        ),
        (lambda: inspection.features(vit, images[0]), r"shape \(n, 16, 24, 3\). Received: \(64, 96, 3\)"),
        (lambda: inspection.rollout(np.zeros((1, 1, 1, 8, 8)), (2, 3)), "2x3 patches .* l 6, or 7 with"),
        (lambda: inspection.rollout(np.ones((1, 1, 1, 6, 6)), (2, 3), True), "6 tokens have no class token"),
        (lambda: inspection.features(vit, IMAGES, 3), "numbers of blocks from -3 to 2. Received: 3"),
        (lambda: inspection.features(vit, IMAGES, []), r"numbers of blocks from -3 to 2. Received: \[\]"),
        (lambda: inspection.class_activation(vit, IMAGES), "takes a ResNet with a head"),
        (lambda: inspection.class_activation(resnet, images, 5), "numbers from 0 to 4. Received: 5"),
        (lambda: inspection.filters(keras.Sequential([keras.Input((2,))])), "takes a model of keras_vit"),
        (lambda: inspection.filters(vit, 0), "count must be at least 1"),
        (lambda: inspection.attention_distance(np.zeros((1, 1, 1, 8, 8)), (2, 3)), "2x3 patches .* l 6, or 7 with"),
        (lambda: inspection.attention_distance(np.zeros((6, 6)), (2, 3)), r"Received: shape \(6, 6\)"),
        (lambda: inspection.feature_colours(np.zeros((2, 2, 2, 2))), "with d at least 3"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            call()

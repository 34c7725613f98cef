"""Axial-ViT and AxialResNet: shapes, gradients, what a token sees, files, resized positions, inspection."""

import zipfile

import keras
import numpy as np
import pytest
from shaking import shaken
from slowness import slow_but

from keras_vit import inspection, models, zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.models import cost

VIT = {
    "image_size": (32, 48),
    "patch_size": 8,
    "hidden_size": 24,
    "num_layers": 2,
    "num_heads": 2,
    "mlp_dim": 40,
    "num_classes": 5,
}
GRID = 4, 6
MAKERS = {
    "gap": lambda: models.AxialVisionTransformer(**VIT, classifier="gap", representation_size=12),
    "token": lambda: models.AxialVisionTransformer(**VIT),
    "resnet": lambda: models.AxialResNet((16, 32), depths=(1, 2), width_factor=0.5, num_classes=5, num_heads=4),
}


@pytest.fixture(scope="module")
def made():
    return {name: shaken(make()) for name, make in MAKERS.items()}


def images_for(model, count=2):
    size = model.config.image_size
    return np.random.default_rng(1).uniform(-1, 1, (count, *size, 3)).astype("float32")


def array(x):
    return keras.ops.convert_to_numpy(x)


@pytest.mark.parametrize("name", MAKERS)
def test_shapes_and_parameters(made, name):
    model = made[name]
    assert model(images_for(model)).shape == (2, 5)
    assert model.features(images_for(model)).shape == (2, {"gap": 12, "token": 24, "resnet": 256}[name])
    assert model.count_params() == cost.count_parameters(model.config)
    rebuilt = models.build(model.config)
    assert type(rebuilt) is type(model) and rebuilt.config == model.config


def test_an_axial_block_has_the_parameters_of_a_block():
    """Two axial blocks for each block: Axial-ViT-B has twelve blocks more than ViT-B, and no class token."""
    block = 4 * 768 * 769 + 768 * 3073 + 3072 * 769 + 4 * 768
    plain, axial = (models.variant(name).parameters for name in ("ViT-B/16", "Axial-ViT-B/16"))
    assert axial == plain + 12 * block - 2 * 768
    assert models.variant("Axial-ViT-B/16").config.num_layers == 24


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the tape is TensorFlow's")
@pytest.mark.parametrize("name", MAKERS)
def test_every_weight_has_a_gradient(made, name):
    import tensorflow as tf

    model = made[name]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(images_for(model), training=True) ** 2)
    for variable, gradient in zip(
        model.trainable_variables, tape.gradient(loss, [v.value for v in model.trainable_variables]), strict=True
    ):
        gradient = np.asarray(gradient)
        assert np.isfinite(gradient).all() and gradient.any(), variable.path


def changed_tokens(model, block, patch):
    """Which tokens change, to the bit, after a block when the pixels of one patch do."""
    images = images_for(model, 1)
    other = images.copy()
    row, column = patch
    other[0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 0.5
    until = keras.Model(model.inputs[0], model.get_layer(f"encoderblock_{block}").output)
    return (array(until(images)) != array(until(other)))[0].any(-1)


@pytest.mark.parametrize("name", ["gap", "token"])
def test_a_patch_has_seen_its_row_after_one_block_and_everything_after_two(made, name):
    after = [changed_tokens(made[name], block, (1, 2))[-24:].reshape(GRID) for block in (0, 1)]
    expected = np.zeros(GRID, bool)
    expected[1] = True
    np.testing.assert_array_equal(after[0], expected)
    assert after[1].all()


def test_a_column_block_alone_sees_the_column(made):
    block, model = made["gap"].get_layer("encoderblock_1"), made["gap"]
    x = np.random.default_rng(0).normal(size=(1, 24, 24)).astype("float32")
    other = x.copy()
    other[0, 1 * 6 + 2] *= -1
    changed = (array(block(x)) != array(block(other)))[0].any(-1).reshape(model.config.grid)
    expected = np.zeros(GRID, bool)
    expected[:, 2] = True
    np.testing.assert_array_equal(changed, expected)


def test_no_patch_sees_the_class_token(made):
    model = made["token"]
    images = images_for(model)
    until = keras.Model(model.inputs[0], model.get_layer("encoder_norm").output)
    before = array(until(images))
    token = model.get_layer("cls").token
    token.assign(token + 1)
    after = array(until(images))
    token.assign(token - 1)
    np.testing.assert_array_equal(after[:, 1:], before[:, 1:])
    assert (after[:, 0] != before[:, 0]).any()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("ending", slow_but([".npz", ".keras", ".weights.h5"], ".npz"))
def test_files_come_back_strictly(made, name, ending, tmp_path):
    model, path = made[name], tmp_path / f"model{ending}"
    zoo.save(model, path)
    again = zoo.load(path)
    assert type(again) is type(model) and again.config == model.config
    np.testing.assert_array_equal(array(again(images_for(model))), array(model(images_for(model))))
    with pytest.raises(CheckpointError, match="is not a .* checkpoint"):
        zoo.load("ViT-B/16" if name == "resnet" else "R50x1", weights=path)


@pytest.mark.parametrize("name", MAKERS)
def test_the_architecture_is_read_off_the_tensors(made, name, tmp_path):
    model, path = made[name], tmp_path / "model.npz"
    zoo.save(model, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b""
    again = zoo.load(path, image_size=model.config.image_size)
    assert again.config == model.config
    np.testing.assert_array_equal(array(again(images_for(model))), array(model(images_for(model))))
    with np.load(path) as tensors:
        left = dict(tensors)
    left.pop(next(key for key in left if key.endswith(("axialblock_1/LayerNorm_2/scale", "row_attention/qkv/kernel"))))
    np.savez(tmp_path / "less.npz", **left)
    with pytest.raises(CheckpointError, match="missing: (Transformer/axialblock_1|block1/unit1/row_attention)"):
        zoo.load(tmp_path / "less.npz", image_size=model.config.image_size)


@pytest.mark.parametrize("name", MAKERS)
def test_safetensors_says_why_not(made, name, tmp_path):
    with pytest.raises(CheckpointError, match="timm has no axial models. Save it as .npz"):
        zoo.save(made[name], tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_an_axial_resnet_is_no_resnet(tmp_path):
    fields = {"image_size": (16, 16), "depths": (1,), "width_factor": 0.5, "num_classes": 2}
    zoo.save(models.ResNet(**fields), tmp_path / "resnet.npz")
    with pytest.raises(CheckpointError, match="it holds a model of class ResNet, not AxialResNet"):
        zoo.load("AxialResNet50", weights=tmp_path / "resnet.npz")


def test_positions_of_axial_vit_are_resized(made, tmp_path):
    zoo.save(made["token"], tmp_path / "model.npz")
    larger = zoo.load(tmp_path / "model.npz", image_size=(64, 48))
    assert larger.config.grid == (8, 6)
    old, new = (array(model.get_layer("posembed_input").embedding)[0] for model in (made["token"], larger))
    np.testing.assert_array_equal(new[0], old[0])
    np.testing.assert_allclose(new[1:].reshape(8, 6, -1)[[0, -1]], old[1:].reshape(4, 6, -1)[[0, -1]], rtol=1e-6)


def test_offsets_of_axial_resnet_are_resized(made, tmp_path):
    """np.interp says what linear interpolation between offsets is; the middle, offset 0, stays."""
    zoo.save(made["resnet"], tmp_path / "model.npz")
    larger = zoo.load(tmp_path / "model.npz", image_size=(32, 32))
    units = (made["resnet"].get_layer("block2_unit1"), larger.get_layer("block2_unit1"))
    rows = [array(unit.row_attention.relative_embedding) for unit in units]
    np.testing.assert_array_equal(*rows)
    old, new = (array(unit.column_attention.relative_embedding) for unit in units)
    assert (len(old), len(new)) == (7, 15)
    places = np.linspace(0, 6, 15)
    expected = np.stack([np.interp(places, np.arange(7), old[:, i]) for i in range(old.shape[1])], axis=1)
    np.testing.assert_allclose(new, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new[7], old[3], rtol=1e-6)


@pytest.mark.parametrize("name", ["gap", "token"])
def test_inspection_of_an_axial_vit(made, name):
    model = made[name]
    weights = inspection.attention_weights(model, images_for(model))
    length = 24 + (name == "token")
    assert weights.shape == (2, 2, 2, length, length)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    rows = np.indices(GRID)[0].ravel()
    assert not weights[0][..., -24:, -24:][..., rows[:, None] != rows[None]].any()
    distance = inspection.attention_distance(weights, GRID, 8)
    assert (0 < distance).all() and (distance[0] < 5 * 8).all() and (distance[1] < 3 * 8).all()
    maps = inspection.rollout(weights, GRID)
    assert (maps > 0).all(), "a row block and a column block reach everything"
    assert inspection.features(model, images_for(model), layers=-1, as_grid=True).shape == (2, *GRID, 24)


def test_inspection_of_an_axial_resnet(made):
    model = made["resnet"]
    images = images_for(model)
    with pytest.raises(ConfigError, match="takes a VisionTransformer. Received: a AxialResNet"):
        inspection.attention_weights(model, images)
    maps, head = inspection.class_activation(model, images, 3), model.get_layer("head")
    assert maps.shape == (2, 2, 4)
    np.testing.assert_allclose(maps.mean((1, 2)) + array(head.bias)[3], array(model(images))[:, 3], atol=1e-4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: models.AxialViTConfig(num_layers=3), "num_layers of an Axial-ViT must be even"),
        (lambda: models.AxialResNetConfig(image_size=None), "needs image_size"),
        (lambda: models.AxialResNetConfig(image_size=(224, 100)), r"multiples of 32, .*\(224, 100\)"),
        (lambda: models.AxialResNetConfig(num_heads=12), "must divide half of the 64 channels .* Received: 12"),
        (lambda: models.AxialResNetConfig(kernel_std_epsilon=-1), "kernel_std_epsilon must be in"),
        (lambda: zoo.load("AxialResNet50", weights=None, dropout_rate=0.1), "has no dropout_rate"),
        (lambda: zoo.load("AxialResNet50", weights=None, image_size=225), "multiples of 32"),
    ],
)
def test_bad_input_is_a_sentence(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


@pytest.mark.parametrize("name", ["Axial-ViT-B/32", "Axial-ViT-B/16", "AxialResNet50"])
def test_variants_are_listed(name):
    found = zoo.info(name)
    assert (found.variant, found.resolution, found.parameters) == (name, 224, models.variant(name).parameters)
    assert name in {row.name for row in zoo.list("Axial*", pretrained=False)}

"""`zoo.load`: every layout of the authors, strictly; other heads and sizes; sentences for files that do not fit."""

import pathlib
import zipfile

import keras
import layouts
import numpy as np
import pytest
from golden import GOLDEN, logits, reference
from positions import sines_and_cosines
from scipy import ndimage

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.layers.interpolation import resize_positions


def written(path, tensors):
    np.savez(path, **tensors)
    return path


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors.index.json"])
def test_a_folder_of_transformers_whose_weights_are_not_read(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=rf"{name} is not read. save_pretrained\(.* writes one model.safetensors"):
        zoo.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("vit_token", layouts.with_optimizer),
        ("vit_token", layouts.linen),
        ("vit_token", layouts.big_vision),
        ("vit_token", layouts.two_towers),
        ("vit_token", layouts.stacked),
        ("vit_prelogits", layouts.stacked),
        ("vit_gap_linen", layouts.big_vision),
        ("hybrid_1_1_2", layouts.linen),
        ("hybrid_1_1_2", layouts.with_optimizer),
        ("bit_1_2_1_1", layouts.with_optimizer),
        ("bit_1_2_1_1", layouts.numbered_convolutions),
        ("bit_1_2_1_1", layouts.big_vision_bit),
    ],
)
def test_layouts(name, layout, tmp_path):
    images, expected = reference(name)
    path = written(tmp_path / "other.npz", layout(layouts.read(GOLDEN / f"{name}.npz")))
    np.testing.assert_allclose(logits(zoo.load(path), images), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("asked", "grid"), [({}, None), ({"image_size": (32, 48)}, (32, 48)), ({"classifier": "token"}, None)]
)
def test_positions_that_are_computed(asked, grid, tmp_path):
    """big_vision's vit_s16_i1k files store none; at any size they are the formula, never interpolated."""
    tensors = layouts.read(GOLDEN / "vit_gap_linen.npz")
    size = tensors["embedding/kernel"].shape[0]
    rows, columns = (side // size for side in grid or (224, 224))
    model = zoo.load(written(tmp_path / "bare.npz", layouts.without_positions(tensors)), **asked)
    assert (model.config.grid, model.config.position_embedding) == ((rows, columns), "sincos2d")
    layer = model.get_layer("posembed_input")
    found = keras.ops.convert_to_numpy(layer.compose())
    assert not layer.weights
    expected = sines_and_cosines(rows, columns, found.shape[-1])
    np.testing.assert_allclose(found[:, -rows * columns :], expected, atol=1e-6)
    assert not found[:, : -rows * columns].any()


def test_a_file_with_computed_positions_answers_as_one_that_stores_them(tmp_path):
    tensors = layouts.read(GOLDEN / "vit_gap_linen.npz")
    _, length, width = tensors["Transformer/posembed_input/pos_embedding"].shape
    positions = sines_and_cosines(*(int(length**0.5),) * 2, width).astype("float32")
    images, _ = reference("vit_gap_linen")
    stored = zoo.load(written(tmp_path / "a.npz", {**tensors, "Transformer/posembed_input/pos_embedding": positions}))
    computed = written(tmp_path / "b.npz", layouts.without_positions(tensors))
    again = zoo.load(computed, image_size=stored.config.image_size)
    np.testing.assert_allclose(logits(again, images), logits(stored, images), atol=1e-5)


def test_bfloat16(tmp_path):
    images, expected = reference("vit_token")
    path = written(tmp_path / "half.npz", layouts.bfloat16(layouts.read(GOLDEN / "vit_token.npz")))
    np.testing.assert_allclose(logits(zoo.load(path), images), expected, atol=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["vit_token", "hybrid_1_1_2", "bit_1_2_1_1"])
def test_precisions(name, dtype):
    """Half precision keeps three digits (bfloat16 two); kernels and norms reckon in float32, as their epsilons need.

    Compared in float32 with the weights as they are stored: rounding those of the hybrid to float16 alone changes its
    logits by half of the tolerance.
    """
    images, golden = reference(name)
    model, exact = zoo.load(GOLDEN / f"{name}.npz", dtype=dtype), zoo.load(GOLDEN / f"{name}.npz")
    np.testing.assert_allclose(logits(exact, images), golden, atol=1e-4 * np.abs(golden).max())
    exact.set_weights([np.asarray(keras.ops.cast(weight, "float32")) for weight in model.weights])
    expected = logits(exact, images)
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}[dtype.removeprefix("mixed_")]
    np.testing.assert_allclose(logits(model, images), expected, atol=10 * tolerance * np.abs(expected).max())


def test_architecture_is_read_off_the_file():
    config = zoo.load(GOLDEN / "vit_prelogits.npz").config
    assert (config.image_size, config.patch_size, config.hidden_size, config.num_layers) == ((64, 64), (16, 16), 64, 2)
    assert (config.num_heads, config.mlp_dim, config.num_classes, config.representation_size) == (2, 96, 5, 64)
    config = zoo.load(GOLDEN / "hybrid_1_1_2.npz").config
    assert (config.backbone.depths, config.backbone.width_factor, config.patch_size) == ((1, 1, 2), 0.5, (1, 1))
    config = zoo.load(GOLDEN / "bit_1_2_1_1.npz").config
    assert (config.depths, config.width_factor, config.num_classes, config.image_size) == ((1, 2, 1, 1), 0.5, 5, None)
    assert zoo.load(GOLDEN / "vit_gap_linen.npz").config.classifier == "gap"


def test_new_head_is_zero_and_drops_the_tanh_layer():
    model = zoo.load(GOLDEN / "vit_prelogits.npz", num_classes=3)
    images, _ = reference("vit_prelogits")
    assert model.config.representation_size is None
    assert logits(model, images).shape == (2, 3)
    assert not logits(model, images).any()


def test_features_are_what_the_head_reads():
    tensors = layouts.read(GOLDEN / "vit_prelogits.npz")
    images, expected = reference("vit_prelogits")
    features = logits(zoo.load(GOLDEN / "vit_prelogits.npz", num_classes=0), images)
    np.testing.assert_allclose(features @ tensors["head/kernel"] + tensors["head/bias"], expected, atol=1e-4)


def test_labels_make_the_head():
    model = zoo.load(GOLDEN / "vit_token.npz", labels=["cat", "dog"])
    assert (model.labels, model.config.num_classes) == (("cat", "dog"), 2)


@pytest.mark.parametrize("new", [(4, 4), (7, 7), (3, 9), (2, 2), (1, 5)])
def test_positions_are_resized_as_the_authors_do(new):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 1 + 25, 6)).astype("float32")
    grid = values[0, 1:].reshape(5, 5, 6)
    expected = ndimage.zoom(grid, (new[0] / 5, new[1] / 5, 1), order=1).reshape(1, -1, 6)
    resized = resize_positions(values, 1, (5, 5), new)
    np.testing.assert_allclose(resized[:, 1:], expected, atol=1e-6)
    np.testing.assert_array_equal(resized[:, :1], values[:, :1])


def test_saved_models_load_again(tmp_path):
    images, expected = reference("vit_token")
    labels = [f"class {i}" for i in range(7)]
    zoo.load(GOLDEN / "vit_token.npz", labels=labels, head="keep").save(tmp_path / "mine.keras")
    model = zoo.load(tmp_path / "mine.keras")
    assert model.labels == tuple(labels)
    np.testing.assert_allclose(logits(model, images), expected, atol=1e-4)
    images, expected = reference("vit_token@56")
    np.testing.assert_allclose(logits(zoo.load(tmp_path / "mine.keras", image_size=56), images), expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize. method")
def test_a_model_that_keras_quantized_is_refused(tmp_path):
    model = models.VisionTransformer(
        image_size=16, patch_size=8, hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8, num_classes=2
    )
    model.quantize("int8")
    for name in ("m.npz", "m.safetensors", "m.keras", "m.weights.h5", "hub"):
        layout = {"layout": "hub", "metadata": {"licence": "mit"}} if name == "hub" else {}
        with pytest.raises(CheckpointError, match="was quantized by Keras .int8.* Save it before model.quantize"):
            zoo.save(model, tmp_path / name, **layout)
    with pytest.raises(ConfigError, match="save it before model.quantize, or keep its weights alone"):
        model.save(tmp_path / "k.keras")
    assert not list(tmp_path.iterdir())


def test_weights_of_a_variant(tmp_path):
    model = zoo.load("ViT-Test/4", weights=None, num_classes=4)
    model.save(tmp_path / "best.keras")
    again = zoo.load("ViT-Test/4", weights=tmp_path / "best.keras")
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3))
    np.testing.assert_array_equal(logits(model, images), logits(again, images))
    with pytest.raises(CheckpointError, match="is not a ViT-Test/4 checkpoint: patch_size is .*; ViT-Test/4 has"):
        zoo.load("ViT-Test/4", weights=GOLDEN / "vit_token.npz")


QUERY = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop(QUERY), f"missing: {QUERY}"),
        (lambda t: t.update(extra=np.ones(3, "float32")), "left over: extra"),
        (lambda t: t.update({QUERY: t[QUERY].T}), rf"wrong shape: {QUERY} \(file \(16, 4, 64\), model \(64, 4, 16\)\)"),
        (lambda t: t.update({QUERY: t[QUERY].reshape(64, 64)}), "wrong shape"),
        (lambda t: t.pop("embedding/kernel"), "none of the official layouts"),
        (lambda t: t.pop("Transformer/posembed_input/pos_embedding"), "lacks the tensor .*pos_embedding"),
        (
            lambda t: t.update({"embedding/kernel": np.ones((8, 8), "float32")}),
            "embedding/kernel of shape .*; expected 4 axes",
        ),
        (lambda t: t.update({"MAPHead_0/probe": np.ones((1, 1, 64), "float32")}), "missing: MAPHead_0/"),
        (lambda t: t.pop("cls"), "no square grid"),
        (lambda t: t.update({"conv_root/kernel": t.pop("embedding/kernel")}), "a ResNet with a norm after each"),
        (lambda t: t.update({"cls": np.array(["a"])}), "expected an array of numbers"),
    ],
)
def test_strictness(change, sentence, tmp_path):
    tensors = layouts.read(GOLDEN / "vit_token.npz")
    change(tensors)
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(written(tmp_path / "changed.npz", tensors))


def test_pickled_tensors_are_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return pathlib.Path.touch, (tmp_path / "run",)

    path = written(tmp_path / "trap.npz", {**layouts.read(GOLDEN / "vit_token.npz"), "cls": np.array([Trap()])})
    with pytest.raises(CheckpointError, match="expected an array of numbers"):
        zoo.load(path)
    assert not (tmp_path / "run").exists()


def test_files_that_are_none(tmp_path):
    with pytest.raises(CheckpointError, match="There is no file"):
        zoo.load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(CheckpointError, match="cannot be read as a numpy archive"):
        zoo.load(tmp_path / "text.npz")
    (tmp_path / "text.keras").write_text("hello")
    with pytest.raises(CheckpointError, match="cannot be read as a Keras model"):
        zoo.load(tmp_path / "text.keras")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(CheckpointError, match="is not a numpy array"):
        zoo.load(tmp_path / "other.npz")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "foreign.keras")
    with pytest.raises(CheckpointError, match="not a model of this package"):
        zoo.load(tmp_path / "foreign.keras")


def test_a_torn_file_is_named(tmp_path):
    whole = (GOLDEN / "vit_token.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"torn\.npz"):
        zoo.load(tmp_path / "torn.npz")
    spoiled = bytearray(whole)
    spoiled[len(whole) // 2] ^= 0xFF
    (tmp_path / "spoiled.npz").write_bytes(spoiled)
    with pytest.raises(CheckpointError, match="damaged|not a numpy array"):
        zoo.load(tmp_path / "spoiled.npz")


def test_a_file_that_fails_late_leaves_nothing_behind(tmp_path):
    tensors = layouts.read(GOLDEN / "vit_token.npz")
    tensors[QUERY] = np.full_like(tensors[QUERY], np.nan)
    with pytest.raises(CheckpointError, match=f"values in {QUERY} that are NaN, infinite or too large"):
        zoo.load(written(tmp_path / "spoiled.npz", tensors))
    images, expected = reference("vit_token")
    np.testing.assert_allclose(logits(zoo.load(GOLDEN / "vit_token.npz"), images), expected, atol=1e-4)
    assert keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])(np.zeros((1, 2))).shape == (1, 1)


def test_loading_in_the_scope_of_a_strategy():
    tf = pytest.importorskip("tensorflow")
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = zoo.load(GOLDEN / "vit_token.npz", num_classes=3)
    assert all(strategy.extended.variable_created_in_scope(weight.value) for weight in model.weights)
    whole = zoo.load(GOLDEN / "vit_token.npz")
    kernels = [m.get_layer("encoderblock_1").mlp.out.kernel.numpy() for m in (model, whole)]
    np.testing.assert_array_equal(*kernels)


def test_loading_draws_no_random_values(monkeypatch):
    drawn = []
    call = keras.initializers.GlorotUniform.__call__
    monkeypatch.setattr(
        keras.initializers.GlorotUniform, "__call__", lambda *args, **kw: drawn.append(1) or call(*args, **kw)
    )
    zoo.load("ViT-Test/4", weights=None)
    assert drawn
    drawn.clear()
    zoo.load(GOLDEN / "vit_token.npz")
    assert not drawn


def test_sizes_that_do_not_fit():
    with pytest.raises(ConfigError, match="whole number of patches"):
        zoo.load(GOLDEN / "vit_token.npz", image_size=50)

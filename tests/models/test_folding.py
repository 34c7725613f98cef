"""A folded model computes what the model does, in fewer operations, and files and training see the model behind it."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import export, inference, models, zoo
from keras_vit.errors import ConfigError
from keras_vit.inference.embedding import digest_of_model
from keras_vit.models import folding

VIT = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}
BACKBONE = {"depths": (1, 1), "width_factor": 0.5}
VITS = {
    "the paper's": {},
    "hybrid": {"image_size": (64, 64), "patch_size": 2, "backbone": BACKBONE},
    "average, pre-logits": {"classifier": "gap", "representation_size": 8},
    "relative positions": {"position_embedding": "relative"},
    "DINOv2": {"layer_scale": 0.5, "num_registers": 2, "gated_mlp": True, "activation": "silu"},
    "DINOv3": {"layer_scale": 0.5, "num_registers": 2, "position_embedding": "rope", "qkv_bias": "qv"},
    "rotary, all biases": {"position_embedding": "rope"},
    "no biases": {"qkv_bias": "none"},
    "SigLIP": {"classifier": "map"},
    "CLIP": {"pre_norm": True, "activation": "quick_gelu", "patch_bias": False},
}


def randomize(model):
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    return model


def make_all():
    vits = {name: models.VisionTransformer(**VIT | fields, num_classes=3) for name, fields in VITS.items()}
    axial = models.AxialVisionTransformer((16, 24), 8, 16, 2, 2, 24, num_classes=3)
    resnet = models.ResNet(depths=(1, 1), width_factor=0.5, num_classes=3)
    return vits | {"axial": axial, "ResNet": resnet}


def images_for(model):
    return np.random.default_rng(1).uniform(-1, 1, (2, *(model.config.image_size or (40, 56)), 3)).astype("float32")


def count_operations(model):
    graph = tf.function(lambda x: model(x, training=False)).get_concrete_function(images_for(model)).graph
    return len(graph.get_operations())


def fold_unproved(model):
    return folding.fold_in_place(folding.copy_model(model), lambda: model)


@pytest.mark.slow
def test_every_kind_gives_the_same_in_fewer_operations():
    for name, model in make_all().items():
        images = images_for(randomize(model))
        folded, before = models.fold(model), model.get_weights()
        expected = model(images)
        for found in (folded(images), keras.Model(folded.input, folded.output)(images)):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(found, expected, atol=1e-5 * scale, rtol=0, err_msg=name)
        np.testing.assert_allclose(folded(images, training=True), expected, atol=1e-5 * scale, rtol=0, err_msg=name)
        assert count_operations(folded) < count_operations(model), name
        assert all(map(np.array_equal, model.get_weights(), before)), name


@pytest.mark.slow
def test_predict_by_xla_gives_the_same():
    model = randomize(models.VisionTransformer(**VIT, num_classes=3))
    folded, images = models.fold(model), images_for(model)
    folded.jit_compile = True
    assert folded.jit_compile  # Keras takes it back from a model with a layer that XLA cannot compile
    np.testing.assert_allclose(folded.predict(images, verbose=0), model(images), rtol=1e-5, atol=1e-5)


def test_what_it_was_made_from_is_saved_exported_and_trained(tmp_path):
    model = randomize(models.VisionTransformer(**VIT, num_classes=3))
    folded, images = models.fold(model), images_for(model)
    assert "folded for inference" in repr(folded) and folded.folded_from is model and models.fold(folded) is folded
    for name in ("m.keras", "m.npz", "m.safetensors"):
        zoo.save(folded, tmp_path / name)
        assert all(map(np.array_equal, zoo.load(tmp_path / name).get_weights(), model.get_weights())), name
    folded.save(tmp_path / "k.keras")
    assert all(map(np.array_equal, keras.models.load_model(tmp_path / "k.keras").get_weights(), model.get_weights()))
    export.convert(folded, tmp_path / "m.onnx")
    given = inference.open_classifier(tmp_path / "m.onnx").predict_on_batch(images)
    np.testing.assert_allclose(given, model(images), atol=1e-5)
    folded.compile("sgd", "mse")
    with pytest.raises(ConfigError, match=r"cannot be trained. Train model.folded_from"):
        folded.fit(images, np.zeros((2, 3)), verbose=0)
    before = folded(images)
    model.save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(ConfigError, match=r"takes no weights. Load them into model.folded_from"):
        folded.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(folded(images), before)
    whole = keras.Sequential([keras.Input(images.shape[1:]), folded, keras.layers.Softmax()])
    for save in (lambda: whole.save(tmp_path / "s.keras"), lambda: copy.deepcopy(folded)):
        with pytest.raises(ConfigError, match=r"to copy or to save as a part. Take model.folded_from"):
            save()


def test_a_name_is_opened_folded_and_its_weights_come_back(tmp_path):
    model = randomize(models.ResNet(depths=(1,), width_factor=0.5, num_classes=3))
    zoo.save(model, tmp_path / "m.npz")
    opened, images = inference.open_classifier(tmp_path / "m.npz"), images_for(model)
    np.testing.assert_allclose(opened.predict_on_batch(images), model(images), rtol=1e-5, atol=1e-6)
    assert "folded" in repr(opened)
    zoo.save(opened, tmp_path / "again.npz")
    assert all(map(np.array_equal, zoo.load(tmp_path / "again.npz").get_weights(), model.get_weights()))


def test_what_is_set_on_a_folded_model_is_saved_and_exported(tmp_path):
    zoo.save(randomize(models.VisionTransformer(**VIT, num_classes=3, labels=("a", "b", "c"))), tmp_path / "m.npz")
    opened = inference.open_model(tmp_path / "m.npz")
    digest = digest_of_model(opened)
    opened.labels, opened.preprocessing = ("x", "y", "z"), models.Preprocessing(mean=(0.1, 0.2, 0.3), crop=0.9)
    zoo.save(opened, tmp_path / "again.npz")
    export.convert(opened, tmp_path / "m.onnx")
    for found in (zoo.load(tmp_path / "again.npz"), inference.open_model(tmp_path / "m.onnx")):
        assert tuple(found.labels) == ("x", "y", "z") and tuple(found.preprocessing.mean) == (0.1, 0.2, 0.3)
    assert digest_of_model(opened) != digest


def test_a_file_that_was_replaced_since_is_not_taken_for_the_model(tmp_path):
    zoo.save(models.VisionTransformer(**VIT, num_classes=3), tmp_path / "m.npz")
    opened = inference.open_model(tmp_path / "m.npz")
    zoo.save(models.VisionTransformer(**VIT, num_classes=3), tmp_path / "m.npz")
    with pytest.raises(ConfigError, match="m.npz has changed since it was opened. Open it again"):
        zoo.save(opened, tmp_path / "again.npz")


def test_lora_is_folded_too():
    model = randomize(models.VisionTransformer(**VIT, num_classes=3))
    for layer in model._flatten_layers():
        if layer.name in ("query", "value"):
            layer.enable_lora(2)
    images = images_for(randomize(model))
    np.testing.assert_allclose(models.fold(model)(images), model(images), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_deep_model_is_compared_in_float64(monkeypatch):
    """In float32 the outputs of both differ by 4e-5 of the largest, since each rounds: within 1e-11 they are equal."""
    model = randomize(models.ResNet(image_size=32, depths=(2, 2, 40, 2), width_factor=0.5, num_classes=10))
    assert folding.find_difference(folding.answer(fold_unproved(model)), folding.answer(model)) > folding.TOLERANCE
    assert models.fold(model).folded_from is model
    monkeypatch.setattr(folding, "TOLERANCE", 1e-11)
    assert models.fold(model).folded_from is model


def test_others_are_refused():
    half = models.VisionTransformer(**VIT, num_classes=3, dtype="mixed_bfloat16")
    for other, said in ((keras.Sequential([keras.Input((4,))]), "Received: <Sequential"), (half, "mixed_bfloat16")):
        with pytest.raises(ConfigError, match=said):
            models.fold(other)

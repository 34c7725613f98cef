"""`zoo.load` by name, from a server to the model: official files behind a loopback mirror."""

import functools
import http.server
import json
import shutil
import threading
import urllib.parse

import keras
import layouts
import numpy as np
import pytest
from file_server import Server, show_repository
from golden import GOLDEN
from positions import sines_and_cosines

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, DownloadError, PreprocessingError, UnknownNameError
from keras_vit.layers.interpolation import resize_positions
from keras_vit.zoo.fetch import download
from keras_vit.zoo.names import registry
from keras_vit.zoo.names.rows import class_names

AUGREG = "augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--kitti-steps_2k-lr_0.01-res_224"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A folder that a loopback server shows as https://storage.googleapis.com, and an empty cache."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    yield folder
    server.shutdown()


def offered(mirror, name, **changes):
    """Puts a random model's official file where `name`'s is; gives the model."""
    checkpoint = registry.resolve(name)
    path = mirror / urllib.parse.unquote(urllib.parse.urlsplit(checkpoint.url).path.lstrip("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    config = checkpoint.config if not changes else type(checkpoint.config)(**{**vars(checkpoint.config), **changes})
    model = models.build(config)
    for variable in model.get_layer("head").trainable_variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    zoo.save(model, path)
    return model


def logits(model, size):
    images = np.random.default_rng(0).uniform(-1, 1, (1, *size, 3))
    return keras.ops.convert_to_numpy(model(images))


def test_a_vit_by_name(mirror):
    published = offered(mirror, "ViT-Ti/16")
    model = zoo.load("ViT-Ti/16")
    np.testing.assert_array_equal(logits(model, (224, 224)), logits(published, (224, 224)))
    assert model.labels == class_names("imagenet1k")
    assert model.preprocessing.image_size == (224, 224)
    for path in mirror.glob("**/*.npz"):
        path.unlink()
    larger = zoo.load("ViT-Ti/16", num_classes=10, image_size=(256, 320))
    assert (larger.config.grid, larger.preprocessing.image_size, larger.labels) == ((16, 20), (256, 320), None)
    assert not logits(larger, (256, 320)).any()
    others = [f"kind {i}" for i in range(1000)]
    assert not logits(zoo.load("ViT-Ti/16", labels=others), (224, 224)).any(), "other classes, as many"
    assert logits(zoo.load("ViT-Ti/16", labels=class_names("imagenet1k")), (224, 224)).any()


@pytest.mark.slow
def test_a_resnet_by_name_takes_the_checkpoints_size(mirror):
    published = offered(mirror, "R50x1:distill-160")
    model = zoo.load("R50x1:distill-160")
    assert model.config.image_size == (160, 160)
    np.testing.assert_array_equal(logits(model, (160, 160)), logits(published, (160, 160)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ViT-S/16:plain-in1k-90ep", "ViT-S/32:flexivit-in1k-90ep"])
def test_files_of_big_vision_by_name(mirror, name):
    """The file as big_vision writes it; a plain one without its positions, a flexible one at other patches."""
    published = offered(mirror, name)
    (path,) = mirror.glob("big_vision/**/*.npz")
    tensors = layouts.read(path)
    plain = "plain" in name
    path.unlink()
    np.savez(path, **(layouts.without_positions if plain else layouts.big_vision)(tensors))
    model = zoo.load(name, patch_size=16, image_size=240)
    assert (model.config.grid, model.labels) == ((15, 15), class_names("imagenet1k"))
    assert model.config.representation_size == published.config.representation_size == (384 if plain else None)
    found = keras.ops.convert_to_numpy(model.get_layer("posembed_input").compose())
    if plain:
        grid = sines_and_cosines(15, 15, 384)
    else:
        stored = layouts.big_vision(tensors)["params/pos_embedding"]
        grid = resize_positions(stored, 0, (7, 7), (15, 15), "bilinear")
    np.testing.assert_allclose(found[:, -225:], grid, atol=1e-6)


def test_an_augreg_file_by_its_stem(mirror):
    offered(mirror, AUGREG)
    model = zoo.load(AUGREG)
    assert (model.config.num_classes, model.labels) == (4, None)


def test_a_file_that_is_not_what_its_name_says(mirror):
    offered(mirror, AUGREG, num_classes=5)
    with pytest.raises(CheckpointError, match="num_classes is 5; 4 was expected"):
        zoo.load(AUGREG)


def test_a_zero_head_is_no_classifier(mirror):
    """The original ImageNet-21k files: features through the tanh layer, or a new head in place of both."""
    row = registry.resolve("R26+ViT-B/32:i21k")
    assert not row.valid_head and row.config.num_classes == 0 and row.config.representation_size == 768


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The folder of a repository of the Hugging Face Hub, hf://owner/repo."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with Server() as server:
        server.faults = [show_repository(folder)]
        monkeypatch.setenv("HF_ENDPOINT", server.origin)
        yield folder
        server.shutdown()


def test_the_json_of_a_repository_is_bounded(hub, monkeypatch):
    """Nothing is fetched that would not be read."""
    monkeypatch.setattr(download, "MOST_BYTES", 1000)
    (hub / "config.json").write_text(" " * 1001)
    with pytest.raises(DownloadError, match="config.json has 1,001 bytes; at most 1,000 are fetched"):
        zoo.load("hf://owner/repo")


TRANSFORMERS = {
    "config.json": {
        "num_attention_heads": 4,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "id2label": {str(i): f"kind {i}" for i in range(6)},
    },
    "preprocessor_config.json": {
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
        "size": {"height": 32, "width": 32},
        "resample": 3,
    },
}
TIMM = {
    "config.json": {
        "num_classes": 7,
        "label_names": [f"kind {i}" for i in range(7)],
        "pretrained_cfg": {
            "mean": [0.1, 0.2, 0.3],
            "std": [0.4, 0.5, 0.6],
            "input_size": [3, 32, 32],
            "crop_pct": 0.875,
            "interpolation": "bicubic",
        },
    }
}


@pytest.mark.parametrize(
    ("file", "companions", "num_heads", "crop", "mode"),
    [("hf_vit", TRANSFORMERS, None, 1.0, "squash"), ("timm_vit", TIMM, 4, 0.875, "center")],
)
def test_a_repository_of_the_hub(hub, file, companions, num_heads, crop, mode, monkeypatch):
    shutil.copy(GOLDEN / f"{file}.safetensors", hub / "model.safetensors")
    with np.load(GOLDEN / f"{file}.io.npz") as io:
        images, expected = io["images"], io["logits"]
    for name, said in companions.items():
        (hub / name).write_text(json.dumps(said))
    model = zoo.load("hf://owner/repo", num_heads=num_heads)
    np.testing.assert_allclose(model(images), expected, atol=1e-4)
    assert model.labels == tuple(f"kind {i}" for i in range(expected.shape[1]))
    assert model.preprocessing == models.Preprocessing(
        (32, 32), crop, "bicubic", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), mode
    )
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert zoo.load("hf://owner/repo", num_heads=num_heads).preprocessing == model.preprocessing


def test_a_repository_of_weights_alone(hub):
    """Nothing states how images become the input: what would need it asks for it."""
    shutil.copy(GOLDEN / "timm_vit.safetensors", hub / "model.safetensors")
    model = zoo.load("hf://owner/repo", num_heads=4)
    assert model.labels is None
    with pytest.raises(PreprocessingError, match="no JSON file beside it .* preprocessing="):
        model.preprocessing(np.zeros((1, 40, 40, 3), "uint8"))
    with pytest.raises(PreprocessingError, match="no JSON file beside it"):
        model.predict(np.zeros((1, 32, 32, 3), "uint8"), verbose=0)
    given = models.Preprocessing((224, 224), 0.9, "bicubic", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    model = zoo.load("hf://owner/repo", num_heads=4, preprocessing=given)
    assert model.preprocessing == given.adapt_to((32, 32), 3)


@pytest.mark.parametrize(
    "said",
    [
        "[1, 2]",
        "not JSON",
        '{"id2label": 3, "num_attention_heads": "4", "image_mean": [1], "pretrained_cfg": 7}',
        '{"image_mean": [0, 0, 0], "image_std": [1, 1, 1], "size": {"shortest_edge": 0}}',
        '{"image_mean": [0, 0, 0], "image_std": [1, 1, 1], "size": {"shortest_edge": 1e999}}',
    ],
)
def test_a_repository_that_says_nonsense(hub, said):
    shutil.copy(GOLDEN / "timm_vit.safetensors", hub / "model.safetensors")
    (hub / "config.json").write_text(said)
    assert zoo.load("hf://owner/repo", num_heads=4).labels is None


def test_an_activation_that_is_not_ours(hub):
    shutil.copy(GOLDEN / "hf_vit.safetensors", hub / "model.safetensors")
    (hub / "config.json").write_text(json.dumps({"num_attention_heads": 4, "hidden_act": "mish"}))
    with pytest.raises(CheckpointError, match="activation 'mish'"):
        zoo.load("hf://owner/repo")


def test_variants_without_public_weights():
    with pytest.raises(UnknownNameError, match="no public weights. Give the path .* in Python, weights=None"):
        zoo.load("R200x3")
    with pytest.raises(UnknownNameError, match="Did you mean augreg-i21k"):
        zoo.load("ViT-B/16:augreg-21k")

"""Arguments of `zoo.load` that contradict each other or the checkpoint, and that have several forms."""

import zipfile

import keras
import numpy as np
import pytest

from keras_vit import zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.zoo.formats.torch.timm_files import find_ratio, make_timm_config


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    zoo.save(zoo.load("ViT-Test/4", weights=None, num_classes=3), path)
    return path


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("ViT-B/16:clip-openai", {"weights": None}, "A tag names weights. Received: .* with weights=None; leave"),
        ("ViT-B/16", {"weights": "ViT-B/16:augreg-i21k"}, "Received the name ViT-B/16:augreg-i21k: pass it as the"),
        ("ViT-B/16", {"weights": "hf://owner/repo"}, "Received the name hf://owner/repo: pass it as the first"),
        (None, {"num_heads": 3}, "num_heads is 4 in the checkpoint. Received: num_heads=3"),
    ],
)
def test_contradictions(saved, name, asked, sentence):
    with pytest.raises(ConfigError, match=sentence):
        zoo.load(name or saved, **asked)


def test_a_path_from_home(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved.parent))
    assert zoo.load("ViT-Test/4", weights="~/model.npz").config.num_classes == 3


def test_a_new_model_keeps_the_interpolation():
    model = zoo.load("ViT-Test/4", weights=None, position_interpolation="bicubic")
    assert model.config.position_interpolation == "bicubic"


def test_a_list_is_a_pair(saved):
    configs = [zoo.load(saved, image_size=size).config for size in ([None, None], (None, None))]
    assert configs[0] == configs[1] and configs[0].own_size == (32, 32)


def test_labels_become_strings(saved, tmp_path):
    model = zoo.load(saved, labels=np.arange(3), head="keep")
    zoo.save(model, tmp_path / "model.npz")
    assert zoo.load(tmp_path / "model.npz").labels == model.labels == ("0", "1", "2")


def test_a_repository_without_its_scheme():
    with pytest.raises(CheckpointError, match="A repository of the Hub is written hf://owner/name"):
        zoo.load("someone/some-model")


@pytest.mark.parametrize("ending", ["keras", "weights.h5"])
def test_a_file_keeps_its_precision_under_a_global_policy(saved, tmp_path, ending):
    model = zoo.load(saved)
    value = model.get_layer("encoder_norm").beta
    value.assign(np.full(value.shape, 1.001, "float32"))
    zoo.save(model, tmp_path / f"model.{ending}")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    try:
        again = zoo.load(tmp_path / f"model.{ending}", dtype="float32")
    finally:
        keras.config.set_dtype_policy(before)
    np.testing.assert_array_equal(np.asarray(again.get_layer("encoder_norm").beta), np.asarray(value))


def test_a_model_for_any_size_states_that_of_its_positions(saved, tmp_path):
    model = zoo.load(saved, image_size=(None, None))
    assert make_timm_config(model)["model_args"]["img_size"] == [32, 32]
    zoo.save(model, tmp_path / "model.safetensors", layout="transformers")
    assert '"image_size": 32' in (tmp_path / "config.json").read_text()


def test_timm_gets_every_width_of_mlps():
    widths = [(mlp, hidden) for hidden in range(16, 200, 8) for mlp in range(1, 800)]
    assert any(int(hidden * (mlp / hidden)) != mlp for mlp, hidden in widths)
    assert all(int(hidden * find_ratio(mlp, hidden)) == mlp for mlp, hidden in widths)


@pytest.mark.parametrize(
    ("lacks", "asked"),
    [
        ("cls", {"classifier": "gap"}),
        ("embedding/kernel", {"image_size": 64}),
        ("embedding/kernel", {"num_channels": 1}),
    ],
)
def test_what_a_file_lacks_is_named(saved, tmp_path, lacks, asked):
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "model.npz", "w") as new:
        new.comment = old.comment
        for name in old.namelist():
            if name != f"{lacks}.npy":
                new.writestr(name, old.read(name))
    if lacks == "cls":
        assert zoo.load(tmp_path / "model.npz", **asked).config.classifier == "gap"
        return
    with pytest.raises(CheckpointError, match=f"missing: {lacks}|none of the official layouts"):
        zoo.load(tmp_path / "model.npz", **asked)


def test_a_config_that_cannot_be_written_keeps_the_model(saved, tmp_path):
    (tmp_path / "model.safetensors").write_text("old")
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="is unchanged"):
        zoo.save(zoo.load(saved), tmp_path / "model.safetensors", layout="transformers")
    assert (tmp_path / "model.safetensors").read_text() == "old"

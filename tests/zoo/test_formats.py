"""Checkpoints of other libraries in, every format out and in again, and models adapted to other inputs."""

import collections
import contextlib
import gc
import json
import math
import os
import re
import resource
import shutil
import struct
import warnings
import zipfile

import h5py
import keras
import layouts
import ml_dtypes
import numpy as np
import pytest
from attacks import acts
from golden import GOLDEN, logits, reference
from PIL import Image
from safetensors.numpy import load_file, save_file

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.layers.interpolation import resize_patches, resize_positions
from keras_vit.zoo.formats import npz, open_checkpoint, safetensors
from keras_vit.zoo.formats.checkpoint import Fault, read_description, serialize_model
from keras_vit.zoo.formats.safetensors import open_safetensors
from keras_vit.zoo.formats.variables import official_variables
from keras_vit.zoo.names.rows import class_names

TORCH = {"timm_vit": 4, "hf_vit": 4, "timm_hybrid": 2, "timm_bit": None, "hf_bit": None}
OFFICIAL = ("vit_token", "vit_prelogits", "vit_gap_linen", "hybrid_1_1_2", "bit_1_2_1_1")


def weights(model):
    return {name: keras.ops.convert_to_numpy(v) for name, (v, _) in official_variables(model).items()}


def assert_same(a, b):
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


@pytest.mark.parametrize("name", TORCH)
def test_torch_checkpoints(name):
    images, expected = reference(name)
    model = zoo.load(GOLDEN / f"{name}.safetensors", num_heads=TORCH[name])
    np.testing.assert_allclose(logits(model, images), expected, atol=1e-4)


def test_a_folder_stands_for_its_checkpoint(tmp_path):
    """That of transformers or timm for model.safetensors, a run's for its best weights."""
    shutil.copy(GOLDEN / "hf_vit.safetensors", tmp_path / "model.safetensors")
    images, expected = reference("hf_vit")
    np.testing.assert_allclose(logits(zoo.load(tmp_path, num_heads=4), images), expected, atol=1e-4)
    images, expected = reference("vit_token")
    for name, best in (("last", "vit_prelogits"), ("best", "vit_token")):
        shutil.copy(GOLDEN / f"{best}.npz", tmp_path / f"{name}.weights.npz")
    np.testing.assert_allclose(logits(zoo.load(str(tmp_path)), images), expected, atol=1e-4)


def test_heads_of_the_papers_sizes_are_known(tmp_path):
    """A state dict cannot say its heads, but there is one ViT of width 192, depth 12 and MLP 768."""
    model = zoo.load("ViT-Ti/16", weights=None, image_size=32, num_classes=2)
    zoo.save(model, tmp_path / "tiny.safetensors")
    assert_same(model, zoo.load(tmp_path / "tiny.safetensors"))


def test_older_transformers_names(tmp_path):
    """Before its version 5, transformers called a block's parts otherwise."""
    older = [
        (r"vit\.layers\.(\d+)\.", r"vit.encoder.layer.\1."),
        (r"attention\.q_proj", "attention.attention.query"),
        (r"attention\.k_proj", "attention.attention.key"),
        (r"attention\.v_proj", "attention.attention.value"),
        (r"attention\.o_proj", "attention.output.dense"),
        (r"mlp\.fc1", "intermediate.dense"),
        (r"mlp\.fc2", "output.dense"),
    ]
    state = {}
    for name, value in load_file(GOLDEN / "hf_vit.safetensors").items():
        for now, then in older:
            name = re.sub(now, then, name)
        state[name] = value
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 4, "layer_norm_eps": 1e-12}))
    images, expected = reference("hf_vit")
    np.testing.assert_allclose(logits(zoo.load(tmp_path / "model.safetensors"), images), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: None, "Pass num_heads="),
        (lambda s: s.update({"fc_norm.weight": s["norm.weight"]}), "norms before and after pooling"),
        (lambda s: s.update(extra=s["norm.weight"]), "left over: extra"),
        (lambda s: s.pop("norm.bias"), "missing: Transformer/encoder_norm/bias"),
        (lambda s: s.update({"norm.bias": s["norm.bias"][:3]}), "wrong shape"),
        (lambda s: s.pop("patch_embed.proj.weight"), "is not a state dict of a ViT"),
        (lambda s: s.update({"head.weight": s["head.weight"][0]}), "head.weight of shape .*; expected 2 axes"),
        (lambda s: s.update({"norm.bias": s["norm.bias"] * np.nan}), "NaN, infinite or too large"),
    ],
)
def test_torch_checkpoints_are_read_strictly(change, sentence, tmp_path):
    state = load_file(GOLDEN / "timm_vit.safetensors")
    change(state)
    save_file({name: np.ascontiguousarray(v) for name, v in state.items()}, tmp_path / "changed.safetensors")
    heads = None if "Pass" in sentence else 4
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(tmp_path / "changed.safetensors", num_heads=heads)


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_layout_out(name, tmp_path):
    """Keys, shapes and bits as in the file that was read (Linen files become pre-Linen)."""
    model = zoo.load(GOLDEN / f"{name}.npz")
    zoo.save(model, tmp_path / "out.npz")
    there, here = layouts.read(GOLDEN / f"{name}.npz"), layouts.read(tmp_path / "out.npz")
    there = there if name != "vit_gap_linen" else {pre_linen(key): value for key, value in there.items()}
    assert there.keys() == here.keys()
    for key, value in there.items():
        assert value.shape == here[key].shape
        np.testing.assert_array_equal(value, here[key])
    again = zoo.load(tmp_path / "out.npz")
    assert_same(model, again)
    assert again.config == model.config


def pre_linen(name):
    name = name.replace("LayerNorm_1", "LayerNorm_2").replace("Attention_0", "Attention_1")
    return name.replace("MlpBlock_0", "MlpBlock_3")


@pytest.mark.parametrize("name", ["timm_vit", "timm_hybrid", "timm_bit"])
def test_timm_layout_out(name, tmp_path):
    model = zoo.load(GOLDEN / f"{name}.safetensors", num_heads=TORCH[name])
    zoo.save(model, tmp_path / "out.safetensors")
    there, here = load_file(GOLDEN / f"{name}.safetensors"), load_file(tmp_path / "out.safetensors")
    assert there.keys() == here.keys()
    for key, value in there.items():
        np.testing.assert_array_equal(value, here[key], err_msg=key)


def test_bare_stem_in_timms_names(tmp_path):
    config = {"image_size": 64, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 2, "mlp_dim": 64}
    model = models.VisionTransformer(**config, num_classes=3, backbone={"depths": ()})
    zoo.save(model, tmp_path / "stem.safetensors")
    assert "patch_embed.backbone.conv.weight" in load_file(tmp_path / "stem.safetensors")
    assert_same(model, zoo.load(tmp_path / "stem.safetensors", num_heads=2))


@pytest.mark.parametrize("ending", [".npz", ".keras", ".weights.h5"])
def test_own_formats_keep_everything(ending, tmp_path):
    """What arrays cannot tell too: a grid that is no square, numerics, preprocessing, labels."""
    preprocessing = models.Preprocessing((16, 40), 0.9, "bicubic", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    model = models.VisionTransformer(
        (16, 40), 8, 12, 2, 3, 20, 3, gelu_approximate=False, layer_norm_epsilon=1e-5, preprocessing=preprocessing,
        labels=("a", "b", "ü"),
    )  # fmt: skip
    zoo.save(model, tmp_path / f"mine{ending}")
    again = zoo.load(tmp_path / f"mine{ending}")
    assert_same(model, again)
    assert (again.config, again.preprocessing, again.labels) == (model.config, preprocessing, ("a", "b", "ü"))
    assert [path.name for path in tmp_path.iterdir()] == [f"mine{ending}"]


def test_saving_where_or_what_cannot_be(tmp_path):
    model = zoo.load(GOLDEN / "vit_token.npz")
    with pytest.raises(CheckpointError, match="Nothing can be written"):
        zoo.save(model, tmp_path / "absent" / "x.npz")
    with pytest.raises(CheckpointError, match="does not have the ending of any checkpoint format"):
        zoo.save(model, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="Received: a Sequential"):
        zoo.save(keras.Sequential(), tmp_path / "x.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    model = zoo.load(GOLDEN / "vit_token.npz")
    zoo.save(model, tmp_path / "x.npz")
    before = (tmp_path / "x.npz").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(CheckpointError, match="No space left"):
        zoo.save(model, tmp_path / "x.npz")
    assert (tmp_path / "x.npz").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras", ".weights.h5"])
def test_a_full_disk(ending, tmp_path):
    model = zoo.load("ViT-Test/4", weights=None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="could not be written: .*File too large"):
            zoo.save(model, tmp_path / f"x{ending}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras", ".weights.h5"])
def test_mistakes_in_writing_are_not_the_places(ending, tmp_path, monkeypatch):
    def mistaken(model):
        raise ValueError("a mistake of this package")

    model = zoo.load("ViT-Test/4", weights=None)
    monkeypatch.setattr(type(model), "get_config", mistaken)
    with pytest.raises(ValueError, match="a mistake of this package") as caught:
        zoo.save(model, tmp_path / f"x{ending}")
    assert not isinstance(caught.value, CheckpointError)
    assert not list(tmp_path.iterdir())


def test_weights_that_do_not_say_their_model(tmp_path):
    zoo.load(GOLDEN / "vit_token.npz").save_weights(tmp_path / "bare.weights.h5")
    with pytest.raises(CheckpointError, match="does not say which model"):
        zoo.load(tmp_path / "bare.weights.h5")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("old", "new"), [((5, 5), (8, 8)), ((8, 8), (3, 5)), ((4, 6), (6, 4))])
def test_positions_between_pixel_centres_are_pillows(old, new, interpolation):
    values = np.random.default_rng(0).normal(size=(1, 1 + old[0] * old[1], 3)).astype("float32")
    resized = resize_positions(values, 1, old, new, interpolation)[0, 1:].reshape(*new, 3)
    for channel in range(3):
        plane = Image.fromarray(values[0, 1:, channel].reshape(old))
        expected = np.asarray(plane.resize((new[1], new[0]), Image.Resampling[interpolation.upper()]))
        np.testing.assert_allclose(resized[..., channel], expected, atol=1e-5)


def test_grown_patches_have_the_old_embeddings():
    """FlexiViT's property: a patch resized up, with the resized kernel, embeds as it did before."""
    rng = np.random.default_rng(0)
    kernel, patch = rng.normal(size=(4, 4, 3, 5)), rng.normal(size=(4, 4, 3)).astype("float32")
    grown = np.stack(
        [np.asarray(Image.fromarray(patch[..., c]).resize((8, 8), Image.Resampling.BILINEAR)) for c in range(3)], -1
    )
    before = np.tensordot(patch, kernel, 3)
    np.testing.assert_allclose(np.tensordot(grown, resize_patches(kernel, (8, 8)), 3), before, atol=1e-4)


def resized(image, size):
    """Bilinear as `tf.image.resize` does it by default: each pixel from the four around its centre, in float64."""
    found = np.zeros(size)
    for place in np.ndindex(*size):
        for corner in np.ndindex(2, 2):
            share, source = 1.0, []
            for i, old, new, upper in zip(place, image.shape, size, corner, strict=True):
                centre = (i + 0.5) * old / new - 0.5
                low = int(np.floor(centre))
                share *= centre - low if upper else 1 - (centre - low)
                source.append(min(max(low + upper, 0), old - 1))
            found[place] += share * image[tuple(source)]
    return found


@pytest.mark.parametrize(("old", "new"), [((8, 8), (4, 4)), ((8, 6), (3, 5)), ((6, 7), (5, 7)), ((4, 5), (8, 7))])
def test_patch_kernels_are_the_authors(old, new):
    """resample_patchemb of big_vision: the resize as a matrix, by unit vectors; its pseudo-inverse on each channel."""
    kernel = np.random.default_rng(0).normal(size=(*old, 2, 3))
    units = np.eye(np.prod(old)).reshape(-1, *old)
    resize = np.stack([resized(unit, new).ravel() for unit in units]).T
    expected = (np.linalg.pinv(resize.T) @ kernel.reshape(len(units), -1)).reshape(*new, 2, 3)
    np.testing.assert_allclose(resize_patches(kernel, new), expected, rtol=1e-9, atol=1e-9)


def test_patch_size_keeps_what_grown_pictures_show():
    """At twice the patch and twice the image, a model answers nearly as before."""
    images, expected = reference("vit_token")
    rough = zoo.load(GOLDEN / "vit_token.npz", patch_size=16, image_size=64)
    grown = keras.ops.image.resize(images, (64, 64), interpolation="nearest")
    assert rough.config.grid == (4, 4)
    assert np.corrcoef(logits(rough, grown).ravel(), expected.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("name", ["vit_token", "hybrid_1_1_2", "bit_1_2_1_1"])
def test_one_channel_answers_as_three_equal_ones(name):
    images, _ = reference(name)
    grey = images.mean(-1, keepdims=True)
    three = zoo.load(GOLDEN / f"{name}.npz")
    one = zoo.load(GOLDEN / f"{name}.npz", num_channels=1)
    if name == "vit_token":
        np.testing.assert_allclose(logits(one, grey), logits(three, np.repeat(grey, 3, -1)), atol=1e-4)
    assert logits(one, grey).shape == logits(three, images).shape
    four = zoo.load(GOLDEN / f"{name}.npz", num_channels=4)
    if name == "vit_token":
        np.testing.assert_allclose(logits(four, np.repeat(grey, 4, -1)), logits(one, grey), atol=1e-4)
    six = zoo.load(GOLDEN / f"{name}.npz", num_channels=6)
    np.testing.assert_allclose(logits(six, np.concatenate([images, images], -1)), logits(three, images), atol=2e-4)


def test_classifier_can_change():
    images, _ = reference("vit_token")
    tensors = layouts.read(GOLDEN / "vit_token.npz")
    gap = zoo.load(GOLDEN / "vit_token.npz", classifier="gap")
    positions = weights(gap)["Transformer/posembed_input/pos_embedding"]
    np.testing.assert_array_equal(positions, tensors["Transformer/posembed_input/pos_embedding"][:, 1:])
    token = zoo.load(GOLDEN / "vit_gap_linen.npz", classifier="token")
    assert not weights(token)["cls"].any()
    assert logits(gap, images).shape == (2, 7)


def test_unknown_interpolation():
    with pytest.raises(ConfigError, match="linear"):
        zoo.load(GOLDEN / "vit_token.npz", position_interpolation="lanczos")


def test_rates_and_precision_are_settings():
    model = zoo.load(GOLDEN / "vit_token.npz", dropout_rate=0.3, dtype="mixed_bfloat16")
    assert model.config.dropout_rate == 0.3
    assert model.get_layer("encoderblock_0").dtype_policy.name == "mixed_bfloat16"


def test_imagenet_names():
    sizes = {"imagenet1k": 1000, "imagenet21k": 21_843}
    assert {name: len(class_names(name)) for name in sizes} == sizes and class_names("cifar10") is None
    assert class_names("imagenet1k")[281] == "tabby, tabby cat"
    assert "tabby, tabby cat" in class_names("imagenet21k")


def test_a_keras_file_that_promises_a_huge_model(tmp_path):
    zoo.save(zoo.load(GOLDEN / "vit_token.npz"), tmp_path / "small.keras")
    with zipfile.ZipFile(tmp_path / "small.keras") as old, zipfile.ZipFile(tmp_path / "huge.keras", "w") as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename == "config.json":
                data = data.replace(b'"hidden_size": 64', b'"hidden_size": 65536')
            new.writestr(member, data)
    with pytest.raises(CheckpointError, match="describes a model of"):
        zoo.load(tmp_path / "huge.keras")


@pytest.mark.slow
def test_a_compressed_trap(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", **{"embedding/kernel": np.zeros((2**14, 2**14), "float32")})
    with pytest.raises(CheckpointError, match="weights do not compress so"):
        zoo.load(tmp_path / "zeros.npz")


@pytest.mark.parametrize(
    "odd",
    [
        lambda values: np.asfortranarray(values),
        lambda values: values.astype(">f4"),
        lambda values: values.astype("float64"),
        lambda values: values.astype("longdouble"),
        lambda values: np.round(values).astype("int16"),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_that_numpy_writes_otherwise(odd, version, how, tmp_path):
    expected = layouts.read(GOLDEN / "vit_token.npz")
    with zipfile.ZipFile(tmp_path / "odd.npz", "w", how) as archive:
        for name, values in expected.items():
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, odd(values), version)
    for name, tensor in open_checkpoint(tmp_path / "odd.npz").tensors.items():
        np.testing.assert_array_equal(tensor.read(), odd(expected[name]), err_msg=name)


@pytest.mark.parametrize("name", ["../cls", "/cls", "a\\..\\cls"])
def test_names_like_paths(name, tmp_path):
    shutil.copy(GOLDEN / "vit_token.npz", tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, archive.open(f"{name}.npy", "w") as stream:
        np.lib.format.write_array(stream, np.zeros(3, "float32"))
    with pytest.raises(CheckpointError, match="named like a path"):
        zoo.load(tmp_path / "x.npz")


def test_names_that_act_on_a_terminal(tmp_path):
    """They are shown escaped, and no message is long, whatever a file calls its tensors."""
    path = tmp_path / "line\nx\x1b[31m.npz"
    shutil.copy(GOLDEN / "vit_token.npz", path)
    with zipfile.ZipFile(path, "a") as archive:
        for name in ("a\x1b]0;t\x07\nall fine\u202e\u2028", "b" * 60_000, "gn" * 30_000):
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, np.zeros(3, "float32"))
    with pytest.raises(CheckpointError, match=r"left over: a\\x1b\]0;t\\x07\\nall fine\\u202e") as caught:
        zoo.load(path)
    assert not acts(str(caught.value))
    assert len(str(caught.value)) < 2000


def far(file, name):
    """Puts numbers into a file that float32 does not hold."""
    values = np.full(file[name].shape, 1e300)
    del file[name]
    file[name] = values


@pytest.mark.parametrize("kind", ["float64", "longdouble"])
@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".weights.h5", ".keras"])
def test_numbers_that_float32_does_not_hold(ending, kind, tmp_path):
    path = tmp_path / f"far{ending}"
    zoo.save(tiny(), tmp_path / "good.weights.h5")
    with h5py.File(tmp_path / "good.weights.h5", "a") as file:
        far(file, first_array(file)[0])
    if ending == ".npz":
        tensors = layouts.read(GOLDEN / "vit_token.npz")
        np.savez(path, **{**tensors, "cls": np.full(tensors["cls"].shape, 1e300, kind)})
    elif ending == ".safetensors":
        state = load_file(GOLDEN / "timm_vit.safetensors")
        save_file({**state, "cls_token": np.full(state["cls_token"].shape, 1e300)}, path)
    elif ending == ".weights.h5":
        shutil.copy(tmp_path / "good.weights.h5", path)
    else:
        with_weights(path, tmp_path / "good.weights.h5")
    with pytest.raises(CheckpointError, match="NaN, infinite or too large for float32"):
        zoo.load(path, num_heads=4 if ending == ".safetensors" else None)


def test_a_float16_model_of_larger_numbers(tmp_path):
    tensors = layouts.read(GOLDEN / "vit_token.npz")
    np.savez(tmp_path / "large.npz", **{**tensors, "cls": np.full(tensors["cls"].shape, 70_000.0)})
    assert zoo.load(tmp_path / "large.npz").get_layer("cls").token[0, 0, 0] == 70_000
    with pytest.raises(CheckpointError, match="NaN, infinite or too large for float16"):
        zoo.load(tmp_path / "large.npz", dtype="float16")


def test_a_stack_is_read_once(tmp_path, monkeypatch):
    np.savez(tmp_path / "stacked.npz", **layouts.stacked(layouts.read(GOLDEN / "vit_token.npz")))
    read, opened = npz.read_member, []
    monkeypatch.setattr(npz, "read_member", lambda *args: opened.append(args[1].filename) or read(*args))
    zoo.load(tmp_path / "stacked.npz")
    assert any("encoderblock/" in name for name in opened)
    assert len(opened) == len(set(opened))


def endless(path):
    """A file of more than anybody says of a model, which takes no room."""
    with open(path, "wb") as file:
        file.truncate(2**40)


def test_tensors_of_every_dtype_are_the_librarys(tmp_path):
    """What the format's own library reads, bfloat16 by ml_dtypes, and of no number, too."""
    rng = np.random.default_rng(0)
    dtypes = [
        "float16",
        "float32",
        "float64",
        ml_dtypes.bfloat16,
        *(f"{u}int{8 * n}" for u in ("", "u") for n in (1, 2, 4, 8)),
    ]
    arrays = {f"{np.dtype(dtype)}": rng.normal(0, 40, (3, 5)).astype("int8").astype(dtype) for dtype in dtypes}
    arrays |= {
        "one": np.full((1, 1, 1), 2.5, "float32"),
        "none": np.zeros((0, 3), "float32"),
        "spread": rng.normal(0, 1e-3, 99).astype(ml_dtypes.bfloat16),
    }
    path = tmp_path / "all.safetensors"
    save_file(arrays, path)
    (tensors, _), expected = open_safetensors(path), load_file(path)
    assert tensors.keys() == expected.keys() == arrays.keys()
    for name, values in expected.items():
        read = tensors[name].read()
        assert read.dtype == "float32" and tensors[name].shape == values.shape
        np.testing.assert_array_equal(read, values.astype("float32"), err_msg=name)


def test_two_tensors_of_one_name_in_a_header(tmp_path):
    path = tmp_path / "twice.safetensors"
    entry = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
    header = ('{"cls_token":' + entry % (0, 4) + ',"cls_token":' + entry % (4, 8) + "}").encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(CheckpointError, match=r"twice\.safetensors cannot be read as \.safetensors"):
        zoo.load(path)


def open_files(folder):
    """The files of a folder that this process has open, on Linux."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [link for link in links if os.path.realpath(link).startswith(f"{folder}/")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list what a process has open")
def test_a_file_is_closed_once_its_tensors_are_gone(tmp_path):
    shutil.copy(GOLDEN / "timm_vit.safetensors", tmp_path / "whole.safetensors")
    save_file({"a": np.zeros(3, "float32")}, tmp_path / "other.safetensors")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tensors, _ = open_safetensors(tmp_path / "whole.safetensors")
        tensors["head.bias"].read()
        assert open_files(tmp_path)
        del tensors
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path / "other.safetensors")
        gc.collect()
    assert not open_files(tmp_path)
    assert not [warning for warning in caught if warning.category is ResourceWarning]


def test_query_key_and_value_of_timm_are_read_once(monkeypatch):
    """They stand in one tensor of the file."""
    reads = collections.Counter()
    read = safetensors.read_tensor
    monkeypatch.setattr(
        safetensors, "read_tensor", lambda stream, name, *rest: reads.update([name]) or read(stream, name, *rest)
    )
    zoo.load(GOLDEN / "timm_vit.safetensors", num_heads=TORCH["timm_vit"])
    assert set(reads) == set(load_file(GOLDEN / "timm_vit.safetensors")) and set(reads.values()) == {1}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), endless])
def test_only_files_stand_beside_a_checkpoint(make, tmp_path):
    shutil.copy(GOLDEN / "timm_vit.safetensors", tmp_path / "model.safetensors")
    for name in ("config.json", "preprocessor_config.json"):
        make(tmp_path / name)
    assert zoo.load(tmp_path / "model.safetensors", num_heads=4).config.num_heads == 4


def test_places_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "fifo.npz")
    for name in ("fifo.npz", "x" * 300 + ".npz", "nul\0.npz", "~nobody/x.npz"):
        with pytest.raises(CheckpointError, match="There is no file"):
            zoo.load(tmp_path / name)


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras", ".weights.h5"])
def test_saved_files_have_the_permissions_of_new_ones(ending, tmp_path, monkeypatch):
    """The process' umask is another thread's too, and is left alone."""
    old = os.umask(0o027)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
    try:
        zoo.save(tiny(), tmp_path / f"mine{ending}")
    finally:
        monkeypatch.undo()
        os.umask(old)
    assert (tmp_path / f"mine{ending}").stat().st_mode & 0o777 == 0o640


def tiny():
    return models.VisionTransformer(8, 4, 8, 1, 2, 8, num_classes=2)


def external_link(file, name, _, folder):
    file[name] = h5py.ExternalLink(str(folder / "other.h5"), "/x")


def soft_link(file, name, shape, _):
    file[name] = h5py.SoftLink("/same")
    file["same"] = np.ones(shape, "float32")


def external_storage(file, name, shape, folder):
    file.create_dataset(name, shape, "float32", external=[(str(folder / "private"), 0, 4 * math.prod(shape))])


def virtual_dataset(file, name, shape, folder):
    layout = h5py.VirtualLayout(shape, "float32")
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", shape)
    file.create_virtual_dataset(name, layout)


def compressed_bomb(file, name, *_):
    file.create_dataset(name, (200_000, 200_000), "float32", chunks=(1000, 1000), compression="gzip")


@pytest.mark.parametrize("trap", [external_link, soft_link, external_storage, virtual_dataset, compressed_bomb])
@pytest.mark.parametrize("ending", [".weights.h5", ".keras"])
def test_hdf5_files_that_reach_elsewhere(trap, ending, tmp_path):
    """No link is followed, and nothing is read from another file."""
    zoo.save(tiny(), tmp_path / "good.weights.h5")
    with h5py.File(tmp_path / "good.weights.h5", "a") as file:
        name, shape = first_array(file)
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["x"] = np.ones(shape, "float32")
        (tmp_path / "private").write_bytes(bytes(4 * math.prod(shape)))
        del file[name]
        trap(file, name, shape, tmp_path)
    path = tmp_path / f"bad{ending}"
    if ending == ".keras":
        with_weights(path, tmp_path / "good.weights.h5")
    else:
        shutil.copy(tmp_path / "good.weights.h5", path)
    with pytest.raises(CheckpointError, match="does not hold the weights"):
        zoo.load(path)


def with_weights(path, weights, how=zipfile.ZIP_STORED):
    """A tiny model's .keras file with those weights."""
    zoo.save(tiny(), path)
    with zipfile.ZipFile(path) as good:
        description = good.read("config.json")
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("config.json", description)
        archive.write(weights, "model.weights.h5")


@pytest.mark.parametrize("ending", [".weights.h5", ".keras"])
@pytest.mark.parametrize("how", [{}, {"chunks": True}, {"compression": "gzip"}])
def test_packed_hdf5_files(how, ending, tmp_path):
    """Who writes a model's weights again gets the same model; chunks, which Keras does not write, are refused."""
    model = tiny()
    path = tmp_path / f"packed{ending}"
    zoo.save(model, tmp_path / "good.weights.h5")
    with h5py.File(tmp_path / "good.weights.h5", "a") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if getattr(item, "shape", ()) else None)
        for name in names:
            values = file[name][()]
            del file[name]
            file.create_dataset(name, data=values, **how)
    if ending == ".keras":
        with_weights(path, tmp_path / "good.weights.h5", zipfile.ZIP_DEFLATED)
    else:
        shutil.copy(tmp_path / "good.weights.h5", path)
    if how:
        with pytest.raises(CheckpointError, match="is stored in chunks"):
            zoo.load(path)
    else:
        assert_same(model, zoo.load(path))


def test_a_keras_file_with_a_flipped_bit(tmp_path):
    zoo.save(tiny(), tmp_path / "x.keras")
    data = bytearray((tmp_path / "x.keras").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.keras").write_bytes(data)
    with pytest.raises(CheckpointError, match="Bad CRC-32"):
        zoo.load(tmp_path / "x.keras")


@pytest.mark.parametrize("where", ["class", "backbone", "dtype", "labels", "name", "build_config", "compile_config"])
def test_descriptions_that_smuggle_code(where, tmp_path):
    """Nothing in a .keras file's description is ever made but our own configuration."""
    code = {"module": "os", "class_name": "system", "config": f"touch {tmp_path / 'run'}", "registered_name": None}
    code = {"class_name": "Lambda", "module": "keras.layers", "config": {"function": code, "enable_unsafe": True}}
    path = tmp_path / "x.keras"
    zoo.save(tiny(), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(members["config.json"])
    about = description if where.endswith("config") or where == "class" else description["config"]
    about["config" if where == "class" else where] = code
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, "config.json": json.dumps(description), "../../out": "x"}.items():
            archive.writestr(name, data)
    with contextlib.suppress(CheckpointError):
        zoo.load(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.keras"]


def first_array(file):
    """(name, shape) of a dataset in an HDF5 file."""
    names = []
    file.visititems(lambda name, item: names.append((name, item.shape)) if isinstance(item, h5py.Dataset) else None)
    return names[0]


def test_descriptions_that_lack_a_field():
    about = serialize_model(tiny())
    for name in about["config"].keys() - {"preprocessing", "labels"}:
        values = {key: value for key, value in about["config"].items() if key != name}
        with pytest.raises(Fault, match=f"does not describe a model of this package: KeyError.'{name}'"):
            read_description({**about, "config": values})


@pytest.mark.parametrize("value", [None, -1, 0, 10**9, 2**63, float("nan"), "8", [1], {}, 1e300, [10**9, 10**9]])
@pytest.mark.parametrize("field", ["image_size", "patch_size", "hidden_size", "num_layers", "num_heads", "num_classes"])
def test_descriptions_of_no_model(field, value, tmp_path):
    """The description in an archive's comment is believed only where its numbers are in the file."""
    path = tmp_path / "model.npz"
    zoo.save(tiny(), path)
    with zipfile.ZipFile(path, "a") as archive:
        described = json.loads(archive.comment)
        described["config"][field] = value
        archive.comment = json.dumps(described).encode()
    with pytest.raises((CheckpointError, ConfigError)):
        zoo.load(path)

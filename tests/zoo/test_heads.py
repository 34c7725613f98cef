"""Transfer starts from a new head (section 3.2): when `zoo.load` keeps a checkpoint's head, and when it does not."""

import dataclasses
import inspect
from collections import defaultdict
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import keras
import numpy as np
import pytest
from golden import GOLDEN

from keras_vit import models, zoo
from keras_vit.errors import ConfigError
from keras_vit.models.config import ConstructorFields, ModelFields, field_types
from keras_vit.models.variants import MODELS
from keras_vit.zoo import adapt
from keras_vit.zoo.fetch import download
from keras_vit.zoo.names.rows import class_names

ENDINGS = (".npz", ".keras", ".weights.h5", ".safetensors")
NAMES = ("a", "b", "c")


def trained(representation_size=None, labels=NAMES):
    """A model whose head is not zero."""
    keras.utils.set_random_seed(2)
    size = {"image_size": 8, "patch_size": 4, "hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 20}
    model = models.VisionTransformer(
        **size, num_classes=3, representation_size=representation_size, labels=labels, gelu_approximate=False
    )
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=model.get_layer("head").kernel.shape))
    return model


def kept(tmp_path, ending, **changes):
    """The path of a trained model's file, and the model."""
    model = trained(**changes)
    zoo.save(model, tmp_path / f"model{ending}")
    return tmp_path / f"model{ending}", model


def load(path, **asked):
    return zoo.load(path, num_heads=2, **asked)


def weight(model):
    return keras.ops.convert_to_numpy(model.get_layer("head").kernel)


def choices(kind):
    """The types of a union, or the values of a Literal."""
    parts = get_args(kind) if get_origin(kind) in (UnionType, Literal) else ()
    return set().union(*map(choices, parts)) if parts else {kind}


def test_type_checkers_know_every_argument():
    parameters = inspect.signature(zoo.load).parameters.values()
    arguments = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    fields = {field.name for kind in MODELS for field in dataclasses.fields(kind)}
    assert set(adapt.ARGUMENTS) == set(arguments) - fields
    assert set(ModelFields.__annotations__) == fields - set(arguments)
    stated = defaultdict(set, image_size={int}, patch_size={int})  # one for two equal sides
    for name, kind in ((field.name, field_types(x)[field.name]) for x in MODELS for field in dataclasses.fields(x)):
        stated[name] |= choices(kind)
    assert {name: choices(kind) for name, kind in get_type_hints(ConstructorFields).items()} == stated


def test_no_two_classes_have_one_name():
    with pytest.raises(ConfigError, match="Received twice: 'a'"):
        load("ViT-Test/4", weights=None, labels=("a", "b", "a"))
    names = load("ViT-Test/4", weights=None, labels=class_names("imagenet1k")).labels
    assert len(set(names)) < len(names) == 1000, "ImageNet's own names stay what they are"


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_of_any_length_are_kept(ending, tmp_path):
    """A zip archive's comment holds 64 KiB."""
    path, names = tmp_path / f"model{ending}", [f"{i} {'ü' * 30}" for i in range(3000)]
    zoo.save(load("ViT-Test/4", weights=None, labels=names), path)
    assert load(path).labels == tuple(names)
    if ending == ".npz":
        with np.load(path) as arrays:
            assert arrays["head/kernel"].shape == (64, 3000)


@pytest.mark.parametrize("ending", ENDINGS)
def test_other_labels_start_from_zeros_though_their_number_is_the_same(ending, tmp_path):
    path, _ = kept(tmp_path, ending)
    model = load(path, labels=("x", "y", "z"))
    assert model.labels == ("x", "y", "z") and not weight(model).any()
    assert load(path, labels=("c", "b", "a")).labels == ("c", "b", "a")
    assert not weight(load(path, labels=("c", "b", "a"))).any(), "another order is other classes"


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_asked_is_done_whatever_the_classes(ending, tmp_path):
    path, published = kept(tmp_path, ending)
    new = load(path, head="new")
    assert new.config.num_classes == 3 and not weight(new).any() and new.labels is None
    renamed = load(path, head="keep", labels=("x", "y", "z"))
    np.testing.assert_array_equal(weight(renamed), weight(published))
    assert renamed.labels == ("x", "y", "z")


@pytest.mark.parametrize("ending", [".npz", ".keras"])
@pytest.mark.parametrize("asked", [{}, {"labels": [*NAMES]}, {"num_classes": 3}, {"num_classes": 3, "labels": NAMES}])
def test_the_same_classes_keep_their_head(asked, ending, tmp_path):
    path, published = kept(tmp_path, ending)
    model = load(path, **asked)
    np.testing.assert_array_equal(weight(model), weight(published))
    assert model.labels == NAMES


def test_a_hidden_layer_of_another_width_is_refused_with_advice_that_works(tmp_path):
    saved = load("ViT-Test/4", weights=None, num_classes=3, representation_size=True)
    zoo.save(saved, tmp_path / "model.npz")
    for classes in (3, 0):
        with pytest.raises(ConfigError, match="gives vectors of 128 numbers.* or num_classes=0 and representation_siz"):
            load(tmp_path / "model.npz", classifier="token+gap", num_classes=classes)
    model = load(tmp_path / "model.npz", classifier="token+gap", num_classes=0, representation_size=None)
    assert model.output_shape == (None, 128)


def test_names_for_classes_without_names_start_from_zeros(tmp_path):
    """Nobody could tell whether they are the checkpoint's own: a head of zeros shows, an old one would not."""
    path, published = kept(tmp_path, ".npz", labels=None)
    assert not weight(load(path, labels=NAMES)).any()
    np.testing.assert_array_equal(weight(load(path, labels=NAMES, head="keep")), weight(published))
    np.testing.assert_array_equal(weight(load(path, num_classes=3)), weight(published))


def test_both_layers_of_the_head_go(tmp_path):
    path, published = kept(tmp_path, ".npz", representation_size=12)
    assert load(path).config.representation_size == 12
    for asked in ({"labels": ("x", "y", "z")}, {"head": "new"}, {"num_classes": 5}, {"representation_size": None}):
        model = load(path, **asked)
        assert model.config.representation_size is None and not weight(model).any(), asked
    again = load(path, head="new", representation_size=12)
    layers = [keras.ops.convert_to_numpy(m.get_layer("pre_logits").kernel) for m in (again, published)]
    assert not np.array_equal(*layers) and layers[0].any()
    assert not weight(load(tmp_path / "model.npz", representation_size=8)).any()


def test_resnets_too():
    path = GOLDEN / "bit_1_2_1_1.npz"
    assert weight(zoo.load(path)).any()
    assert not weight(zoo.load(path, labels=list("abcde"))).any()
    assert not weight(zoo.load(path, head="new")).any()
    assert weight(zoo.load(path, head="keep", labels=list("abcde"))).any()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"head": "keep", "num_classes": 5}, "of 3 classes. Received: 5 classes"),
        ({"head": "keep", "labels": ["x"]}, "of 3 classes. Received: 1 classes"),
        ({"head": "keep", "representation_size": 12}, "another representation_size"),
        ({"num_classes": -1}, "num_classes must be a whole number, 0"),
        ({"num_classes": "3"}, "num_classes must be a whole number, 0"),
        ({"head": "new", "num_classes": 0}, "head='new' needs classes"),
        ({"head": "fresh"}, "There is no head 'fresh'. .*new"),
        ({"labels": ["x", "y"], "num_classes": 3}, "2 labels, 3 classes"),
        ({"classifier": "token+gap"}, "vectors of 24 numbers, but the checkpoint's head reads 12. Pass head='new'"),
        ({"labels": 3}, "a list of names. Received: 3"),
        ({"labels": "xyz"}, "a list of names. Received: the string 'xyz'"),
        ({"labels": {0: "x", 1: "y", 2: "z"}}, "a list of names. Received: the mapping {0: 'x'"),
    ],
)
def test_heads_that_cannot_be(asked, sentence, tmp_path):
    path, _ = kept(tmp_path, ".npz")
    with pytest.raises(ConfigError, match=sentence):
        load(path, **asked)


@pytest.mark.parametrize(
    ("asked", "width"),
    [({"hidden_size": 24, "mlp_dim": 20}, 24), ({"classifier": "token+gap"}, 128), ({"num_classes": 64}, 64)],
)
def test_without_weights_the_head_fits_any_width(asked, width):
    model = zoo.load("ViT-Test/4", weights=None, num_layers=1, **asked)
    head = model.get_layer("head").kernel
    assert tuple(head.shape) == (width, asked.get("num_classes", 1000)) and not np.any(head)


def test_heads_that_are_not_there():
    with pytest.raises(ConfigError, match="Received: weights=None"):
        zoo.load("ViT-Test/4", weights=None, head="keep")
    with pytest.raises(ConfigError, match="the checkpoint has none"):
        zoo.load("ViT-B/16:i21k", head="keep")


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("ViT-Ti/16", {"pretrained": False}, "no argument 'pretrained'"),
        ("ViT-Ti/16", {"n_classes": 5}, "'n_classes'. Did you mean num_classes"),
        ("ViT-Ti/16", {"lables": ["a"]}, "'lables'. Did you mean labels"),
        ("R50x1", {"dropout_rate": 0.1}, "no .*dropout_rate"),
        ("R50x1", {"patch_size": 8}, "no argument 'patch_size'"),
        ("ViT-Ti/16", {"image_size": 225}, "whole number of patches"),
        ("ViT-Ti/16", {"dropout_rate": 2}, r"dropout_rate must be in \[0, 1\)"),
        ("ViT-Ti/16", {"head": "keep", "num_classes": 5}, "of 1000 classes"),
        ("ViT-Ti/16", {"dtype": "bfloat61"}, "no dtype 'bfloat61'"),
        ("ViT-Ti/16", {"labels": ["a", "b"], "num_classes": 3}, "2 labels, 3 classes"),
        ("augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", {"depths": (1,)}, "no argument 'depths'"),
        ("hf://owner/repo", {"pretrained": True}, "no argument 'pretrained'"),
    ],
)
def test_nothing_is_fetched_for_what_cannot_be(name, asked, sentence, monkeypatch):
    monkeypatch.setattr(download, "fetch_with_companions", lambda found: pytest.fail(f"{found.url} was asked for"))
    with pytest.raises(ConfigError, match=sentence):
        zoo.load(name, **asked)

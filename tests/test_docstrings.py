"""The examples in docstrings that need neither a network nor a file print what they say."""

import doctest
import importlib
import pkgutil

import keras
import numpy as np
import pytest

import keras_vit

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = {"keras": keras, "keras_vit": keras_vit, "np": np, "ops": keras.ops}
# Programs, and what takes the place of other modules where Keras' backend is JAX.
SCRIPTS = ("__main__", "worker", "predict_script", "jax_devices", "jax_model")
SLOW = {
    "keras_vit.training.grid.search_recipe",  # trains three models
    "keras_vit.evaluation.frozen_features.evaluate_few_shot",
    "keras_vit.data.previewing.draw_preview",
    "keras_vit.data.duplicates.find_duplicates",
}


def modules():
    for package in (keras_vit, keras_vit.zoo, keras_vit.export):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(SCRIPTS):
                yield module.name


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in sorted(set(modules())):
        for test in finder.find(importlib.import_module(name), extraglobs=NAMES):
            if any(doctest.SKIP not in example.options for example in test.examples):
                yield test


def parameter(test):
    return pytest.param(test, id=test.name, marks=[pytest.mark.slow] if test.name in SLOW else [])


@pytest.mark.parametrize("test", [parameter(test) for test in examples()])
def test_example(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    assert not failed, "".join(said)

"""A run's files, damaged or hostile, end in a sentence or are passed over; none ends in a raw error."""

import collections
import dataclasses
import json
import os
import warnings

import numpy as np
import pytest
from fuzzing import mutated
from training_run import points, tiny

from keras_vit import data, training, zoo
from keras_vit.errors import KerasVitError
from keras_vit.files import sha256
from keras_vit.trainers.choices import require_same_classes, require_same_settings
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.history import read_rows
from keras_vit.training.runs.run_folder import RunFolder, model_of, read_config
from keras_vit.training.runs.state import collect_state, restore_state

SETTINGS = Settings(model="ViT-Test/4", dataset="digits", steps=4)


@pytest.fixture(scope="module")
def model():
    model = tiny()
    model.fit(points(0), steps_per_epoch=1, verbose=0, shuffle=False)
    return model


@pytest.fixture
def store(tmp_path, model):
    store = training.Checkpoints(tmp_path / "run/checkpoints")
    for step in (1, 2):
        store.save(step, collect_state(model))
    return store


def vouched(store, content):
    """Puts that content into the newest checkpoint, for which the ledger then vouches."""
    store.path(2).write_bytes(content)
    store.run_folder.save({**store.run_folder.entries(), store.name(2): sha256(store.path(2))})


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path.read_bytes()


def test_what_a_ledger_vouches_for_may_be_damaged_still(store, tmp_path):
    whole = store.path(2).read_bytes()
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(10**6))
    pickled = npz(tmp_path / "x.npz", a=np.array([{}], object))
    bomb = (tmp_path / "bomb.npz").read_bytes()
    for content in (b"", b"PK", whole[:-30], whole[:200] + whole[400:], pickled, bomb, b"\x93NUMPY", b"[" * 10**5):
        vouched(store, content)
        with pytest.warns(UserWarning, match="step 2 .* cannot be read: .*The one before it is used"):
            assert store.newest()[0] == 1


def test_weights_that_cannot_be_loaded(model, tmp_path):
    path, whole = tmp_path / "best.weights.npz", {v.path: v.numpy() for v in model.weights}
    first = next(iter(whole))
    npz(path, **whole)
    training.load_weights(model, path)
    contents = [b"", b"PK", npz(path, **whole)[:-40], npz(path, **{**whole, first: whole[first].astype(str)})]
    for content in [*contents, npz(path, a=np.ones(2)), npz(path, **{**whole, first: whole[first][:1]})]:
        path.write_bytes(content)
        with pytest.raises(training.RunError, match="best.weights.npz (cannot be read|holds the weights of another)"):
            training.load_weights(model, path)
    with pytest.raises(training.RunError, match="cannot be read"):
        training.load_weights(model, tmp_path / "absent.npz")


def test_weights_load_whatever_dropout_their_model_had(tmp_path):
    """Between configurations of one architecture; not if another field differs."""
    small = {"weights": None, "image_size": 8, "num_layers": 1, "num_classes": 3}
    model = zoo.load("ViT-Test/4", dropout_rate=0.1, stochastic_depth_rate=0.2, **small)
    zoo.save(model, tmp_path / "best.weights.npz")
    other = zoo.load("ViT-Test/4", attention_dropout_rate=0.3, **small)
    training.load_weights(other, tmp_path / "best.weights.npz")
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), other.get_weights(), strict=True))
    with pytest.raises(training.RunError, match="of another model"):
        training.load_weights(zoo.load("ViT-Test/4", num_heads=1, **small), tmp_path / "best.weights.npz")


def test_arrays_of_another_kind_are_refused(store, model):
    arrays = collect_state(model)
    key = next(key for key in arrays if key.endswith("kernel"))
    before = [v.numpy() for v in model.variables]
    for array in (arrays[key].astype(str), arrays[key].astype("float64"), arrays[key].astype(complex), arrays[key][0]):
        with pytest.raises(training.RunError, match=f"The checkpoint has .* for {key}"):
            restore_state(model, {**arrays, key: array})
    for v, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(v, value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "0", "-1", "1e308", '"fast"', "null", "1" * 400, "true"])
@pytest.mark.parametrize("name", ["learning_rate", "batch_size"])
def test_a_configs_numbers_are_numbers(tmp_path, name, number):
    recipe = {"learning_rate": 0.003, "batch_size": 32}
    facts = json.dumps({"settings": vars(SETTINGS), "recipe": {**recipe, name: "NUMBER"}})
    (tmp_path / "config.json").write_text(facts.replace('"NUMBER"', number))
    with pytest.raises(training.RunError, match="is not the record of the run's settings"):
        require_same_settings(SETTINGS, tmp_path, read_config(tmp_path, to_resume=True))


@pytest.mark.parametrize("classes", ["[1, null]", '["a", {}]', '"abc"', "7", "{}"])
def test_a_configs_classes_are_names(tmp_path, classes):
    recipe = {"learning_rate": 0.003, "batch_size": 32}
    facts = json.dumps({"settings": vars(SETTINGS), "recipe": recipe, "classes": "CLASSES"})
    (tmp_path / "config.json").write_text(facts.replace('"CLASSES"', classes))
    with pytest.raises(training.RunError, match="is not the record of the run's settings"):
        read_config(tmp_path, to_resume=True)


def read_begun(store, digits):
    begun = read_config(folder := store.folder.parent, to_resume=True)
    require_same_settings(SETTINGS, folder, begun)
    require_same_classes(digits, folder, begun)


def read_metrics(store, model):
    read_rows(store.folder.parent / "metrics.csv")


def read_checkpoint(store, model):
    restore_state(model, store.newest()[1])


def read_ledger(store, model):
    RunFolder(store.folder.parent).check(resume=True)
    store.newest()
    model_of(store.folder.parent)


def config():
    recipe = {"name": "finetune-pets", "learning_rate": 0.003, "batch_size": 32}
    facts = {"total_steps": 4, "settings": vars(SETTINGS), "recipe": recipe, "classes": [str(i) for i in range(10)]}
    return json.dumps(facts, indent=2).encode()


def metrics():
    rows = [f"{i},{i * 10},0.1,{1 / i:.3f},0.5" for i in range(1, 9)]
    return "\n".join(["epoch,step,learning_rate,loss,val_accuracy", *rows]).encode()


def fuzzed(store, path, read, subject, count, vouch=False):
    """How often each outcome came of reading `count` mutations of the file."""
    original, rng, outcomes = path.read_bytes(), np.random.default_rng(0), collections.Counter()
    for _ in range(count):
        content = mutated(original, rng)
        vouched(store, content) if vouch else path.write_bytes(content)
        try:
            read(store, subject)
            outcomes["read"] += 1
        except KerasVitError:
            outcomes["refused"] += 1
    path.write_bytes(original)
    return outcomes


def fuzz(store, model, count):
    out, digits = store.folder.parent, data.load("digits")
    (out / "config.json").write_bytes(config())
    (out / "metrics.csv").write_bytes(metrics())
    read_begun(store, digits), read_checkpoint(store, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzzed(store, out / "config.json", read_begun, digits, count)["refused"] > count / 5
        assert fuzzed(store, out / "metrics.csv", read_metrics, model, count)["refused"] > count / 50
        assert fuzzed(store, store.path(2), read_checkpoint, model, count, vouch=True)["read"] > count / 2
        assert fuzzed(store, store.folder / "run.json", read_ledger, model, count)["refused"] > count / 2


def test_files_of_a_run_that_never_end(tmp_path):
    """A folder with 2 ** 26 bytes of nothing, and one with a pipe."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/run.json").write_text(
        json.dumps({"run": "a", "files": {"checkpoints/step-00000003.npz": "0" * 64}})
    )
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(training.RunError, match="3 of all steps are saved"):
        model_of(tmp_path)
    with pytest.raises(training.RunError, match="config.json is not the record"):
        require_same_settings(SETTINGS, tmp_path, read_config(tmp_path, to_resume=True))
    with open(tmp_path / "checkpoints/run.json", "wb") as file:
        file.truncate(10**12)
    with pytest.raises(training.RunError, match="run.json is not the list of what this run wrote: it has more than"):
        model_of(tmp_path)


def test_settings_are_kept_without_secrets(tmp_path):
    address = "https://me:PASSWORD@host/m.keras?signature="
    settings = Settings(model=f"{address}SIGNATURE", dataset="digits")
    begun = {"settings": settings.as_recorded(), "recipe": {"batch_size": 64, "learning_rate": 0.1}}
    assert begun["settings"]["model"] == "https://host/m.keras"
    later = dataclasses.replace(settings, model=f"{address}LATER")
    same = dataclasses.replace(later, batch_size=64, learning_rate=0.1)
    assert require_same_settings(later, tmp_path, begun) == same
    other = dataclasses.replace(settings, model="https://me:PASSWORD@host/other.keras")
    with pytest.raises(KerasVitError, match="begun with model=.https://host/m.keras") as caught:
        require_same_settings(other, tmp_path, begun)
    assert "PASSWORD" not in str(caught.value)


def test_mutated_files_of_a_run(store, model):
    fuzz(store, model, 100)


@pytest.mark.slow
@pytest.mark.long
def test_many_mutated_files_of_a_run(store, model):
    fuzz(store, model, 3000)

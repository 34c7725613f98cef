"""The grid search, a recipe's callbacks under plain `fit`, and the strategies of a machine without accelerators."""

import math
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import training
from keras_vit.distribution import DistributedModel
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.layers.elementary import Dropout
from keras_vit.training.runs.history import read_rows
from keras_vit.training.strategies import has_tpu


def digits():
    """400 images (16, 16, 3) whose bright quarter is their class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    images = rng.normal(size=(400, 16, 16, 3)).astype("float32") * 0.3
    for i, label in enumerate(labels):
        row, column = divmod(label, 2)
        images[i, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] += 2.0
    return tf.data.Dataset.from_tensor_slices((images, labels))


def linear():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.AveragePooling2D(8)(inputs)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Flatten()(x)))


def flat(dropout_rate=0.0):
    """A model of this package's kind: it has a head, and dropout of its own rate."""
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.Flatten()(keras.layers.AveragePooling2D(8)(inputs))
    model = DistributedModel(inputs, keras.layers.Dense(4, name="head")(Dropout(dropout_rate)(x)))
    model.config = SimpleNamespace(dropout_rate=dropout_rate)
    return model


def trial_of(batches, held_out):
    """Function of a recipe to its trial; `made` counts the models."""
    made = []

    def prepare(recipe):
        made.append(recipe.dropout_rate)
        return training.Trial(flat(recipe.dropout_rate), lambda step: batches.skip(step), held_out)

    return prepare, made


@pytest.fixture(scope="module")
def halves():
    train, held_out = digits().skip(40), digits().take(40)
    return train.repeat().batch(32, drop_remainder=True), held_out.batch(40)


def test_the_search_finds_the_rate_that_learns(halves):
    recipe = training.recipe("finetune-flowers", steps=60, batch_size=32)
    prepare, _ = trial_of(*halves)
    found = training.search_recipe(recipe, {"learning_rate": (1e-7, 0.1)}, prepare)
    assert found.best == {"learning_rate": 0.1} and found.recipe.learning_rate == 0.1
    (_, low), (_, high) = found.scores
    assert found.accuracy == high > 0.8 > low


@pytest.mark.parametrize(
    "grid, error, says",
    [
        ({}, ConfigError, "nothing to search"),
        ({"learning_rate": ()}, ConfigError, "nothing to try for learning_rate"),
        ({"wieght_decay": (0.1,)}, UnknownNameError, "Did you mean weight_decay"),
        ({"learning_rate": (0.1, -1)}, ConfigError, "learning_rate must be positive"),
    ],
)
def test_what_cannot_be_searched(grid, error, says):
    prepare, made = trial_of(None, None)
    with pytest.raises(error, match=says):
        training.search_recipe(training.recipe("finetune-flowers"), grid, prepare)
    assert not made


def test_a_point_that_diverges_cannot_win_without_a_folder(halves, monkeypatch):
    """Keras' `fit` does not stop at a loss that is not finite; a model of NaN has an accuracy all the same."""
    fit = DistributedModel.fit

    def fit_until_it_diverges(model, *arguments, **options):
        history = fit(model, *arguments, **options)
        if model.config.dropout_rate:
            history.history["loss"][-1] = math.nan
        return history

    monkeypatch.setattr(DistributedModel, "fit", fit_until_it_diverges)
    recipe = training.recipe("finetune-flowers", steps=1, batch_size=32)
    found = training.search_recipe(recipe, {"dropout_rate": (0.0, 0.1)}, trial_of(*halves)[0])
    assert found.best == {"dropout_rate": 0.0} and found.scores[1][1] is None


def test_a_search_removes_its_own_files_alone(halves, tmp_path):
    """In the folder of a point, before and after its run: a user's files stay, whatever their endings."""
    recipe = training.recipe("finetune-flowers", steps=2, batch_size=32)
    mine = [tmp_path / "point-0" / name for name in ("notes.txt", "photo.jpg", "mine.npz", "events.out.tfevents.1")]
    mine[0].parent.mkdir()
    for path in mine:
        path.write_text("precious")
    training.search_recipe(recipe, {"dropout_rate": (0.0,)}, trial_of(*halves)[0], tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*mine, tmp_path / "scores.json"}
    assert {path.read_text() for path in mine} == {"precious"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["point-0", "scores.json"]


class Killed(BaseException):
    pass


@pytest.mark.long
@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(halves, tmp_path, monkeypatch):
    """At a point's middle, at its end: the points before are not trained again, and all scores are the same bits."""
    recipe = training.recipe("finetune-flowers", steps=8, batch_size=32, learning_rate=0.05)
    grid = {"weight_decay": (None, 0.3), "dropout_rate": (0.0, 0.9)}
    whole, made = trial_of(*halves)
    expected = training.search_recipe(recipe, grid, whole, tmp_path / "whole", every=3)
    assert made == [0.0, 0.9, 0.0, 0.9] and expected.scores[0][1] != expected.scores[1][1]
    assert [path.name for path in (tmp_path / "whole").iterdir()] == ["scores.json"]

    prepare, made = trial_of(*halves)
    evaluate, calls = DistributedModel.evaluate, []

    def evaluate_until_killed(model, *arguments, **options):
        calls.append(model)
        if len(calls) == 2:
            raise Killed
        return evaluate(model, *arguments, **options)

    monkeypatch.setattr(DistributedModel, "evaluate", evaluate_until_killed)
    with pytest.raises(Killed):
        training.search_recipe(recipe, grid, prepare, tmp_path / "cut", every=3)
    with pytest.raises(Killed):  # in the middle of the second point's training
        monkeypatch.setattr(training.Checkpoints, "save", lambda *_: (_ for _ in ()).throw(Killed()))
        shutil.rmtree(tmp_path / "cut" / "point-1")
        training.search_recipe(recipe, grid, prepare, tmp_path / "cut", every=3)
    monkeypatch.undo()
    found = training.search_recipe(recipe, grid, prepare, tmp_path / "cut", every=3)
    assert found == expected and made == [0.0, 0.9, 0.9, 0.9, 0.0, 0.9]
    with pytest.raises(ConfigError, match="begun with points="):
        training.search_recipe(recipe, {"learning_rate": (0.1,)}, prepare, tmp_path / "cut")
    (tmp_path / "cut" / "scores.json").write_text("{}")
    with pytest.raises(training.RunError, match="is not the record of these results"):
        training.search_recipe(recipe, grid, prepare, tmp_path / "cut")


@pytest.mark.slow
def test_a_recipes_callbacks_keep_a_plain_fit(tmp_path):
    recipe = training.recipe("finetune-imagenet-ViT-L/16", steps=12, batch_size=40, ema_momentum=0.5)
    with training.strategy("one_device").scope():
        model = linear()
        recipe.compile(model)
    data = digits().batch(40)
    callbacks = recipe.callbacks(tmp_path, every=5)
    model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=callbacks, shuffle=False)
    assert training.Checkpoints(tmp_path / "checkpoints").steps() == [20, 15]
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 3
    best = dict(np.load(tmp_path / "best.weights.npz"))
    # The run ends with the averaged weights, which are what was evaluated.
    values = [row["val_loss"] for row in read_rows(tmp_path / "metrics.csv")]
    np.testing.assert_allclose(model.evaluate(data, verbose=0)[0], values[-1], rtol=1e-5)
    assert best.keys() == {v.path for v in model.weights}


def test_strategies(monkeypatch, capsys):
    assert training.strategy() is tf.distribute.get_strategy()
    device = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    assert capsys.readouterr().out == f"Training on one replica ({device}).\n"
    assert isinstance(training.strategy(devices=["CPU:0"]), tf.distribute.MirroredStrategy)
    assert isinstance(training.strategy("one_device", devices=["CPU:0"]), tf.distribute.OneDeviceStrategy)
    assert isinstance(training.strategy("mirrored"), tf.distribute.MirroredStrategy)
    with pytest.raises(UnknownNameError, match="mirrored"):
        training.strategy("miror")
    with pytest.raises(ConfigError, match="no device 'GPU:7'"):
        training.strategy("one_device", devices=["GPU:7"])
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        training.strategy("multi_worker")
    monkeypatch.setenv("TF_CONFIG", "{'cluster': {}}")
    with pytest.raises(ConfigError, match="TF_CONFIG must be JSON"):
        training.strategy("auto")
    monkeypatch.delenv("TF_CONFIG")
    assert isinstance(training.strategy("one_device", devices="CPU:0"), tf.distribute.OneDeviceStrategy)
    with pytest.raises(ConfigError, match="No TPU answers as 'local'"):
        training.strategy("tpu")


GOOGLE, NVIDIA, MELLANOX = "0x1ae0\n", "0x10de\n", "0x15b3\n"  # as sysfs writes PCI vendors
ACCEL, GROUP = "sys/class/accel/accel{0}/device/vendor", "sys/kernel/iommu_groups/{0}/devices/0000:00:05.0/vendor"
MACHINES = {
    "v4": ({"dev/accel0": "", ACCEL.format(0): GOOGLE}, {}, True),
    "v5e": ({"dev/vfio/0": "", "dev/vfio/vfio": "", GROUP.format(0): GOOGLE}, {}, True),
    "v5e, of whose devices a container sees nothing": ({}, {"TPU_ACCELERATOR_TYPE": "v5litepod-4"}, True),
    "TPU node": ({}, {"TPU_NAME": "node-1"}, True),
    "NVIDIA GPU": ({"dev/accel0": "", ACCEL.format(0): NVIDIA}, {}, False),
    "passed through": ({"dev/vfio/96": "", "dev/vfio/vfio": "", GROUP.format(96): MELLANOX}, {}, False),
    "Google's network card, not passed through": ({"dev/vfio/vfio": "", GROUP.format(3): GOOGLE}, {}, False),
    "accel without sysfs": ({"dev/accel0": ""}, {}, False),
    "neither": ({}, {}, False),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_tpu_is_told_from_other_accelerators(machine, tmp_path, monkeypatch):
    files, variables, expected = MACHINES[machine]
    for name in ("TPU_NAME", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert has_tpu(tmp_path) is expected

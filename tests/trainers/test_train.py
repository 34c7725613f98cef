"""Training from Python: the same bits as from the command line, every option an argument, what happened as a result."""

import collections
import hashlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import keras_vit as package
from keras_vit import training
from keras_vit.commands import finetune
from keras_vit.errors import ConfigError, KerasVitError, RunError, UnknownNameError
from keras_vit.trainers.choices import choose_settings
from keras_vit.training.runs.run_folder import RunFolder

GIVEN = {"image_size": 8, "steps": 6, "batch_size": 16, "learning_rate": 0.01, "every": 3, "test": True}


@pytest.mark.slow
def test_python_and_the_command_train_the_same_bits(keras_vit, tiny, tmp_path):
    result = package.finetune("digits", out=tmp_path / "python", model=Path(tiny), tell=None, **GIVEN)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in GIVEN.items() if value is not True]
    done = keras_vit("finetune", "--data", "digits", "--model", tiny, "--out", tmp_path / "command", "--test", *words)
    assert done.status == 0, done.err
    for name in ("best", "last"):
        one, other = (dict(np.load(tmp_path / way / f"{name}.weights.npz")) for way in ("python", "command"))
        assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
    assert f"Test accuracy of epoch {result.best_epoch}, the best of {result.epochs}: {result.accuracy:.1%}" in done.out
    low, high = result.interval
    assert low < result.accuracy < high and result.judged_by == "test" and result.metric == "accuracy"
    assert {"config.json", "best.weights.npz", "mistakes.png", "checkpoints/"} <= set(result.files)
    assert all((result.folder / name).exists() for name in result.files)
    longer = package.finetune(out=tmp_path / "python", resume=True, steps=8, tell=None)
    assert json.loads((longer.folder / "config.json").read_text())["total_steps"] == 8


@pytest.mark.parametrize(("command", "function"), [(finetune.finetune, "finetune"), (finetune.pretrain, "pretrain")])
def test_every_option_of_the_command_is_an_argument(command, function):
    options = set(inspect.signature(command).parameters) - {"context", "protocol", "seeds"}
    function = getattr(package, function)
    taken = inspect.signature(function).parameters
    assert options <= set(taken) and set(taken) - options == {"tell"}
    assert all(f"\n        {name}: " in function.__doc__ for name in taken)
    assert taken["model"].default == inspect.signature(command).parameters["model"].default


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"lr": 0.1}, UnknownNameError, "There is no argument 'lr'. Here it is called learning_rate."),
        ({"data": "digits"}, UnknownNameError, "There is no argument 'data'. Did you mean dataset?"),
        ({"objective": "masked-patches"}, UnknownNameError, "There is no argument 'objective'"),
        ({"pretrain": True}, UnknownNameError, "There is no argument 'pretrain'"),
        ({"dataset": None}, ConfigError, "Nothing says what to train on"),
        ({"epochs": "20"}, ConfigError, "epochs must be of type float. Received: '20'"),
        ({"freeze": 2.5}, ConfigError, "freeze must be of type str. Received: 2.5"),
        ({"test": "yes"}, ConfigError, "test must be of type bool"),
        ({"precision": "fp16"}, ConfigError, "precision must be float32 or mixed_bfloat16 or mixed_float16."),
        (
            {"strategy": "gpu"},
            ConfigError,
            "strategy must be auto or jax or tpu or multi_worker or mirrored or one_device.",
        ),
        ({"split": "all"}, ConfigError, r"split must be train or train\+validation. Received: 'all'"),
        ({"search": "dropout_rate=0"}, ConfigError, "search must be of type list"),
        ({"model": "ViT-B/17"}, UnknownNameError, "Did you mean"),
        ({"model": None}, ConfigError, "model must be of type str. Received: None"),
        ({"model": package}, ConfigError, "model must be of type str. Received: <module 'keras_vit'"),
        ({"dataset": "folder:nowhere"}, KerasVitError, "nowhere"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(given, error, says, tmp_path):
    with pytest.raises(error, match=says):
        package.finetune(**{"dataset": "digits", "out": tmp_path / "run", **given})
    assert not (tmp_path / "run").exists()


def test_settings_are_what_config_json_keeps(tmp_path):
    """Whatever Python gives: numpy's numbers, a tuple, a number of blocks, paths. Else a run could not be resumed."""
    given = {"freeze": 4, "steps": np.int64(2), "learning_rate": np.float32(0.5), "search": ("weight_decay=none,0.1",)}
    kept = {"freeze": "4", "steps": 2, "learning_rate": 0.5, "search": ["weight_decay=none,0.1"], "test": True}
    given |= {"test": np.True_, "teacher": tmp_path / "a", "without": tmp_path / "b", "model": tmp_path / "c"}
    kept |= {"teacher": str(tmp_path / "a"), "without": str(tmp_path / "b"), "model": str(tmp_path / "c")}
    recorded = choose_settings(tmp_path, {"dataset": "digits", **given}, False, False).as_recorded()
    assert json.loads(json.dumps(recorded)) == recorded and recorded.items() >= kept.items()


@pytest.mark.slow
def test_a_search_returns_what_it_found(tiny, tmp_path):
    """The scores that it told, and the rate that the run then had; the same after the run goes on."""
    given, told = {**GIVEN, "learning_rate": None, "search": ["learning_rate=0.0001,0.05"]}, []
    result = package.finetune("digits", out=tmp_path / "run", model=Path(tiny), tell=told.append, **given)
    said = [f"learning_rate {point['learning_rate']:.2g}: {score:.1%}" for point, score in result.search.scores]
    assert [point["learning_rate"] for point, _ in result.search.scores] == [0.0001, 0.05] and set(said) <= set(told)
    rate = json.loads((result.folder / "config.json").read_text())["recipe"]["learning_rate"]
    assert result.search.best == {"learning_rate": rate} and result.search.recipe.learning_rate == rate
    assert "search/" in result.files and result.search.accuracy == max(score for _, score in result.search.scores)
    again = package.finetune(out=tmp_path / "run", resume=True, tell=None)
    assert (again.search.best, again.search.scores) == (result.search.best, result.search.scores)
    (tmp_path / "run" / "search" / "scores.json").write_text("{}")
    assert package.finetune(out=tmp_path / "run", resume=True, tell=None).search is None


@pytest.fixture
def digested(monkeypatch):
    """Counts of the files that have been read for their digests, by name."""
    counts, digest = collections.Counter(), hashlib.file_digest

    def count(file, name):
        counts[Path(file.name).name] += 1
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", count)
    return counts


@pytest.mark.slow
def test_a_finished_run_is_read_once_before_it_goes_on(tiny, tmp_path, digested):
    """Its weights may have gigabytes. What is written anew is read once too, under the name partial.*."""
    out = tmp_path / "run"
    package.finetune("digits", out=out, model=Path(tiny), tell=None, **GIVEN)
    there = [path.name for path in out.iterdir() if path.is_file()]
    digested.clear()
    package.finetune(out=out, resume=True, steps=8, tell=None)
    assert {"best.weights.npz", "last.weights.npz", "model.keras"} <= set(there)
    assert {name: digested[name] for name in there} == dict.fromkeys(there, 1)
    digested.clear()
    with training.Run(out).files.hold(resume=True):  # as `Run.fit` begins, used alone
        assert {name: digested[name] for name in there} == dict.fromkeys(there, 1)


@pytest.mark.slow
def test_a_file_that_changes_after_the_check_is_refused(tiny, tmp_path):
    folder = RunFolder(tmp_path / "run")
    package.finetune("digits", out=folder.path, model=Path(tiny), tell=None, **GIVEN)
    folder.check(resume=True)
    (folder.path / "model.keras").write_bytes(b"mine")
    with pytest.raises(RunError, match="model.keras was not written by this run"), folder.hold(resume=True):
        pass
    assert (folder.path / "model.keras").read_bytes() == b"mine"
    with pytest.raises(RunError, match="already contains a run"):
        package.finetune("digits", out=folder.path, model=Path(tiny), tell=None, **GIVEN)

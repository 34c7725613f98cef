"""A run overwrites and removes nothing that it has not written, and a run that is refused leaves nothing."""

import functools
import json
import os
import shutil
import signal
from fractions import Fraction
from pathlib import Path

import pytest
from slowness import slow_but
from training_run import points, tiny

from keras_vit import training
from keras_vit.training.runs import callbacks as run_callbacks
from keras_vit.training.runs.run_folder import model_of
from keras_vit.training.runs.saver import SIGNALS

# All that a run writes, and what it writes these as until they are whole.
WRITTEN = ("config.json", "metrics.csv", "curves.png", "best.weights.npz", "last.weights.npz", "model.keras")
COMMAND = ("averaged.weights.npz", "mistakes.png", "mistakes.csv", "masked_patches.keras", "masked_patches.png")
PARTIAL = ("partial.metrics.csv", "partial.model.keras", "partial.best.weights.npz")
INSIDE = ("checkpoints/step-00000002.npz", "checkpoints/step-00000900.npz", "checkpoints/notes", "tensorboard/events")


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def run(folder, resume=False, steps=4, **kwargs):
    training.Run(folder, every=2).fit(tiny(), points, steps, 2, validation=points(0).take(1), resume=resume, **kwargs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


compiled = functools.cache(tiny)  # refused before anything is done with it


def refused(folder, name, resume=False):
    before = contents(folder)
    with pytest.raises(training.RunError, match="was not written by this run") as caught:
        training.Run(folder).fit(compiled(), points, 4, resume=resume)
    assert str(caught.value).startswith(str(folder / name))
    assert contents(folder) == before


def test_a_run_writes_what_is_listed_here(finished):
    top = {path.name for path in finished.iterdir()}
    assert top - {"tensorboard"} == {*WRITTEN, "checkpoints"}
    with pytest.raises(ValueError):
        with training.Run(finished).files.writing("notes.txt"):
            pass


def test_curves_are_drawn_once(tmp_path, monkeypatch):
    """Also where epochs of unequal length take several `fit`."""
    drawn = []
    monkeypatch.setattr(run_callbacks, "draw_curves", lambda rows, path: (drawn.append(len(rows)), path.touch()))
    training.Run(tmp_path / "run").fit(tiny(), points, 5, Fraction(5, 3), validation=points(0).take(1))
    assert drawn == [3]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", [*WRITTEN, *COMMAND, *PARTIAL, *INSIDE])
def test_a_users_file_is_named_and_stays(tmp_path, name, resume):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    refused(tmp_path, name, resume=resume)


@pytest.mark.parametrize("name", ["config.json", "checkpoints", "tensorboard", "model.keras"])
@pytest.mark.parametrize("make", [lambda p: p.symlink_to("nowhere"), os.mkfifo], ids=["link", "pipe"])
def test_what_is_no_file_is_in_the_way_too(tmp_path, name, make):
    make(tmp_path / name)
    refused(tmp_path, name)


def test_a_file_called_checkpoints_is_refused_at_once(tmp_path):
    (tmp_path / "checkpoints").write_text("a list of them")
    refused(tmp_path, "checkpoints")
    refused(tmp_path, "checkpoints", resume=True)


def test_a_finished_run_without_its_checkpoints_stays(copy):
    shutil.rmtree(copy / "checkpoints")
    refused(copy, "best.weights.npz")
    refused(copy, "best.weights.npz", resume=True)


def test_checkpoints_that_are_gone_are_no_reason_to_begin_again(copy):
    for path in (copy / "checkpoints").glob("step-*"):
        path.unlink()
    before = contents(copy)
    with pytest.raises(training.RunError, match="checkpoints are missing from"):
        run(copy, resume=True)
    assert contents(copy) == before


@pytest.mark.parametrize("name", [*WRITTEN, *COMMAND])
def test_a_file_changed_since_is_a_users(copy, name):
    with open(copy / name, "ab") as file:
        file.write(b" ")
    refused(copy, name, resume=True)


def test_kills_before_a_file_takes_its_name_leave_it_the_runs(copy):
    """However many: model.keras states the time, so that its content is another each time."""
    for i in range(3):
        again = training.Run(copy).files
        again.begin(resume=True)
        known = again.digests()
        again.save({**known, "model.keras": [*known["model.keras"], f"{i}" * 64]})
    training.Run(copy).files.check(resume=True)
    with training.Run(copy).files.writing("model.keras") as path:
        path.write_text("written at last")
    training.Run(copy).files.check(resume=True)


def test_others_files_beside_a_runs_stay(copy):
    steps = (f"checkpoints/{name}" for name in ("step-00000001.npz", "step-00000003.npz.partial", "step-00000006.npz"))
    for name in ("notes.txt", "partial.keras", *steps):
        (copy / name).write_text("precious")
    with pytest.warns(UserWarning, match="checkpoint of step 6 .* was not written by this run"):
        run(copy, resume=True, steps=8)
    texts = [path for path, data in contents(copy).items() if data == b"precious"]
    assert len(texts) == 5
    found = {path.name for path in (copy / "checkpoints").glob("step-*.npz")}
    assert found == {f"step-0000000{step}.npz" for step in (1, 4, 6, 8)}


@pytest.mark.parametrize("kill_at", slow_but(range(4), 0, 3))
def test_a_run_killed_at_its_first_writes_begins_again(tmp_path, monkeypatch, kill_at):
    """Before each of its first renames: nothing of its own is then in its way."""
    calls = iter(range(100))

    def killed(*arguments, replace=os.replace):
        if next(calls) == kill_at:
            raise SystemExit  # and no clearing up after that
        replace(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(Path, "unlink", lambda *args, **kwargs: None)
        patch.setattr(Path, "rmdir", lambda *args: None)
        with pytest.raises(SystemExit):
            run(tmp_path)
    assert list(tmp_path.rglob("partial.*"))
    run(tmp_path, resume=True)
    assert training.Checkpoints(tmp_path / "checkpoints").steps() == [4, 2]
    assert not list(tmp_path.rglob("partial.*"))


def test_a_torn_checkpoint_of_the_run_is_removed(copy):
    """Killed while it wrote step 5; this run alone writes there, and its ledger says so."""
    ledger = copy / "checkpoints/run.json"
    facts = json.loads(ledger.read_text())
    facts["files"]["checkpoints/step-00000005.npz"] = []
    ledger.write_text(json.dumps(facts))
    for name in ("step-00000005.npz", "partial.step-00000005.npz"):
        (copy / "checkpoints" / name).write_text("torn")
    run(copy, resume=True, steps=6)
    found = {path.name for path in (copy / "checkpoints").glob("step-*.npz")}
    assert found == {"step-00000004.npz", "step-00000006.npz"}
    assert not list((copy / "checkpoints").glob("*partial*"))


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_resumed_run_writes_through_no_link(copy, tmp_path, make):
    """A folder of somebody else's, whose ledger is in order: its partial.* are other names of the user's files."""
    (tmp_path / "mine").mkdir()
    names = [*WRITTEN, *COMMAND, *(f"checkpoints/{name}" for name in ("run.json", "step-00000006.npz"))]
    for name in names:
        victim = tmp_path / "mine" / Path(name).name
        victim.write_text("precious")
        make(victim, (copy / name).with_name(f"partial.{Path(name).name}"))
    # A better epoch, so that best.weights.npz is written too.
    (copy / "metrics.csv").unlink()
    run(copy, resume=True, steps=6)
    for name in COMMAND:
        with training.Run(copy).files.writing(name) as path:
            path.write_text("this run's")
    assert {path.read_text() for path in (tmp_path / "mine").iterdir()} == {"precious"}
    assert not list(copy.rglob("partial.*"))
    assert all((copy / name).lstat().st_nlink == 1 and not (copy / name).is_symlink() for name in names)


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_a_folder_of_a_run_that_is_a_link_is_refused(copy, tmp_path, name):
    """It would lead to another run, whose old checkpoints would be pruned."""
    (copy / name).mkdir(exist_ok=True)
    shutil.move(copy / name, tmp_path / "mine")
    (copy / name).symlink_to(tmp_path / "mine")
    before = contents(tmp_path / "mine")
    with pytest.raises(training.RunError, match=f"{name} was not written by this run"):
        run(copy, resume=True, steps=6)
    assert contents(tmp_path / "mine") == before


def test_a_checkpoint_of_another_run_is_not_taken(copy, tmp_path):
    run(tmp_path / "other", steps=4)
    shutil.copy(tmp_path / "other/checkpoints/step-00000004.npz", copy / "checkpoints")
    with pytest.warns(UserWarning, match="step 4 .* of another run"):
        assert training.Checkpoints(copy / "checkpoints").newest()[0] == 2


class Fails(Exception):
    pass


def failing(step):
    raise Fails


@pytest.mark.parametrize("folder", ["new/runs/1", "there"])
def test_a_run_that_comes_to_nothing_leaves_nothing(tmp_path, folder):
    (tmp_path / "there").mkdir()
    before = contents(tmp_path)
    batches = points(0).map(lambda x, y: (x / 0, y))
    for train, error in ((failing, Fails), (lambda step: batches, training.NotFiniteError)):
        with pytest.raises(error):
            training.Run(tmp_path / folder).fit(tiny(), train, 4)
        assert contents(tmp_path) == before
    training.Run(tmp_path / folder)
    assert contents(tmp_path) == before


def test_places_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file/run", tmp_path / "file/run/1"):
        with pytest.raises(training.RunError, match="Nothing can be written in .* is not a folder"):
            run(folder)
    with pytest.raises(training.RunError, match="Nothing can be written in"):
        run("/proc/none/of/this")


def test_callbacks_of_a_recipe_keep_one_run_to_a_folder(tmp_path):
    """A second call of the same callbacks goes on; other callbacks are another run, which is refused."""
    recipe, model = training.recipe("finetune-pets", steps=8), tiny()
    arguments = {"steps_per_epoch": 2, "verbose": 0, "shuffle": False}
    callbacks = recipe.callbacks(tmp_path / "run", every=2)
    assert not (tmp_path / "run").exists()
    model.fit(points(0), callbacks=callbacks, **arguments)
    model.fit(points(0), callbacks=callbacks, **arguments)
    assert training.Checkpoints(tmp_path / "run/checkpoints").steps() == [4, 2]
    assert (tmp_path / "run/metrics.csv").read_text().count("\n") == 3
    before = contents(tmp_path)
    with pytest.raises(training.RunError, match="already contains a run"):
        model.fit(points(0), callbacks=recipe.callbacks(tmp_path / "run"), **arguments)
    assert contents(tmp_path) == before
    (tmp_path / "run/curves.png").write_text("precious")
    with pytest.raises(training.RunError, match=r"curves.png was not written by this run"):
        model.fit(points(0), callbacks=callbacks, **arguments)


@pytest.fixture
def handlers():
    """Puts back the handlers that a bare `fit` which failed has left."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_two_runs_that_begin_at_once_do_not_mix(tmp_path, handlers):
    first, second = (training.Run(tmp_path).callbacks() for _ in range(2))
    models = [tiny(), tiny()]
    for model, callbacks in zip(models, (first, second), strict=True):
        callbacks[0].set_model(model)
        callbacks[0].on_train_begin()
    arguments = {"steps_per_epoch": 2, "verbose": 0, "shuffle": False}
    models[0].fit(points(0), callbacks=first[1:], **arguments)
    before = contents(tmp_path)
    with pytest.raises(training.RunError, match="Another run has begun"):
        models[1].fit(points(0), callbacks=second[1:], **arguments)
    assert {path: data for path, data in contents(tmp_path).items() if "tensorboard" not in str(path)} == {
        path: data for path, data in before.items() if "tensorboard" not in str(path)
    }


def test_of_a_discarded_run_others_files_stay(copy):
    """Also one that a user has changed, and files in the run's folders; the rest goes, with the record."""
    mine = {"curves.png", "notes.txt", "mine.npz", "checkpoints/step-00000001.npz", "tensorboard/notes"}
    (copy / "tensorboard").mkdir(exist_ok=True)
    for name in (*mine, "tensorboard/events.out.tfevents.1"):
        (copy / name).write_text("precious")
    kept = {"config.json", "metrics.csv"}
    training.Run(copy).files.discard(kept=(".json", ".csv"))
    assert {path.as_posix() for path, data in contents(copy).items() if data} == mine | kept
    before = contents(copy)
    training.Run(copy).files.discard()  # no record says that anything is the run's
    assert contents(copy) == before


def test_the_model_of_a_run(copy, tmp_path, monkeypatch):
    assert model_of(str(copy)) == str(copy / "model.keras")
    monkeypatch.setenv("HOME", str(copy.parent))
    assert model_of(f"~/{copy.name}") == str(copy / "model.keras")
    for name in ("ViT-B/16", "hf://google/vit", str(tmp_path), "absent.npz", "x" * 5000):
        assert model_of(name) == name
    (copy / "model.keras").unlink()
    with pytest.raises(training.RunError, match=r"has not finished \(4 of 4 steps are saved\): resume it"):
        model_of(copy)
    (copy / "config.json").write_text("[")
    with pytest.raises(training.RunError, match=r"4 of all steps"):
        model_of(copy)

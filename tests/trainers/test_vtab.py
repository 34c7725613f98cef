"""VTAB-1k on TFDS's own builders with invented examples: killed and resumed, swept, and what is refused."""

import csv
import itertools
import json
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from forking import forked_commands
from invented_tfds import prepare
from PIL import Image

from keras_vit import data, training
from keras_vit.commands.finetune import print_results
from keras_vit.console import Console
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.evaluation import average_groups, find_published, vtab
from keras_vit.trainers import protocol
from keras_vit.trainers.protocol import run_vtab
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.run_folder import RunFolder


def test_tasks_and_groups_are_those_of_table_9():
    assert {f"vtab/{task}" for task in vtab.TASKS} == set(data.VTAB)
    assert [len(tasks) for tasks in vtab.VTAB_GROUPS.values()] == [7, 4, 8]
    for name, row in vtab.published_tasks().items():
        means = average_groups(row)
        (published,) = find_published(name.partition(" ")[0], "vtab")[:1] if "JFT" in name else [{"value": 72.72}]
        assert means["VTAB"] == pytest.approx(published["value"] / 100, abs=0.0005)
        assert list(means) == ["VTAB", "Natural", "Specialized", "Structured"]
        weighted = 7 * means["Natural"] + 4 * means["Specialized"] + 8 * means["Structured"]
        assert means["VTAB"] == pytest.approx(weighted / 19)
    assert vtab.find_tasks(["sNORB-Elev", "vtab/dtd"]) == ("dtd", "smallnorb_elevation")
    with pytest.raises(UnknownNameError, match="There is no task of VTAB 'eurosta'. Did you mean eurosat"):
        vtab.find_tasks(["eurosta"])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    prepare("eurosat/rgb", root, train=60)
    prepare("svhn_cropped", root, train=40, test=20)
    return root


@pytest.fixture
def local(prepared, monkeypatch):
    """TFDS's folder, without the network."""
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(prepared))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")


SMALL = {"steps": 3, "batch_size": 8, "image_size": 8}


@pytest.mark.slow
def test_a_trial_with_a_sweep(local, tiny, tmp_path, capsys, monkeypatch):
    """The sweep chooses one setting for all tasks: here neither task's own best."""
    accuracies = {"vtab/svhn": (0.9, 0.7, None, 0.0), "vtab/eurosat": (0.1, 0.6, 0.9, 0.2)}
    asked = []

    def search_fields(settings, recipe, folder, tell, every, grid):
        asked.append((settings.dataset, settings.split, folder))
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        scores = tuple(zip(points, accuracies[settings.dataset], strict=True))
        return training.SearchResult(recipe, points[0], scores)

    monkeypatch.setattr(protocol, "search_fields", search_fields)
    settings = Settings(model=tiny, dataset="vtab/caltech101", **SMALL)
    out = tmp_path / "out"
    found = run_vtab(settings, out, tasks=["svhn", "EuroSAT"], sweep_settings=True)
    assert asked == [(f"vtab/{task}", "train", out / "sweep" / task) for task in ("svhn", "eurosat")]
    rate = 0.01 * 8 / 512
    assert found["setting"] == {"learning_rate": pytest.approx(rate), "steps": 12}
    assert found["share_of_images"] == pytest.approx(12 * 8 / (2500 * 512))
    written = json.loads((out / "results.json").read_text())
    assert [mean for _, mean in written["found"]["sweep"]] == pytest.approx([0.5, 0.65, 0.45, 0.1])
    assert written["summary"] == found and not found["complete"]
    assert found["builders"]["eurosat"].startswith("eurosat/rgb/2.")
    for task in ("svhn", "eurosat"):
        config = json.loads((out / task / "config.json").read_text())
        assert config["total_steps"] == 12 and config["recipe"]["learning_rate"] == pytest.approx(rate)
        assert config["settings"]["split"] == "train+validation" and config["settings"]["test"]
        assert not [path for path in (out / task).iterdir() if path.suffix in (".npz", ".keras")]
    with open(out / "vtab.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["ViT-H/14 (JFT-300M)"] == "0.967" and float(rows[0]["accuracy"]) == found["accuracies"]["svhn"]
    assert np.asarray(Image.open(out / "vtab.png").convert("L")).std() > 5
    print_results(Console(), settings, found)
    said = capsys.readouterr().out
    assert "These are 2 of VTAB's 19 tasks, in all columns." in said and "of the images that the paper's" in said
    monkeypatch.setattr(protocol, "train", None)  # nothing is trained again
    monkeypatch.setattr(protocol, "search_fields", None)
    assert run_vtab(settings, out, tasks=["svhn", "EuroSAT"], sweep_settings=True) == found
    with pytest.raises(ConfigError, match="begun with steps=3. Received: steps=4"):
        other = Settings(model=tiny, dataset="vtab/caltech101", **SMALL | {"steps": 4})
        run_vtab(other, out, tasks=["svhn", "EuroSAT"], sweep_settings=True)


def test_tasks_without_data_are_all_named_before_any_is_trained(local, tiny, tmp_path, keras_vit):
    status, _, err = keras_vit("vtab", tiny, "--out", tmp_path / "out", "--tasks", "dtd,svhn,dmlab")
    assert status == 1 and "The data of dtd, dmlab are missing" in err and "Or name other tasks: svhn" in err
    assert not (tmp_path / "out").exists()


def test_a_users_files_stay(local, tiny, tmp_path, monkeypatch):
    """Among those of a task's run, and in place of the table or picture: then it is refused before any training."""

    def train(settings, folder, **_):
        for name in ("model.keras", "metrics.csv"):
            with RunFolder(folder).writing(name) as path:
                path.write_text("a run's")
        return SimpleNamespace(score=0.5)

    monkeypatch.setattr(protocol, "train", train)
    settings, out = Settings(model=tiny, dataset="vtab/caltech101", **SMALL), tmp_path / "out"
    (out / "svhn").mkdir(parents=True)
    for name in ("mine.npz", "notes.txt"):
        (out / "svhn" / name).write_text("precious")
    for name in ("vtab.csv", "vtab.png"):
        (out / name).write_text("precious")
        with pytest.raises(training.RunError, match=f"{name} was not written by keras-vit vtab, .* Move it away, or"):
            run_vtab(settings, out, tasks=["svhn"])
        assert (out / name).read_text() == "precious" and not (out / "results.json").exists()
        (out / name).unlink()
    run_vtab(settings, out, tasks=["svhn"])
    assert sorted(path.name for path in (out / "svhn").iterdir()) == ["metrics.csv", "mine.npz", "notes.txt"]
    run_vtab(settings, out, tasks=["svhn", "eurosat"])  # replaces what it has written
    table = (out / "vtab.csv").read_text()
    assert len(table.splitlines()) == 3
    (out / "vtab.csv").write_text(edited := table + "# mine\n")
    with pytest.raises(training.RunError, match="vtab.csv was not written by keras-vit vtab, or was changed since"):
        run_vtab(settings, out, tasks=["svhn"])
    assert (out / "vtab.csv").read_text() == edited


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_benchmark_goes_on_to_the_same_bits(prepared, tiny, tmp_path, monkeypatch):
    """Killed inside the second task, in a process of its own, again and again."""
    command = ["vtab", tiny, "--tasks", "svhn,eurosat", "--every", "2"]
    command += ["--steps", "12", "--batch-size", "8", "--image-size", "8"]
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    cut = tmp_path / "cut"
    with forked_commands() as run:
        assert run([*command, "--out", tmp_path / "whole"]) == 0
        for task in ("svhn", "eurosat"):
            assert run([*command, "--out", cut], cut / task / "checkpoints", "step-*") == -signal.SIGKILL
        assert run([*command, "--out", cut]) == 0
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "cut"))
    assert whole == resumed
    for task in ("svhn", "eurosat"):
        rows = [(tmp_path / name / task / "metrics.csv").read_text() for name in ("whole", "cut")]
        assert rows[0] == rows[1]

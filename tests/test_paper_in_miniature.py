"""examples/paper_in_miniature: what is done once, what its tables and plots say, and that the page says the same."""

import csv
import dataclasses
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from slowness import mark_but

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python -m examples.paper_in_miniature` has it

from examples.paper_in_miniature import __main__ as command  # noqa: E402
from examples.paper_in_miniature import configurations, plots, replicas, results, tables, trainings  # noqa: E402
from examples.paper_in_miniature.experiments import EXPERIMENTS, Experiment, Row, pretrain  # noqa: E402
from keras_vit import data, evaluation  # noqa: E402

RESULTS = ROOT / "examples" / "paper_in_miniature" / "results"
PAGE = ROOT / "docs" / "paper_in_miniature.md"
DATASETS = {"pretraining": "fashion_mnist:anywhere", "transfer": "digits"}


class Idle(trainings.Workshop):
    """A workshop that trains nothing and notes what it was asked for."""

    asked = []

    def train(self, wanted):
        self.asked.append(wanted)
        return self.folder / "none.keras", 1.5


@pytest.fixture
def workshop(tmp_path):
    return Idle(DATASETS, tmp_path / "weights")


def quick(tmp_path, name, *more):
    folders = ("--results", tmp_path / "results", "--weights", tmp_path / "weights", "--docs", tmp_path)
    command.main([*map(str, (name, "--quick", "--data", "digits", *folders, *more))])


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def rows_by_rate(*rates):
    return tuple(
        Row(f"rate {rate}", pretrain(configurations.VIT, learning_rate=rate), lambda *_: [{"accuracy": 0.5}])
        for rate in rates
    )


def test_what_is_done_is_not_done_again(workshop, tmp_path):
    """Stopped, continued with more seeds, and changed in one row: each training is asked for once."""
    path, silent = tmp_path / "table.csv", lambda *_, **__: None
    experiment = Experiment("", "", rows_by_rate(0.1, 0.2))
    for seeds, count in ((1, 1), (1, None), (2, None), (2, None)):
        results.run_experiment(experiment, path, workshop, seeds, count, tell=silent)
    asked = [(training.recipe.learning_rate, training.seed) for training in workshop.asked]
    assert asked == [(0.1, 0), (0.2, 0), (0.1, 1), (0.2, 1)]
    changed = Experiment("", "", (dataclasses.replace(rows_by_rate(0.3)[0], setting="rate 0.1"), experiment.rows[1]))
    results.run_experiment(changed, path, workshop, 1, tell=silent)
    assert len(workshop.asked) == 5 and workshop.asked[-1].recipe.learning_rate == 0.3
    assert len(read(path)) == 5
    # The line of the former 0.1 no longer counts.
    assert [line["learning_rate"] for line in tables.read_current(changed, path, workshop)] == ["0.2", "0.2", "0.3"]


def test_a_training_has_one_name_whatever_asks_for_it(workshop):
    by_name = {name: {row.setting: row.training for row in EXPERIMENTS[name].rows} for name in EXPERIMENTS}
    base = workshop.identify(pretrain(configurations.VIT))
    for name, setting in (("data-size", "ViT, 60,000 images"), ("positions", "1-D, stem"), ("attention", "ViT")):
        assert workshop.identify(by_name[name][setting]) == base
    keys = {
        workshop.identify(workshop.plan(row.training, seed)) for row in EXPERIMENTS["shape"].rows for seed in (0, 1)
    }
    assert len(keys) == 2 * len(EXPERIMENTS["shape"].rows)
    others = Idle({**DATASETS, "pretraining": "digits"}, workshop.folder)
    assert others.identify(pretrain(configurations.VIT)) != base


def test_settings_are_unique():
    for experiment in EXPERIMENTS.values():
        assert len({row.setting for row in experiment.rows}) == len(experiment.rows)


def test_the_models_compared_cost_the_same():
    models = (configurations.VIT, configurations.RESNET, configurations.HYBRID)
    flops = [evaluation.cost(config).flops for config in models]
    assert max(flops) < 1.005 * min(flops)


def test_means_and_deviations():
    rng = np.random.default_rng(0)
    values = rng.uniform(size=(3, 2))  # of a seed two lines each, as of an attention's heads
    lines = [{"setting": "a", "seed": str(i), "v": str(values[i, j])} for i, j in np.ndindex(3, 2)]
    found = tables.summarize(lines, ["setting"], "v", 0.01)["a",]
    np.testing.assert_allclose([found.mean, found.deviation], [100 * values.mean(), 100 * values.mean(1).std(ddof=1)])
    assert str(tables.Spread.of([50])) == "50.0" and str(tables.Spread.of([50, 52])) == "51.0 ± 1.4"


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    """A folder with a table for each experiment, of two seeds and random numbers."""
    folder, rng = tmp_path_factory.mktemp("invented"), np.random.default_rng(0)
    workshop = Idle(DATASETS, folder)
    shapes = {"attention": [("block", 2), ("head", 3)], "similarity": [("row", 7), ("column", 7)]}
    for name, experiment in EXPERIMENTS.items():
        axes = shapes.get(name, [])
        for row in experiment.rows:
            for seed in (0, 1):
                key = workshop.identify(workshop.plan(row.training, seed))
                for place in np.ndindex(*(count for _, count in axes)):
                    values = {column: rng.uniform() for column in experiment.columns}
                    values |= {axis: i for (axis, _), i in zip(axes, place, strict=True)}
                    if "similarities" in values:
                        values["similarities"] = " ".join(map(str, rng.uniform(size=49)))
                    line = {"setting": row.setting, "seed": seed, "training": key, **values}
                    results.add_lines(folder / f"{name}.csv", (*results.COMMON, *experiment.columns), [line])
    return folder, workshop


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_plot_shows_every_setting(name, invented):
    figure = plots.draw(name, *invented)
    drawn = {text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))}
    experiment = EXPERIMENTS[name]
    shown = {row.series or row.setting for row in experiment.rows}
    assert shown <= drawn
    assert plots.draw(name, invented[0] / "nowhere", invented[1]) is None


def test_the_results_on_a_page_are_filled_in(invented):
    folder, workshop = invented
    marked = [f"<!-- results {name} -->\nold\n<!-- end -->" for name in ("pooling", "attention")]
    page = "\nBetween.\n".join(["Before.", *marked, "After."])
    filled = tables.fill_in_results(page, folder, workshop)
    assert "old" not in filled and filled.startswith("Before.") and filled.endswith("After.")
    row = EXPERIMENTS["pooling"].rows[0].setting
    mine = [float(line["accuracy"]) for line in read(folder / "pooling.csv") if line["setting"] == row]
    mean, deviation = 100 * np.mean(mine), 100 * np.std(mine, ddof=1)
    assert f"| {row} | {mean:.1f} ± {deviation:.1f} | 2 |" in filled
    assert tables.fill_in_results(filled, folder, workshop) == filled
    assert "Not measured yet." in tables.fill_in_results(page, folder / "nowhere", workshop)


def test_a_table_of_a_program_of_its_own_is_shown_as_it_is(tmp_path):
    page = "<!-- results replicas -->\nold\n<!-- end -->"
    assert "Not measured yet." in tables.fill_in_results(page, tmp_path, None)
    (tmp_path / "replicas.csv").write_text("devices,layers\n2,a: int8; b: float16\n1,\n", "utf-8")
    rows = "| devices | layers |\n| --- | --- |\n| 2 | 2 |\n| 1 |  |"
    assert tables.fill_in_results(page, tmp_path, None) == page.replace("old", rows)


def test_the_page_says_what_the_committed_tables_say(workshop):
    text = PAGE.read_text("utf-8")
    assert tables.fill_in_results(text, RESULTS, workshop) == text
    for name in tables.OTHERS:
        assert f"examples.paper_in_miniature.{name} " in text and f"<!-- results {name} -->" in text
    for name in EXPERIMENTS:
        assert f"examples.paper_in_miniature {name}\n" in text
        assert f"<!-- results {name} -->" in text
        assert (f"({tables.IMAGES}/{name}.png)" in text) == (PAGE.parent / tables.IMAGES / f"{name}.png").exists()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_every_committed_line_is_of_the_settings_as_they_are(path, workshop):
    if path.stem not in tables.OTHERS:
        assert tables.read_current(EXPERIMENTS[path.stem], path, workshop) == results.read_lines(path)


@pytest.mark.slow
def test_a_training_is_measured_and_kept(tmp_path):
    """The accuracy in the table is what numpy finds with the kept weights, and a second command trains nothing."""
    quick(tmp_path, "positions", "--seeds", 1, "--rows", 1)
    (line,), (kept,) = read(tmp_path / "results" / "positions.csv"), (tmp_path / "weights").glob("*.keras")
    model, test = keras.saving.load_model(kept), data.load("digits", "test")
    images, labels, _ = next(iter(test.evaluation(test.num_examples, model.preprocessing)))
    right = np.mean(np.argmax(model.predict_on_batch(images), -1) == np.asarray(labels))
    assert float(line["accuracy"]) == pytest.approx(right, abs=1e-5)
    assert (line["images_seen"], line["updates"], kept.stem) == ("16", "2", line["training"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    quick(tmp_path, "positions", "--seeds", 1, "--rows", 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", mark_but(pytest.mark.long, EXPERIMENTS, "masked-patches", "positions"))
def test_every_experiment_runs(name, tmp_path_factory, capsys):
    folder = tmp_path_factory.getbasetemp() / "experiments"  # whose weights they share
    quick(folder, name, "--seeds", 1, "--rows", 4)
    lines, experiment = read(folder / "results" / f"{name}.csv"), EXPERIMENTS[name]
    assert {line["setting"] for line in lines} == {row.setting for row in experiment.rows[:4]}
    assert all(line[column] for line in lines for column in experiment.columns)
    quick(folder, "plan", "--seeds", 1)
    left = len(experiment.rows[4:])
    assert f"{left:3} of {len(experiment.rows):3} left" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
def test_replicas(tmp_path):
    """Killed twice on two devices, a run comes to the weights of one device, another seed to others."""
    table = tmp_path / "replicas.csv"
    arguments = ("--data", "digits", "--steps", 30, "--seeds", 2, "--out", tmp_path / "runs", "--table", table)
    replicas.main([*map(str, arguments)])
    alone, killed, other = read(table)
    assert (alone["killed at steps"], other["killed at steps"], other["seed"]) == ("", "", "1")
    first, second = map(int, killed["killed at steps"].split())
    assert killed["devices"] == "2" and 10 <= first <= second and second >= 20
    assert killed["accuracy"] == alone["accuracy"]
    assert float(killed["difference of weights"]) < 1e-4 < 0.1 < float(other["difference of weights"])

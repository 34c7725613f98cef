"""The plots of the results, from their tables alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples.paper_in_miniature.experiments import EXPERIMENTS, Experiment
from examples.paper_in_miniature.tables import PER_CENT, read_current, summarize
from examples.paper_in_miniature.trainings import Workshop
from keras_vit.files import write_whole
from keras_vit.inspection import plot_position_similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_axis(experiment, height=4):
    """A figure and its axis, under what the experiment is called and where the paper has it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, height), layout="constrained", dpi=90)
    axis = figure.subplots()
    axis.set_title(f"{experiment.title}\n({experiment.source})", fontsize=10)
    return figure, axis


def draw_series(experiment: Experiment, lines: Sequence[dict[str, str]]) -> "Figure":
    """A curve for each series, with the deviation over the seeds."""
    figure, axis = new_axis(experiment)
    spreads = summarize(lines, ["setting"], "accuracy", PER_CENT)
    for series in dict.fromkeys(row.series for row in experiment.rows):
        rows = [row for row in experiment.rows if row.series == series and (row.setting,) in spreads]
        rows.sort(key=lambda row: row.x)
        found = [spreads[row.setting,] for row in rows]
        means, deviations = [s.mean for s in found], [s.deviation for s in found]
        axis.errorbar([row.x for row in rows], means, deviations, marker="o", capsize=3, label=series)
    axis.set(xscale="log", xlabel=experiment.axis, ylabel="test accuracy (%)")
    axis.legend()
    return figure


def draw_dots(experiment: Experiment, lines: Sequence[dict[str, str]]) -> "Figure":
    """A dot for each setting, with the deviation over the seeds."""
    spreads = summarize(lines, ["setting"], "accuracy", PER_CENT)
    names = [row.setting for row in reversed(experiment.rows) if (row.setting,) in spreads]
    figure, axis = new_axis(experiment, height=1.2 + 0.35 * len(names))
    found = [spreads[name,] for name in names]
    means, deviations = [s.mean for s in found], [s.deviation for s in found]
    axis.errorbar(means, range(len(names)), xerr=deviations, fmt="o", capsize=3)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("test accuracy (%)")
    axis.grid(axis="x", alpha=0.3)
    return figure


def draw_distances(experiment: Experiment, lines: Sequence[dict[str, str]]) -> "Figure":
    """Figure 11: a dot for each head, over the depth; a column of dots for each model."""
    figure, axis = new_axis(experiment)
    for shift, row in enumerate(experiment.rows):
        own = [line for line in lines if line["setting"] == row.setting]
        places = [int(line["block"]) + 0.15 * shift for line in own]
        axis.scatter(places, [float(line["distance"]) for line in own], s=14, label=row.setting)
    axis.set(xlabel="block", ylabel="mean attention distance (pixels)")
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend()
    return figure


def draw_similarities(experiment: Experiment, lines: Sequence[dict[str, str]]) -> "Figure":
    """Figure 10: the maps of each setting's first seed, side by side."""
    maps = {}
    for row in experiment.rows:
        own = [line for line in lines if (line["setting"], line["seed"]) == (row.setting, "0")]
        if own:
            rows, columns = (1 + max(int(line[side]) for line in own) for side in ("row", "column"))
            values = [np.array(line["similarities"].split(), "float64") for line in own]
            maps[row.setting] = np.stack(values).reshape(rows, columns, rows, columns)
    return plot_position_similarity(maps)


def draw(name: str, results: Path, workshop: Workshop) -> "Figure | None":
    """The plot of an experiment; None where its table has no line yet."""
    experiment = EXPERIMENTS[name]
    lines = read_current(experiment, results / f"{name}.csv", workshop)
    if not lines:
        return None
    special = {"attention": draw_distances, "similarity": draw_similarities}
    return special.get(name, draw_series if experiment.axis else draw_dots)(experiment, lines)


def draw_all(results: Path, folder: Path, workshop: Workshop) -> None:
    """Draws every experiment that has results, as NAME.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in EXPERIMENTS:
        figure = draw(name, results, workshop)
        if figure:
            with write_whole(folder / f"{name}.png") as path:
                figure.savefig(path, metadata={"Software": None})

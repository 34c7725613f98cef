"""VTAB-1k (section 4.1, Table 9, Figure 2): its 19 tasks in three groups, their means, a table and a picture."""

import csv
import os
import statistics
from collections.abc import Mapping

import numpy as np

from keras_vit.errors import UnknownNameError, describe_unknown
from keras_vit.evaluation.paper import VTAB_GROUPS, VTAB_TASKS, published
from keras_vit.pages import write_figure

TASKS = {task: group for group, tasks in VTAB_GROUPS.items() for task in tasks}


def find_tasks(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """The tasks with these names, or with Table 9's, in its order; all tasks if there are no names.

    >>> find_tasks(["EuroSAT", "dtd"])
    ('dtd', 'eurosat')
    """
    known = {name.casefold(): task for task, short in VTAB_TASKS.items() for name in (task, short, f"vtab/{task}")}
    for name in names:
        if name.casefold() not in known:
            raise UnknownNameError(describe_unknown("task of VTAB", name, VTAB_TASKS))
    wanted = {known[name.casefold()] for name in names} or set(TASKS)
    return tuple(task for task in TASKS if task in wanted)


def average_groups(accuracies: Mapping[str, float]) -> dict[str, float]:
    """{"VTAB": mean over the tasks, group: mean over its tasks}; groups without a task are left out.

    Args:
        accuracies: {task: value}. The mean over all 19 counts each task once, as in Table 2.

    >>> average_groups({"dtd": 0.5, "svhn": 0.75, "eurosat": 1.0})
    {'VTAB': 0.75, 'Natural': 0.625, 'Specialized': 1.0}
    """
    values = {"VTAB": list(accuracies.values())}
    values |= {
        group: [accuracies[task] for task in tasks if task in accuracies] for group, tasks in VTAB_GROUPS.items()
    }
    return {group: statistics.fmean(found) for group, found in values.items() if found}


def published_tasks() -> dict[str, dict[str, float]]:
    """Table 9 as {"ViT-H/14 (JFT-300M)": {task: accuracy in [0, 1]}}.

    >>> published_tasks()["ViT-H/14 (JFT-300M)"]["eurosat"]
    0.967
    """
    rows = {f"{row['model']} ({row['pre-training']})": row for row in published(9)}
    return {name: {task: round(row[VTAB_TASKS[task]] / 100, 4) for task in TASKS} for name, row in rows.items()}


def write_table(accuracies: Mapping[str, float], path: str | os.PathLike) -> None:
    """Writes a CSV: a line per task with its group and Table 9's name, this accuracy and the published ones."""
    others = published_tasks()
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "task", "name", "accuracy", *others])
        for task, value in accuracies.items():
            writer.writerow([TASKS[task], task, VTAB_TASKS[task], value, *(row[task] for row in others.values())])


def draw_groups(accuracies: Mapping[str, float], name: str, path: str | os.PathLike) -> None:
    """Writes a PNG of Figure 2: bars of VTAB and its groups, this model's beside those of Table 9.

    Each bar is the mean over the same tasks: those in `accuracies`.

    Args:
        accuracies: {task: in [0, 1]}.
        name: of the model, for the legend.

    >>> draw_groups({"dtd": 0.5, "eurosat": 0.9}, "ViT-B/16", "vtab.png")
    """
    series = {name: average_groups(accuracies)}
    for other, row in published_tasks().items():
        series[f"{other}, Table 9"] = average_groups({task: row[task] for task in accuracies})
    groups = list(series[name])
    width = 0.8 / len(series)
    with write_figure(path, 2.6 * len(groups) + 1, 4) as figure:
        for axis, group in zip(np.atleast_1d(figure.subplots(1, len(groups))), groups, strict=True):
            heights = [100 * row[group] for row in series.values()]
            for i, (label, height) in enumerate(zip(series, heights, strict=True)):
                bars = axis.bar(i * width, height, width, label=label, color=f"C{i}")
                axis.bar_label(bars, fmt="%.1f", fontsize=8)
            axis.set(title=group, xticks=[], ylim=(0, 105))
        figure.supylabel("accuracy, %")
        handles, labels = axis.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)

"""VTAB-1k with one setting for all tasks (Appendix B.1.1), or with the setting that a sweep finds on the 200."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import training
from keras_vit.console import say
from keras_vit.data import DataError, data_errors, load
from keras_vit.data.datasets.builders import full_name
from keras_vit.errors import ConfigError
from keras_vit.evaluation import vtab
from keras_vit.evaluation.paper import VTAB_TASKS, published
from keras_vit.files import write_whole
from keras_vit.trainers.plan import recipe_for, resolve
from keras_vit.trainers.results import ResultsFile
from keras_vit.trainers.search import describe_point, search_fields
from keras_vit.trainers.settings import Settings
from keras_vit.trainers.train import train
from keras_vit.training.runs.folder import FOLDERS, hold_folder
from keras_vit.training.strategies import count_workers

TABLE, PICTURE, SWEEP = "vtab.csv", "vtab.png", "sweep"
# B.1.1 sweeps two rates and two schedules, and names only those it chose, 0.01 and 2,500 steps: times these.
RATES, SCHEDULES = (1, 10), (1, 4)


def settings_of(task, settings):
    return dataclasses.replace(settings, dataset=f"vtab/{task}")


def find_builders(tasks):
    """{task: TFDS's builder with its version}; refuses, all in one sentence, the tasks whose data are not there."""
    builders, missing = {}, {}
    for task in tasks:
        try:
            builders[task] = full_name(f"vtab/{task}")
        except DataError as error:
            missing[task] = str(error)
    if missing:
        raise DataError(
            f"The data of {', '.join(missing)} are missing. {next(iter(missing.values()))} Or name other tasks: "
            f"{', '.join(builders) or '...'}."
        )
    return builders


def sweep(settings, tasks, out, tell, every):
    """The rate and schedule whose mean over the tasks is highest on their 200 development examples, and all means."""
    strategy = training.strategy(settings.strategy)
    scores = {}
    with data_errors(), strategy.scope():
        for task in tasks:
            own = settings_of(task, settings)
            recipe = recipe_for(own, load(own.dataset, "train"), strategy.num_replicas_in_sync)
            grid = {
                "learning_rate": [rate * recipe.learning_rate for rate in RATES],
                "steps": [schedule * recipe.total_steps for schedule in SCHEDULES],
            }
            tell(f"{VTAB_TASKS[task]}:")
            for point, accuracy in search_fields(own, recipe, out / SWEEP / task, tell, every, grid).scores:
                scores.setdefault(tuple(point.items()), []).append(accuracy or 0.0)
    means = [[dict(point), float(np.mean(values))] for point, values in scores.items()]
    return max(means, key=lambda pair: pair[1])[0], means


def remove_weights(folder):
    """Leaves of a task's run what it measured: config.json, metrics.csv and the pictures."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in FOLDERS:
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix in (".npz", ".keras"):
            path.unlink(missing_ok=True)


def run_vtab(
    settings: Settings,
    out: str | os.PathLike,
    *,
    tasks: Sequence[str] = (),
    sweep_settings: bool = False,
    every: int = 200,
    tell: Callable[[str], object] = say,
    progress: Callable | None = None,
) -> dict[str, Any]:
    """Fine-tunes a model on the 1,000 examples of each of VTAB's tasks and tests it once.

    `out` receives results.json, vtab.csv, vtab.png (Figure 2), and a folder for each task with its metrics and
    mistakes, without weights. Called again, it goes on where it was killed, and adds the tasks that are new.

    Args:
        settings: of every task; the dataset and splits are VTAB's.
        out: folder.
        tasks: names of `keras_vit.data.VTAB` or of Table 9; none for all 19.
        sweep_settings: first choose rate and schedule, one for all tasks, on the 200 development examples of each.
        every: steps between checkpoints.
        tell, progress: as in `train`.

    Returns:
        {"accuracies": {task: in [0, 1]}, "means": {"VTAB", "Natural", ...}, "complete": whether all 19 tasks were
        trained as long as the paper's, "builders": {task: TFDS's name and version}, "setting": what the sweep found}.

    Raises:
        KerasVitError: for anything that cannot be trained.

    >>> run_vtab(Settings(model="ViT-B/16", dataset="vtab/caltech101"), "runs/vtab")["means"]["VTAB"]  # doctest: +SKIP
    0.727
    """
    out = Path(out)
    chosen = vtab.find_tasks(list(tasks))
    if count_workers() > 1:
        raise ConfigError("VTAB trains one model after the other in one process: not on several workers.")
    settings = dataclasses.replace(settings, dataset="vtab/caltech101", split="train+validation", test=True)
    builders = find_builders(chosen)
    settings = resolve(settings)
    with hold_folder(out):
        asked = {"benchmark": "VTAB-1k", "settings": settings.as_recorded(), "sweep": sweep_settings}
        if sweep_settings:
            asked["swept_on"] = list(chosen)
        results = ResultsFile(out, asked, resume=True)
        if sweep_settings and results.find("setting") is None:
            best, means = sweep(dataclasses.replace(settings, split="train"), chosen, out, tell, every)
            tell(f"Best over {len(chosen)} tasks: {describe_point(best)}.")
            results.add(setting=best, sweep=means)
        for task in chosen:
            if results.find(task) is None:
                tell(f"{VTAB_TASKS[task]} ({vtab.TASKS[task]}):")
                own = settings_of(task, settings)
                begun, found = (out / task).exists(), results.find("setting")
                result = train(own, out / task, resume=begun, every=every, tell=tell, progress=progress, found=found)
                results.add(**{task: {"accuracy": result.score, "builder": builders[task]}})
            remove_weights(out / task)
        summary = summarize(settings, results, chosen)
        write_results(results, summary, settings, out)
    return summary


def summarize(settings, results, chosen):
    done = {task: results.find(task) for task in chosen}
    accuracies = {task: entry["accuracy"] for task, entry in done.items()}
    paper = training.RECIPES["finetune-vtab"]
    seen = recipe_for(settings_of(chosen[0], settings), load(f"vtab/{chosen[0]}", "train")).images_seen
    return {
        "accuracies": accuracies,
        "means": vtab.average_groups(accuracies),
        "complete": len(accuracies) == len(vtab.TASKS) and seen >= paper.images_seen,
        "share_of_images": seen / paper.images_seen,
        "builders": {task: entry["builder"] for task, entry in done.items()},
        "setting": results.find("setting"),
    }


def write_results(results, summary, settings, out):
    results.write(summary=summary, published=published(9))
    with write_whole(out / TABLE) as path:
        vtab.write_table(summary["accuracies"], path)
    with write_whole(out / PICTURE) as path:
        vtab.draw_groups(summary["accuracies"], settings.model, path)

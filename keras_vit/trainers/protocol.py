"""Appendix B.1.1's procedures of many trainings: the paper's protocol, and VTAB-1k with one setting for all tasks.

The protocol searches on the development split, retrains on all, tests once, with several seeds. VTAB takes the given
setting, or finds one by a sweep on each task's 200 development examples.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import numpy as np

from keras_vit import data, training
from keras_vit.console import say
from keras_vit.data import DataError
from keras_vit.data.datasets.builders import full_name
from keras_vit.errors import COUNT, ConfigError, RunError, require_within
from keras_vit.evaluation import vtab
from keras_vit.evaluation.paper import VTAB_TASKS, find_published, published
from keras_vit.files import local_path
from keras_vit.models.variants import VARIANTS
from keras_vit.owned import OwnFolder
from keras_vit.trainers.choices import EVERY
from keras_vit.trainers.plan import load_splits, recipe_for, require_outside_dataset, resolve
from keras_vit.trainers.search import describe_point, make_grid, search_fields
from keras_vit.trainers.settings import Settings, parse_search
from keras_vit.trainers.train import train
from keras_vit.training.grid import ResultsFile
from keras_vit.training.runs.run_folder import RunFolder, hold_folder
from keras_vit.training.strategies import count_workers

RESULTS = "results.json"
HYPER_RULE = "search-hyperrule"  # folder
ALL: Literal["train+validation"] = "train+validation"  # the split of the final runs
TABLE, PICTURE, SWEEP = "vtab.csv", "vtab.png", "sweep"
MEASUREMENTS = (".json", ".csv", ".png")  # the files of a task's run that stay
# Factors: B.1.1 sweeps two rates and two schedules, but names only those chosen, 0.01 and 2,500 steps.
RATES, SCHEDULES = (1, 10), (1, 4)


def require_one_worker():
    if count_workers() > 1:
        raise ConfigError("This trains several models in turn and needs a single worker. Unset TF_CONFIG.")


def require_protocol(settings, seeds):
    """Refuses settings that contradict the paper's protocol, before anything is trained."""
    require_within(COUNT, seeds=seeds)
    if settings.pretrain:
        raise ConfigError("The paper's protocol fine-tunes a model. Received: pretrain=True.")
    if settings.learning_rate is not None:
        raise ConfigError("The paper's protocol searches for the learning rate. Leave learning_rate out.")
    require_one_worker()
    for split, what in (("test", "tests once, on examples that chose nothing"), ("validation", "searches on others")):
        try:
            data.load(settings.dataset, split)
        except DataError as error:
            raise DataError(f"The paper's protocol {what}; {settings.dataset} has no such split: {error}") from error
    if settings.without is not None:
        data.load(settings.dataset, ALL, without=settings.without)  # refuses a list of another split


def rule_settings(settings):
    return dataclasses.replace(settings, recipe="bit-hyperrule", search=None, grid_search=False)


def hyper_rule_for(settings, strategy):
    """The BiT-HyperRule, for ResNets, as B.1.1 tries it too; None for other models, or if a recipe was chosen."""
    known = VARIANTS.get(settings.variant)
    if settings.recipe is not None or known is None or known.family != "ResNet":
        return None
    return recipe_for(rule_settings(settings), load_splits(settings).train, strategy.num_replicas_in_sync)


def find_settings(settings, out, tell, every):
    """(the settings of the final runs, the fields of the recipe that the search found, its scores)."""
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    recipe = recipe_for(settings, load_splits(settings).train, strategy.num_replicas_in_sync)  # of the final runs
    rates_given = "learning_rate" in parse_search(settings.search or [])
    usual = bool(recipe.learning_rates) and not rates_given
    wanted = dataclasses.replace(settings, grid_search=settings.grid_search or usual)
    grid = make_grid(wanted, recipe) if wanted.searches else {}
    scores = []
    with data.data_errors(), strategy.scope():
        best, fields = None, {name: values[0] for name, values in grid.items()}
        if any(len(values) > 1 for values in grid.values()):
            best = search_fields(wanted, recipe, out / "search", tell, every, grid)
            fields = best.best
            scores += [[recipe.name, *score] for score in best.scores]
        rule = hyper_rule_for(settings, strategy)
        if rule is not None and best is not None:
            own = {"learning_rate": [rule.learning_rate]}
            tried = search_fields(rule_settings(settings), rule, out / HYPER_RULE, tell, every, own)
            scores += [[rule.name, *score] for score in tried.scores]
            if tried.accuracy > best.accuracy:
                return rule_settings(settings), tried.best, scores
    return settings, fields, scores


def summarize_seeds(settings, accuracies):
    return {
        "accuracies": accuracies,
        "mean": float(np.mean(accuracies)),
        "deviation": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else None,
        "published": find_published(settings.variant, settings.dataset),
    }


def run_protocol(
    settings: Settings,
    out: str | os.PathLike,
    *,
    seeds: int = 3,
    resume: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] = say,
    progress: Callable | None = None,
) -> dict[str, Any]:
    """Searches on the development split, trains on all training examples with several seeds, tests each run once.

    ResNets also try the BiT-HyperRule, and the better of the two on the development split is taken. `out` receives
    search/ with the scores, seed-0/, seed-1/ and so on, each a run, and results.json.

    Args:
        settings: what to fine-tune, on what, and how; split, test and learning rate are the protocol's.
        out: folder.
        seeds: number of runs, with the seeds settings.seed, settings.seed + 1, ...
        resume: whether to continue a killed protocol in that folder; the results are the same to the bit.
        every: steps between checkpoints.
        tell, progress: as in `train`.

    Returns:
        The contents of results.json: "accuracies", "mean" and "deviation" (None for one seed) in [0, 1], "scores" of
        the search, and the "published" rows of the paper.

    Raises:
        KerasVitError: for anything that cannot be trained.

    >>> run_protocol(Settings(model="ViT-B/16", dataset="cifar10"), "runs/paper")["mean"]  # doctest: +SKIP
    0.989
    """
    out = local_path(out)
    require_outside_dataset(out, settings.dataset)
    settings = resolve(dataclasses.replace(settings, split=ALL, test=False))
    require_protocol(settings, seeds)
    with hold_folder(out):
        if (out / RESULTS).exists() and not resume:
            raise RunError(f"{out} already has results. Resume them, or choose another folder.")
        asked = {"protocol": "paper", "settings": settings.as_recorded(), "digests": settings.digests()}
        results = ResultsFile(out / RESULTS, asked)
        if results.found.get("fields") is None:
            chosen, fields, scores = find_settings(settings, out, tell, every)
            results.add(recipe=chosen.recipe, fields=fields, scores=scores)
        accuracies = []
        for number in range(seeds):
            name = f"seed-{number}"
            if results.found.get(name) is None:
                tell(f"Run {number + 1} of {seeds}, on all training images:")
                own = dataclasses.replace(
                    settings,
                    recipe=results.found.get("recipe"),
                    test=True,
                    seed=settings.seed + number,
                    grid_search=False,
                    search=None,
                )
                begun, fields = (out / name).exists(), results.found.get("fields")
                result = train(own, out / name, resume=begun, every=every, tell=tell, progress=progress, found=fields)
                results.add(**{name: result.score})
            accuracies.append(results.found.get(name))
        summary = summarize_seeds(settings, accuracies)
        results.write(**summary)
    return {**results.found, **summary}


def settings_of(task, settings):
    return dataclasses.replace(settings, dataset=f"vtab/{task}")


def find_builders(tasks):
    """{task: TFDS's builder with its version}; one error names all tasks with missing data."""
    builders, missing = {}, {}
    for task in tasks:
        try:
            builders[task] = full_name(f"vtab/{task}")
        except DataError as error:
            missing[task] = str(error)
    if missing:
        others = f" Or name other tasks: {', '.join(builders)}." if builders else ""
        raise DataError(f"The data of {', '.join(missing)} are missing. {next(iter(missing.values()))}{others}")
    return builders


def sweep(settings, tasks, out, tell, every):
    """The rate and schedule with the highest mean over the tasks' 200 development examples, and all means."""
    strategy = training.strategy(settings.strategy)
    scores = {}
    with data.data_errors(), strategy.scope():
        for task in tasks:
            own = settings_of(task, settings)
            recipe = recipe_for(own, data.load(own.dataset, "train"), strategy.num_replicas_in_sync)
            grid = {
                "learning_rate": [rate * recipe.learning_rate for rate in RATES],
                "steps": [schedule * recipe.total_steps for schedule in SCHEDULES],
            }
            tell(f"{VTAB_TASKS[task]}:")
            for point, accuracy in search_fields(own, recipe, out / SWEEP / task, tell, every, grid).scores:
                scores.setdefault(tuple(point.items()), []).append(accuracy or 0.0)
    means = [[dict(point), float(np.mean(values))] for point, values in scores.items()]
    return dict(max(scores, key=lambda point: np.mean(scores[point]))), means


class VtabFolder(OwnFolder):
    """The folder of vtab.csv and vtab.png, whose record is part of results.json."""

    record, writer, error = RESULTS, "keras-vit vtab", RunError
    names = re.compile(r"vtab\.(csv|png)")

    def __init__(self, results):
        super().__init__(results.path.parent)
        self.results = results

    def read(self):
        files = self.results.found.get("files")
        return None if files is None else {"files": files}

    def save(self, files):
        self.results.add(files=files)


def summarize_tasks(settings, results, chosen):
    done = {task: results.found.get(task) for task in chosen}
    accuracies = {task: entry["accuracy"] for task, entry in done.items()}
    paper = training.RECIPES["finetune-vtab"]
    setting = results.found.get("setting")
    recipe = recipe_for(settings_of(chosen[0], settings), data.load(f"vtab/{chosen[0]}", "train"))
    seen = recipe.with_(**(setting or {})).images_seen
    return {
        "accuracies": accuracies,
        "means": vtab.average_groups(accuracies),
        "complete": len(accuracies) == len(vtab.TASKS) and seen >= paper.images_seen,
        "share_of_images": seen / paper.images_seen,
        "builders": {task: entry["builder"] for task, entry in done.items()},
        "setting": setting,
    }


def write_results(folder, summary, settings):
    with folder.writing(TABLE) as path:
        vtab.write_table(summary["accuracies"], path)
    with folder.writing(PICTURE) as path:
        vtab.draw_groups(summary["accuracies"], settings.model, path)
    folder.results.write(summary=summary, published=published(9))


def run_vtab(
    settings: Settings,
    out: str | os.PathLike,
    *,
    tasks: Sequence[str] = (),
    sweep_settings: bool = False,
    every: int = EVERY,
    tell: Callable[[str], object] = say,
    progress: Callable | None = None,
) -> dict[str, Any]:
    """Fine-tunes a model on the 1,000 examples of each of VTAB's tasks and tests it once.

    `out` receives results.json, vtab.csv, vtab.png (Figure 2), and a folder for each task with its metrics and
    mistakes, without weights. Called again, it continues after a kill, and adds new tasks.

    Args:
        settings: those of every task; dataset and splits are VTAB's.
        out: folder.
        tasks: names of `keras_vit.data.VTAB` or of Table 9; none for all 19.
        sweep_settings: whether to first choose one rate and schedule for all tasks, on their 200 development examples.
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
    out = local_path(out)
    chosen = vtab.find_tasks(list(tasks))
    require_one_worker()
    settings = dataclasses.replace(settings, dataset="vtab/caltech101", split=ALL, test=True)
    builders = find_builders(chosen)
    settings = resolve(settings)
    with hold_folder(out):
        asked = {"benchmark": "VTAB-1k", "settings": settings.as_recorded(), "sweep": sweep_settings}
        if sweep_settings:
            asked["swept_on"] = list(chosen)
        results = ResultsFile(out / RESULTS, asked)
        folder = VtabFolder(results)
        folder.require_own([TABLE, PICTURE])
        if sweep_settings and results.found.get("setting") is None:
            best, means = sweep(dataclasses.replace(settings, split="train"), chosen, out, tell, every)
            tell(f"Best over {len(chosen)} tasks: {describe_point(best)}.")
            results.add(setting=best, sweep=means)
        for task in chosen:
            if results.found.get(task) is None:
                tell(f"{VTAB_TASKS[task]} ({vtab.TASKS[task]}):")
                own = settings_of(task, settings)
                begun, found = (out / task).exists(), results.found.get("setting")
                result = train(own, out / task, resume=begun, every=every, tell=tell, progress=progress, found=found)
                results.add(**{task: {"accuracy": result.score, "builder": builders[task]}})
            RunFolder(out / task).discard(kept=MEASUREMENTS)
        summary = summarize_tasks(settings, results, chosen)
        write_results(folder, summary, settings)
    return summary

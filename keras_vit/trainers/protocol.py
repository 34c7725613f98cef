"""The paper's protocol (Appendix B.1.1): search on the development split, retrain on all, test once, several seeds."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from keras_vit import data, training
from keras_vit.console import say
from keras_vit.data import DataError
from keras_vit.errors import ConfigError
from keras_vit.evaluation.paper import find_published
from keras_vit.models.variants import VARIANTS
from keras_vit.trainers.plan import recipe_for, require_outside_dataset, resolve
from keras_vit.trainers.results import ResultsFile
from keras_vit.trainers.search import load_examples, make_grid, search_fields
from keras_vit.trainers.settings import Settings, parse_search
from keras_vit.trainers.train import SEARCH, train
from keras_vit.training.errors import require_counts
from keras_vit.training.runs.folder import hold_folder
from keras_vit.training.strategies import count_workers

HYPER_RULE = "search-hyperrule"  # folder
ALL: Literal["train+validation"] = "train+validation"  # the split of the final runs


def require_protocol(settings, seeds):
    """Refuses what is not the paper's protocol, before anything is trained."""
    require_counts(seeds=seeds)
    if settings.pretrain:
        raise ConfigError("The paper's protocol fine-tunes a model. Received: pretrain=True.")
    if settings.learning_rate is not None:
        raise ConfigError("The paper's protocol searches for the learning rate. Leave learning_rate out.")
    if count_workers() > 1:
        raise ConfigError(
            "The paper's protocol trains one model after the other in one process: not on several workers."
        )
    for split, what in (("test", "tests once, on examples that chose nothing"), ("validation", "searches on a split")):
        try:
            data.load(settings.dataset, split)
        except DataError as error:
            raise DataError(f"The paper's protocol {what}, which {settings.dataset} does not have: {error}") from error
    if settings.without is not None:
        data.load(settings.dataset, ALL, without=settings.without)  # refuses a list of another split


def find_settings(settings, out, tell, every):
    """(the settings of the final runs, the fields of the recipe that the search found, its scores)."""
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    recipe = recipe_for(settings, load_examples(settings)[0], strategy.num_replicas_in_sync)
    rates_given = "learning_rate" in parse_search(settings.search or [])
    wanted = dataclasses.replace(settings, grid_search=bool(recipe.learning_rates) and not rates_given)
    grid = make_grid(wanted, recipe) if wanted.searches else {}
    scores = []
    with data.data_errors(), strategy.scope():
        best = None
        if sum(map(len, grid.values())) > len(grid):
            best = search_fields(wanted, recipe, out / SEARCH, tell, every, grid)
            scores += [[recipe.name, *score] for score in best.scores]
        rule = hyper_rule_for(settings, strategy)
        if rule is not None and best is not None:
            own = {"learning_rate": [rule.learning_rate]}
            tried = search_fields(rule_settings(settings), rule, out / HYPER_RULE, tell, every, own)
            scores += [[rule.name, *score] for score in tried.scores]
            if tried.accuracy > best.accuracy:
                return rule_settings(settings), tried.best, scores
    return settings, best.best if best else {}, scores


def rule_settings(settings):
    return dataclasses.replace(settings, recipe="bit-hyperrule", search=None, grid_search=False)


def hyper_rule_for(settings, strategy):
    """The BiT-HyperRule, which B.1.1 also tries for ResNets; None for other models, or where a recipe was chosen."""
    known = VARIANTS.get(settings.model.partition(":")[0])
    if settings.recipe is not None or known is None or known.family != "ResNet":
        return None
    return recipe_for(rule_settings(settings), load_examples(settings)[0], strategy.num_replicas_in_sync)


def run_protocol(
    settings: Settings,
    out: str | os.PathLike,
    *,
    seeds: int = 3,
    resume: bool = False,
    every: int = 200,
    tell: Callable[[str], object] = say,
    progress: Callable | None = None,
) -> dict[str, Any]:
    """Searches on the development split, trains on all training examples with several seeds, tests each run once.

    ResNets also try the BiT-HyperRule, and the better of the two on the development split is taken. `out` receives
    search/ with the scores, seed-0/, seed-1/ and so on, each a run, and results.json.

    Args:
        settings: what to fine-tune, on what, and how; split, test and learning rate are the protocol's.
        out: folder.
        seeds: runs, of the seeds settings.seed, settings.seed + 1, ...
        resume: go on where a protocol in that folder was killed; it ends with the same bits.
        every: steps between checkpoints.
        tell, progress: as in `train`.

    Returns:
        What results.json says: "accuracies", "mean" and "deviation" (None for one seed) in [0, 1], "scores" of the
        search, "published" rows of the paper.

    Raises:
        KerasVitError: for anything that cannot be trained.

    >>> run_protocol(Settings(model="ViT-B/16", dataset="cifar10"), "runs/paper")["mean"]  # doctest: +SKIP
    0.989
    """
    out = Path(out)
    require_outside_dataset(out, settings.dataset)
    settings = resolve(dataclasses.replace(settings, split=ALL, test=False))
    require_protocol(settings, seeds)
    with hold_folder(out):
        results = ResultsFile(out, {"protocol": "paper", "settings": settings.as_recorded()}, resume)
        if results.find("fields") is None:
            chosen, fields, scores = find_settings(settings, out, tell, every)
            results.add(recipe=chosen.recipe, fields=fields, scores=scores)
        accuracies = []
        for number in range(seeds):
            name = f"seed-{number}"
            if results.find(name) is None:
                tell(f"Run {number + 1} of {seeds}, on all training images:")
                found = train(
                    final_settings(settings, results, number),
                    out / name,
                    resume=(out / name).exists(),
                    every=every,
                    tell=tell,
                    progress=progress,
                    found=results.find("fields"),
                )
                results.add(**{name: found.score})
            accuracies.append(results.find(name))
        summary = summarize(settings, accuracies)
        results.write(**summary)
    return {**results.facts["found"], **summary}


def final_settings(settings, results, number):
    recipe = results.find("recipe")
    return dataclasses.replace(
        settings,
        recipe=recipe,
        split=ALL,
        test=True,
        seed=settings.seed + number,
        grid_search=False,
        search=None,
    )


def summarize(settings, accuracies):
    return {
        "accuracies": accuracies,
        "mean": float(np.mean(accuracies)),
        "deviation": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else None,
        "published": find_published(settings.model.partition(":")[0], settings.dataset),
    }

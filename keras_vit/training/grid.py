"""Search over the fields of a recipe: Appendix B.1.1's learning rates, section 4.3's decay, dropout and smoothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from keras_vit.distribution.replicas import is_chief
from keras_vit.errors import ConfigError, NotFiniteError, RunError, UnknownNameError, describe_unknown
from keras_vit.files import local_path, read_record, write_whole
from keras_vit.training.recipes import SEARCHABLE
from keras_vit.training.runs.run import Run
from keras_vit.training.runs.run_folder import RunFolder, require_written

if TYPE_CHECKING:
    import os

    import tensorflow as tf

    from keras_vit.training.recipes import Recipe

SCORES = "scores.json"  # {...the question, "points": [{field: value}], "found": {"point-0": accuracy}}


def describe_difference(path, name, before, now):
    if isinstance(before, dict) and isinstance(now, dict):
        name = next(key for key in (*now, *before) if before.get(key) != now.get(key))
        before, now = before.get(name), now.get(name)
    return (
        f"The results in {path.parent} were begun with {name}={before!r}. Received: {name}={now!r}. Continue with the "
        "same settings, or choose another folder."
    )


class ResultsFile:
    """A file of results, and of the settings that they belong to: killed trainings continue after the last result.

    Args:
        path: the file; it is made with the first result, and so is its folder.
        asked: the settings, of JSON's types; they must be the same for all results of a file.

    >>> results = ResultsFile("results.json", {"seeds": 2})
    >>> results.add(first=0.93)
    >>> ResultsFile("results.json", {"seeds": 2}).found["first"]
    0.93
    """

    def __init__(self, path, asked):
        self.path = local_path(path)
        self.asked = json.loads(json.dumps(asked))
        self.found = {}
        if self.path.exists():
            self.found = self.read()

    def read(self):
        fields = {**dict.fromkeys(self.asked, object), "found": dict}
        what, advice = "the record of these results", "Choose another folder, or remove that file to begin anew."
        before = read_record(self.path, fields, what=what, error=RunError, advice=advice)
        for name, value in self.asked.items():
            if before[name] != value:
                raise ConfigError(describe_difference(self.path, name, before[name], value))
        return before["found"]

    def add(self, **parts):
        self.found |= parts
        self.write()

    def write(self, **more):
        with require_written(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with write_whole(self.path) as unfinished:
                text = json.dumps({**self.asked, "found": self.found, **more}, indent=1)
                unfinished.write_text(text + "\n", "utf-8")


class Trial(NamedTuple):
    """The model, training batches and development batches of one point of a search.

    Args:
        model: new, made by the point's recipe (`**recipe.model_arguments`), and not compiled.
        train: function from a step to the tf.data.Dataset of the batches from that step on, as `Run.fit` takes it.
        development: batches for `evaluate`.
    """

    model: keras.Model
    train: Callable[[int], tf.data.Dataset]
    development: tf.data.Dataset


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        recipe: the recipe with the best fields.
        best: these fields, {name: value}.
        scores: ({name: value}, accuracy in [0, 1]) of every point; the accuracy is None if the training diverged.
    """

    recipe: Recipe
    best: dict[str, Any]
    scores: tuple[tuple[dict[str, Any], float | None], ...]

    @property
    def accuracy(self) -> float:
        """The accuracy of the best point."""
        return max(accuracy for point, accuracy in self.scores if point == self.best and accuracy is not None)


def make_points(recipe, grid):
    """[{field: value}] of all combinations of the grid's values."""
    for name, values in grid.items():
        if name not in SEARCHABLE:
            raise UnknownNameError(describe_unknown("field of a recipe to search", name, SEARCHABLE))
        if not values:
            raise ConfigError(f"There is nothing to try for {name}: give at least one value.")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*map(dict.fromkeys, grid.values()))]
    for point in points:
        recipe.with_(**point)  # raises an error for invalid values
    return points


def choose_best(scores):
    """The point of the highest accuracy; among equal ones the last, so the highest of ascending rates."""
    known = [(accuracy, point) for point, accuracy in scores if accuracy is not None]
    if not known:
        raise ConfigError("The training diverged at every point of the search. Try smaller learning rates.")
    return max(reversed(known), key=lambda pair: pair[0])[1]


def read_search(folder: Path, recipe: Recipe) -> SearchResult | None:
    """The result of the search with its scores in a folder, and this recipe; None if they are missing or damaged."""
    fields = {"points": [dict], "found": {str: (float, None)}}
    try:
        record = read_record(folder / SCORES, fields, what="the record of a search", error=RunError)
        scores = [(point, record["found"].get(f"point-{number}")) for number, point in enumerate(record["points"])]
        return SearchResult(recipe, choose_best(scores), tuple(scores))
    except (ConfigError, RunError):
        return None


def train_and_score(recipe, trial, folder, every, compile_arguments):
    """Trains, in `folder`, and returns the accuracy on the development set; None if the training diverged."""
    recipe.compile(trial.model, **compile_arguments)
    try:
        if folder is None:
            steps = recipe.total_steps
            fitted = trial.model.fit(trial.train(0), epochs=1, steps_per_epoch=steps, verbose=0, shuffle=False)
            if not math.isfinite(fitted.history["loss"][-1]):
                return None
        else:
            Run(folder, every).fit(trial.model, trial.train, recipe.total_steps, resume=True)
    except NotFiniteError:
        return None
    return float(trial.model.evaluate(trial.development, verbose=0, return_dict=True)["accuracy"])


def search_recipe(
    recipe: Recipe,
    grid: Mapping[str, Sequence[Any]],
    prepare: Callable[[Recipe], Trial],
    folder: str | os.PathLike | None = None,
    *,
    every: int = 500,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    tell: Callable[[dict[str, Any], float | None], None] | None = None,
    **compile_arguments: Any,
) -> SearchResult:
    """Trains a new model at each point of a grid of a recipe's fields, and chooses the best point.

    The learning rates of Appendix B.1.1 are one such grid, {"learning_rate": recipe.learning_rates}. Section 4.3's
    weight decay, dropout and label smoothing are another.

    Args:
        recipe: a `Recipe`; `steps=` of `keras_vit.training.recipe` makes the search shorter than the run.
        grid: {field: values}; all combinations are tried. Values are used as they are given, not scaled.
        prepare: function from a point's recipe to its `Trial`: a new model (dropout or size may differ), batches to
            train on, and batches to evaluate. Enter the strategy's scope before the search.
        folder: stores each score, and the current training. If a search is killed, the same call continues it. None
            stores nothing.
        every: steps between the checkpoints in that folder.
        seed: seed of each model and its dropout, so that no point depends on the points before it.
        settings: what else the scores depend on, such as the names of model and data, of JSON's types: a search
            continues only with the same.
        tell: called with each point and its accuracy.
        compile_arguments: arguments of `recipe.compile`.

    Raises:
        UnknownNameError: for a field that a recipe does not have.
        ConfigError: for a field without values, or with a value that it cannot have; when the folder holds another
            search, or the training diverges at every point.
        RunError: when the record in the folder is damaged, or the folder cannot be written to.

    >>> def prepare(recipe):
    ...     model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10, **recipe.model_arguments)
    ...     train, held_out = (keras_vit.data.load("digits", split) for split in ("train", "validation"))
    ...     batches = held_out.evaluation(48, model.preprocessing)
    ...     return Trial(model, lambda step: train.train(8, model.preprocessing, start=step), batches)
    >>> recipe = keras_vit.training.recipe("finetune-cifar10", batch_size=8, steps=2, image_size=8)
    >>> found = search_recipe(recipe, {"learning_rate": [0.01], "dropout_rate": [0.0, 0.1]}, prepare)
    >>> len(found.scores), found.recipe.learning_rate
    (2, 0.01)
    """
    if not grid:
        raise ConfigError(f"There is nothing to search: give fields of {recipe.name} and values to try.")
    home = Path(folder) if folder else None
    points = make_points(recipe, grid)
    asked = {"recipe": dataclasses.asdict(recipe), "points": points, "seed": seed, "settings": settings}
    results = ResultsFile(home / SCORES, asked) if home else None
    scores = []
    for number, point in enumerate(points):
        name = f"point-{number}"
        place = home / name if home else None
        if results and name in results.found:
            accuracy = results.found[name]
            RunFolder(place).discard()  # if a kill came before that
        else:
            keras.utils.set_random_seed(seed)
            candidate = recipe.with_(**point)
            trial = prepare(candidate)
            if results and is_chief(trial.model):
                results.write()  # before the first checkpoint: it belongs to these settings
            accuracy = train_and_score(candidate, trial, place, every, compile_arguments)
            if results and is_chief(trial.model):
                results.add(**{name: accuracy})
                RunFolder(place).discard()
        if tell:
            tell(point, accuracy)
        scores.append((point, accuracy))
    best = choose_best(scores)
    return SearchResult(recipe.with_(**best), best, tuple(scores))

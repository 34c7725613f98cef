"""The best learning rate and weight decay of a training: found on the validation split by climbing on a grid.

From the recipe's own pair the search goes to any neighbour on the grid that is better, and ends at a pair better
than all four: rates and decays to both sides of the best are measured. Every measurement is a line of one table,
whichever experiments ask for it, and the test split is not touched.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from examples.paper_in_miniature.measures import test_accuracy
from examples.paper_in_miniature.results import COMMON, add_lines, describe_line, read_lines
from examples.paper_in_miniature.trainings import Training, Workshop

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
DECAYS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0)
SEED = 100  # other weights and images than any that is reported
COLUMNS = (*COMMON, "validation_accuracy")
TYPICAL = 7  # measurements of a search

Pair = tuple[float, float]  # learning rate, weight decay


def list_neighbours(pair: Pair) -> list[Pair]:
    """The pairs one step away on the grid, rates first."""
    rate, decay = RATES.index(pair[0]), DECAYS.index(pair[1])
    return [(RATES[i], pair[1]) for i in (rate - 1, rate + 1) if 0 <= i < len(RATES)] + [
        (pair[0], DECAYS[i]) for i in (decay - 1, decay + 1) if 0 <= i < len(DECAYS)
    ]


def climb(start: Pair, found: Mapping[Pair, float]) -> tuple[Pair, Pair | None]:
    """(the best pair so far, the pair to measure next); None for the next where the search is over."""
    best = max(found, key=found.get, default=start)
    missing = [pair for pair in (best, *list_neighbours(best)) if pair not in found]
    return best, missing[0] if missing else None


def with_pair(training: Training, pair: Pair) -> Training:
    rate, decay = pair
    return replace(training, recipe=training.recipe.with_(learning_rate=rate, weight_decay=decay))


def list_measured(training: Training, path: Path, workshop: Workshop) -> dict[str, tuple[Pair, float]]:
    """{identity: (pair, validation accuracy)} of the measurements that the table has of a search."""
    accuracies = {line["training"]: float(line["validation_accuracy"]) for line in read_lines(path)}
    pairs = itertools.product(RATES, DECAYS)
    measurements = {workshop.identify(plan_measurement(training, pair, workshop)): pair for pair in pairs}
    return {key: (pair, accuracies[key]) for key, pair in measurements.items() if key in accuracies}


def plan_measurement(training, pair, workshop):
    return workshop.plan(with_pair(replace(training, split="train"), pair), SEED)


def look_up(training: Training, path: Path, workshop: Workshop) -> tuple[Training, Training | None, int]:
    """(the training at the best pair so far, the one to measure next or None, how many are measured)."""
    found = dict(list_measured(training, path, workshop).values())
    best, missing = climb((training.recipe.learning_rate, training.recipe.weight_decay), found)
    return with_pair(training, best), missing and plan_measurement(training, missing, workshop), len(found)


def count_missing(training: Training, path: Path, workshop: Workshop) -> int:
    """How many measurements the search still needs: a guess until it is over."""
    _, missing, done = look_up(training, path, workshop)
    return max(1, TYPICAL - done) if missing else 0


def search(training: Training, setting: str, path: Path, workshop: Workshop, tell: Callable = print) -> None:
    """Makes the measurements that the search for a training's best pair still needs."""
    while True:
        _, missing, done = look_up(training, path, workshop)
        if missing is None:
            return
        workshop.train(missing)
        accuracy = test_accuracy(workshop, workshop.load_model(missing), missing.task, "validation")
        line = describe_line(setting, missing, workshop) | {"validation_accuracy": accuracy}
        add_lines(path, COLUMNS, [line])
        rate, decay = missing.recipe.learning_rate, missing.recipe.weight_decay
        tell(f"sweep of {setting}, {done + 1}: rate {rate:g}, decay {decay:g}: {accuracy}", flush=True)

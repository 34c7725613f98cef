"""What is left to measure, how long it takes, and the doing of it."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from examples.paper_in_miniature import sweeps
from examples.paper_in_miniature.experiments import EXPERIMENTS, Experiment, Row
from examples.paper_in_miniature.results import COMMON, add_lines, count_teraflops, describe_line, read_lines
from examples.paper_in_miniature.trainings import Training, Workshop

TERAFLOPS_PER_SECOND = 0.06  # of one core of a server of 2023, as measured for these models in training
START = 10  # seconds to build a model, trace its step and test it
SWEEP = "sweep.csv"  # the table of all searches


def plan_row(row: Row, seed: int, results: Path, workshop: Workshop) -> tuple[Training, Training | None]:
    """(the row's training with that seed, at the best pair so far; the one that its search needs next, or None)."""
    training, needed = row.training, None
    if row.searched:
        training, needed, _ = sweeps.look_up(training, results / SWEEP, workshop)
    return workshop.plan(training, seed), needed


def list_left(
    name: str, experiment: Experiment, results: Path, workshop: Workshop, seeds: int, count: int | None = None
) -> Iterator[tuple[Row, int]]:
    """The rows and seeds whose lines the table does not have yet: seed by seed, but where rows are searched row by row.

    A line of another training under a row's name is no such line.

    Args:
        seeds: 0, 1, ...
        count: of the experiment's rows, the first ones; None for all.
    """
    rows = experiment.rows[:count]
    order = [(row, seed) for seed, row in itertools.product(range(seeds), rows)]
    for row, seed in sorted(order, key=lambda each: rows.index(each[0]) if each[0].searched else -1):
        if row.training.finished and seed:
            continue  # one model, whatever the seed
        training, needed = plan_row(row, seed, results, workshop)
        # Read again each time: other processes may have added lines.
        done = {(line["setting"], line["training"]) for line in read_lines(results / f"{name}.csv")}
        if needed or (row.setting, workshop.identify(training)) not in done:
            yield row, seed


def run_experiment(
    name: str,
    experiment: Experiment,
    results: Path,
    workshop: Workshop,
    seeds: int,
    count: int | None = None,
    tell: Callable = print,
) -> None:
    """Does what is left of an experiment; it can be stopped at any time, and goes on with the training it was in."""
    for row, seed in list_left(name, experiment, results, workshop, seeds, count):
        if row.searched:
            sweeps.search(row.training, row.setting, results / SWEEP, workshop, tell)
        training, _ = plan_row(row, seed, results, workshop)
        workshop.train(training)
        lines = [describe_line(row.setting, training, workshop) | line for line in row.measure(workshop, training)]
        add_lines(results / f"{name}.csv", (*COMMON, *experiment.columns), lines)
        tell(f"{name}, {row.setting}, seed {seed}: {lines[0].get('accuracy', 'measured')}", flush=True)


def estimate_seconds(training: Training) -> float:
    """Of one core, without the training that it starts from."""
    return START + count_teraflops(training) / TERAFLOPS_PER_SECOND


def list_trainings(training):
    """A training, after those it starts from."""
    return [*(list_trainings(training.start) if training.start else ()), training]


def print_plan(results: Path, workshop: Workshop, seeds: int) -> None:
    """Prints for each experiment the measurements left, and the minutes of trainings that no earlier one has done."""
    done, minutes = set(), 0.0
    for name, experiment in EXPERIMENTS.items():
        left = list(list_left(name, experiment, results, workshop, seeds))
        needed = {}
        for row, seed in left:
            for each in list_trainings(plan_row(row, seed, results, workshop)[0]):
                needed[workshop.identify(each)] = each
        new = [each for key, each in needed.items() if key not in done and not workshop.has(each)]
        own = sum(map(estimate_seconds, new))
        for row in experiment.rows:
            key = workshop.identify(row.training)
            if row.searched and key not in done:
                done.add(key)
                missing = sweeps.count_missing(row.training, results / SWEEP, workshop)
                own += missing * estimate_seconds(row.training)
        print(f"{name:15} {len(left):3} of {seeds * len(experiment.rows):3} left {own / 60:6.1f} minutes of one core")
        done |= needed.keys()
        minutes += own / 60
    print(f"{'all':15} {minutes:33.1f}")

"""What is left to do, and about how long it takes."""

from pathlib import Path

from examples.paper_in_miniature.experiments import EXPERIMENTS
from examples.paper_in_miniature.results import list_left
from examples.paper_in_miniature.trainings import Training, Workshop
from keras_vit.evaluation import cost

FLOPS_PER_SECOND = 25e9  # of one core of a server of 2023, as measured for these models in training
START = 10  # seconds to build a model, trace its step and test it
FORWARD_AND_BACKWARD = 3


def estimate_seconds(training: Training) -> float:
    """Of processor time, without the training that it starts from."""
    flops = FORWARD_AND_BACKWARD * cost(training.config).flops * training.recipe.images_seen
    return START + flops / FLOPS_PER_SECOND


def list_trainings(training):
    """A training, after those it starts from."""
    return [*(list_trainings(training.start) if training.start else ()), training]


def print_plan(results: Path, workshop: Workshop, seeds: int) -> None:
    """Prints for each experiment the measurements left, and the minutes of trainings that no earlier one has done."""
    done, minutes = set(), 0.0
    for name, experiment in EXPERIMENTS.items():
        left = list(list_left(experiment, results / f"{name}.csv", workshop, seeds))
        needed = {workshop.identify(each): each for _, last in left for each in list_trainings(last)}
        new = [each for key, each in needed.items() if key not in done and not workshop.has(each)]
        own = sum(map(estimate_seconds, new)) / 60
        print(f"{name:15} {len(left):3} of {seeds * len(experiment.rows):3} left {own:6.1f} minutes of one core")
        done |= needed.keys()
        minutes += own
    print(f"{'all':15} {minutes:33.1f}")

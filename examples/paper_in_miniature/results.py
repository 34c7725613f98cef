"""The tables of results: a CSV for each experiment, to which every measurement is added as soon as it is made."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from examples.paper_in_miniature.trainings import Training, Workshop
from keras_vit.evaluation import cost

FORWARD_AND_BACKWARD = 3  # forward passes that a training step costs, as Table 6 counts
COMMON = ("setting", "seed", "images_seen", "updates", "learning_rate", "weight_decay", "teraflops", "training")


def count_teraflops(training: Training) -> float:
    """The operations of a training, without the one that it starts from."""
    return FORWARD_AND_BACKWARD * cost(training.config).flops * training.recipe.images_seen / 1e12


def describe_line(setting: str, training: Training, workshop: Workshop) -> dict:
    """What every line of a table says of its training, {column: value}; of weights that ship only which they are."""
    recipe = training.recipe
    line = {"setting": setting, "seed": training.seed, "training": workshop.identify(training)}
    if training.finished:  # shipped.csv says by which commands
        return line
    return line | {
        "images_seen": recipe.images_seen,
        "updates": recipe.total_steps,
        "learning_rate": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "teraflops": round(count_teraflops(training), 3),
    }


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a table, {column: text}; none where there is no file yet."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def add_lines(path: Path, columns: Sequence[str], lines: Sequence[dict]) -> None:
    """Adds lines to a table in one write, after the names of the columns where it is new.

    The write is one call of the system, so a program that is killed leaves all of the lines or none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerows(lines)
    with open(path, "ab", buffering=0) as file:
        file.write(text.getvalue().encode())

"""The tables of results: a CSV for each experiment, to which every measurement is added as soon as it is made."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.paper_in_miniature.experiments import Experiment, Row
from examples.paper_in_miniature.trainings import Training, Workshop

COMMON = ("setting", "seed", "images_seen", "updates", "learning_rate", "cpu_seconds", "training")


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a table, {column: text}; none where there is no file yet."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def add_lines(path: Path, columns: Sequence[str], lines: Sequence[dict]) -> None:
    """Adds lines to a table in one write, after the names of the columns where it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerows(lines)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text.getvalue())


def list_left(
    experiment: Experiment, path: Path, workshop: Workshop, seeds: int, count: int | None = None
) -> Iterator[tuple[Row, Training]]:
    """What the table does not have yet, seed by seed; a line of another training under that name is no such line.

    Args:
        seeds: 0, 1, ...
        count: of the experiment's rows, the first ones; None for all.
    """
    for seed in range(seeds):
        for row in experiment.rows[:count]:
            training = workshop.plan(row.training, seed)
            if training.finished and seed:
                continue  # one model, whatever the seed
            # Read again each time: other processes may have added lines.
            done = {(line["setting"], line["training"]) for line in read_lines(path)}
            if (row.setting, workshop.identify(training)) not in done:
                yield row, training


def run_experiment(
    experiment: Experiment, path: Path, workshop: Workshop, seeds: int, count: int | None = None, tell=print
) -> None:
    """Does what is left of an experiment; it can be stopped at any time, and goes on with the training it was in."""
    for row, training in list_left(experiment, path, workshop, seeds, count):
        _, seconds = workshop.train(training)
        common = {
            "setting": row.setting,
            "seed": training.seed,
            "images_seen": training.recipe.images_seen,
            "updates": training.recipe.total_steps,
            "learning_rate": training.recipe.learning_rate,
            "cpu_seconds": round(seconds, 1),
            "training": workshop.identify(training),
        }
        lines = row.measure(workshop, training)
        add_lines(path, (*COMMON, *experiment.columns), [common | line for line in lines])
        said = lines[0].get("accuracy", "measured")
        tell(f"{path.stem}, {row.setting}, seed {training.seed}: {said}, {seconds:.0f} s", flush=True)

"""What the results say: mean and deviation over the seeds, and how docs/paper_in_miniature.md shows it."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.paper_in_miniature.experiments import EXPERIMENTS, Experiment
from examples.paper_in_miniature.results import read_lines
from examples.paper_in_miniature.trainings import Workshop

IMAGES = "images/miniature"  # beside the page
OTHERS = ("quantization", "replicas")  # tables of programs of their own
NOT_MEASURED = "Not measured yet."


@dataclass(frozen=True)
class Spread:
    """Mean and deviation (of a sample) over `seeds` seeds.

    >>> print(Spread.of([81.0, 83.0]))
    82.0 ± 1.4
    """

    mean: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))

    def __str__(self):
        return f"{self.mean:.1f}" + (f" ± {self.deviation:.1f}" if self.seeds > 1 else "")


def read_current(experiment: Experiment, path: Path, workshop: Workshop, seeds: int = 100) -> list[dict[str, str]]:
    """The lines of a table that are of the experiment as its rows are now."""
    current = {
        (row.setting, workshop.identify(workshop.plan(row.training, seed)))
        for row in experiment.rows
        for seed in range(seeds)
    }
    return [line for line in read_lines(path) if (line["setting"], line["training"]) in current]


def summarize(
    lines: Sequence[dict[str, str]], by: Sequence[str], value: str, unit: float = 1
) -> dict[tuple[str, ...], Spread]:
    """{what the columns `by` hold: the spread over the seeds of each seed's mean `value`}, in the lines' order.

    Args:
        unit: that the spread is in: 0.01 for per cent.
    """
    groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for line in lines:
        seeds = groups.setdefault(tuple(line[column] for column in by), {})
        seeds.setdefault(line["seed"], []).append(float(line[value]) / unit)
    return {group: Spread.of([statistics.mean(each) for each in seeds.values()]) for group, seeds in groups.items()}


PER_CENT = 0.01
HEADS = {"accuracy": "test accuracy, %", "validation_accuracy": "validation accuracy, %"}


def write_accuracies(experiment: Experiment, lines: Sequence[dict[str, str]]) -> str:
    """A Markdown table: settings along the plot's axis, or in the experiment's order; accuracies in per cent; seeds."""
    heads = ["setting", *(HEADS[column] for column in experiment.columns), "seeds"]
    spreads = [summarize(lines, ["setting"], column, PER_CENT) for column in experiment.columns]
    text = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row in sorted(experiment.rows, key=lambda row: row.x):
        if (row.setting,) in spreads[0]:
            found = [spread[row.setting,] for spread in spreads]
            text.append(f"| {row.setting} | " + " | ".join(map(str, found)) + f" | {found[0].seeds} |")
    return "\n".join(text)


def write_distances(experiment: Experiment, lines: Sequence[dict[str, str]]) -> str:
    """A Markdown table: of every block the mean attention distance over its heads, in pixels."""
    text = ["| setting | block | attention distance, pixels | seeds |", "|---|---:|---:|---:|"]
    for (setting, block), spread in summarize(lines, ["setting", "block"], "distance").items():
        text.append(f"| {setting} | {block} | {spread} | {spread.seeds} |")
    return "\n".join(text)


WRITERS = {"attention": write_distances, "similarity": lambda *_: ""}


def write_lines(path: Path) -> str:
    """A Markdown table of a CSV file, as it is; of a list in a cell, its length."""
    lines = read_lines(path)
    rows = [[str(len(cell.split("; "))) if ": " in cell else cell for cell in line.values()] for line in lines]
    text = [" | ".join(row) for row in [list(lines[0]), ["---"] * len(lines[0]), *rows]]
    return "\n".join(f"| {line} |" for line in text)


def write_results(name: str, results: Path, workshop: Workshop) -> str:
    """The plot and the Markdown table of an experiment, as the page has them; of a program of its own, the table."""
    path = results / f"{name}.csv"
    if name in OTHERS:
        return write_lines(path) if path.exists() else NOT_MEASURED
    experiment = EXPERIMENTS[name]
    lines = read_current(experiment, path, workshop)
    if not lines:
        return NOT_MEASURED
    plot = f"![{experiment.title}]({IMAGES}/{name}.png)"
    return f"{plot}\n\n{WRITERS.get(name, write_accuracies)(experiment, lines)}".strip()


def fill_in_results(page: str, results: Path, workshop: Workshop) -> str:
    """The page with what came out of each experiment between "<!-- results NAME -->" and "<!-- end -->"."""

    def fill(found):
        return f"<!-- results {found[1]} -->\n{write_results(found[1], results, workshop)}\n<!-- end -->"

    return re.sub(r"<!-- results ([\w-]+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)

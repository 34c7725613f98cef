"""What the results say: mean and deviation over the seeds, and how docs/paper_in_miniature.md shows it."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.paper_in_miniature.experiments import EXPERIMENTS, Experiment
from examples.paper_in_miniature.planning import plan_row
from examples.paper_in_miniature.results import read_lines
from examples.paper_in_miniature.trainings import Workshop

IMAGES = "images/miniature"  # beside the page
OTHERS = {  # tables of programs of their own
    "quantization": "-m examples.paper_in_miniature.quantization",
    "replicas": "-m examples.paper_in_miniature.replicas",
    "shipped": "tools/list_settings.py",
}
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
    planned = [(row.setting, plan_row(row, 0, path.parent, workshop)[0]) for row in experiment.rows]
    current = {
        (setting, workshop.identify(workshop.plan(training, seed)))
        for setting, training in planned
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
HEADS = {
    "accuracy": "test accuracy, %",
    "validation_accuracy": "validation accuracy, %",
    "few_shot_accuracy": "few-shot accuracy, %",
}
SETTLED = {"learning_rate": "rate", "weight_decay": "weight decay", "teraflops": "TFLOP"}


def write_accuracies(experiment: Experiment, lines: Sequence[dict[str, str]]) -> str:
    """A Markdown table: settings along the plot's axis, or in the experiment's order; accuracies in per cent; seeds."""
    settled = SETTLED if experiment.rows[0].searched else {}
    own = {line["setting"]: [line[column] for column in settled] for line in lines}
    heads = ["setting", *settled.values(), *(HEADS[column] for column in experiment.columns), "seeds"]
    spreads = [summarize(lines, ["setting"], column, PER_CENT) for column in experiment.columns]
    text = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row in sorted(experiment.rows, key=lambda row: 0 if row.searched else row.x):
        if (row.setting,) in spreads[0]:
            found = [spread[row.setting,] for spread in spreads]
            cells = [row.setting, *own[row.setting], *found, found[0].seeds]
            text.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(text)


def name_difference(first: str, second: str) -> str:
    """What two settings share is said once.

    >>> name_difference("ViT, average, 800 updates", "ViT, 800 updates")
    'ViT, average against ViT, 800 updates'
    """
    one, other, shared = first.split(", "), second.split(", "), []
    while one[1:] and other[1:] and one[-1] == other[-1]:
        shared.insert(0, one.pop())
        other.pop()
    return ", ".join([f"{', '.join(one)} against {', '.join(other)}", *shared])


def write_differences(experiment: Experiment, lines: Sequence[dict[str, str]]) -> str:
    """A Markdown table: the experiment's pairs of settings, in points, with the interval of 95 % over the seeds."""
    rows = []
    for first, second in experiment.pairs:
        found = [compare(lines, first, second, column) for column in experiment.columns]
        if None not in found:
            rows.append(f"| {name_difference(first, second)} | {' | '.join(found)} |")
    if not rows:
        return ""
    heads = [HEADS[column].replace(", %", ", points") for column in experiment.columns]
    return "\n".join([f"| difference | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|", *rows])


def compare(lines: Sequence[dict[str, str]], first: str, second: str, column: str) -> str | None:
    """The mean difference of two settings in points and its interval of 95 % (Student's t), paired by seed.

    None where fewer than two seeds have both.
    """
    import numpy as np
    from scipy.stats import t

    values = {(line["setting"], line["seed"]): float(line[column]) / PER_CENT for line in lines}
    seeds = [seed for setting, seed in values if setting == first and (second, seed) in values]
    if len(seeds) < 2:
        return None
    differences = np.array([values[first, seed] - values[second, seed] for seed in seeds])
    half = t.ppf(0.975, len(seeds) - 1) * differences.std(ddof=1) / len(seeds) ** 0.5
    mean = differences.mean()
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


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
    parts = [plot, WRITERS.get(name, write_accuracies)(experiment, lines), write_differences(experiment, lines)]
    return "\n\n".join(part for part in parts if part)


def fill_in_results(page: str, results: Path, workshop: Workshop) -> str:
    """The page with what came out of each experiment between "<!-- results NAME -->" and "<!-- end -->"."""

    def fill(found):
        return f"<!-- results {found[1]} -->\n{write_results(found[1], results, workshop)}\n<!-- end -->"

    return re.sub(r"<!-- results ([\w-]+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)

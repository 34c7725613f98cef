"""The epochs of a run: where they end, and their rows in metrics.csv. Imports no Keras."""

import csv
import math
from fractions import Fraction
from itertools import groupby, pairwise
from typing import NamedTuple

from keras_vit.errors import ConfigError, RunError


class Segment(NamedTuple):
    """Steps `begin` to `end` for one `fit`: `epochs` epochs of equal length, counted from `epoch`."""

    begin: int
    end: int
    epoch: int
    epochs: int


def list_epoch_ends(total: int, length: int | Fraction) -> list[int]:
    """The steps at which epochs of `length` steps end, to the nearest step; the last is `total`, perhaps within one.

    >>> list_epoch_ends(10, Fraction(9, 4))
    [2, 4, 7, 9, 10]
    """
    if length < 1:
        raise ConfigError(f"steps_per_epoch must be positive: at least one step. Received: {length}.")
    ends = [round(epoch * length) for epoch in range(1, int(total / length) + 2)]
    return [end for end in ends if end < total] + [total]


def plan_segments(start: int, ends: list[int]) -> list[Segment]:
    """The rest of an interrupted epoch, then runs of whole epochs of equal length.

    >>> [(a, b) for a, b, *_ in plan_segments(7, [10, 20, 25])]
    [(7, 10), (10, 20), (20, 25)]
    """
    begin, left, segments = start, [end for end in ends if end > start], []
    epoch = len(ends) - len(left)
    if left and start not in (0, *ends):
        segments = [Segment(start, left[0], epoch, 1)]
        begin, epoch, left = left[0], epoch + 1, left[1:]
    for length, same in groupby(end - before for before, end in pairwise([begin, *left])):
        count = len(list(same))
        segments.append(Segment(begin, begin + length * count, epoch, count))
        begin, epoch = segments[-1].end, epoch + count
    return segments


def parse_number(text):
    return int(text) if text.isdigit() else float(text)


def read_rows(path, last=math.inf):
    """The rows of a metrics.csv up to the step `last`, dicts of numbers, in their order; none without a file."""
    if last == 0 or not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: parse_number(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
        return sorted((row for row in rows if row["step"] <= last), key=lambda row: row["step"])
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise RunError(
            f"{path} could not be read as this run's metrics ({error!r}). Repair it, or move it out of the folder."
        ) from error


def write_rows(rows, path):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


NO_SCORE = (-math.inf, -math.inf)


def score_row(row, monitor):
    """A pair that is greater for a better epoch: by the metric, and among equal ones by the loss.

    On few held-out images accuracies are often equal. A metric that is missing or NaN is worse than any other.
    """
    value, loss = (row.get(name, math.nan) for name in (monitor, "val_loss"))
    if math.isnan(value):
        return NO_SCORE
    return -value if monitor.endswith("loss") else value, -math.inf if math.isnan(loss) else -loss


def find_best(rows, monitor):
    """The row of the best epoch, the first of equal ones; None if no row has the metric.

    >>> find_best([{"epoch": 1, "val_loss": 2.0}, {"epoch": 2, "val_loss": 1.5}], "val_loss")["epoch"]
    2
    """
    best = max(rows, key=lambda row: score_row(row, monitor), default={})
    return best if score_row(best, monitor) > NO_SCORE else None


def find_last_epoch(rows):
    """The number of the last epoch; not that of rows, since an epoch in which a run ended and was prolonged has two."""
    return rows[-1]["epoch"] if rows else 0


def count_epochs_without_gain(rows, monitor):
    """How many epochs have passed since the best one; 0 before there is one."""
    best = find_best(rows, monitor)
    return 0 if best is None else find_last_epoch(rows) - best["epoch"]

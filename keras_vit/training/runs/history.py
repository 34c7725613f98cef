"""metrics.csv, a row per epoch: what is read off it to choose the best epoch and to stop early. Imports no Keras."""

import csv
import io
import math

from keras_vit.training.errors import RunError

NAME = "metrics.csv"


def parse_number(text):
    return int(text) if text.isdigit() else float(text)


def read_rows(path):
    """The rows of a metrics.csv, dicts of numbers, in the order of their steps; none where there is no file.

    Raises:
        RunError: when it is damaged.
    """
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: parse_number(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
        return sorted(rows, key=lambda row: row["step"])
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise RunError(
            f"{path} could not be read as this run's metrics ({error!r}). Repair it, or move it out of the folder."
        ) from error


def write_rows(rows, path):
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())


NO_SCORE = (-math.inf, -math.inf)


def score_row(row, monitor):
    """A pair that is the greater the better the epoch: by the metric, and among equal ones by the loss.

    On few held-out images accuracies are often equal. A metric that is missing or NaN is worse than any other.
    """
    value, loss = (row.get(name, math.nan) for name in (monitor, "val_loss"))
    if math.isnan(value):
        return NO_SCORE
    return -value if monitor.endswith("loss") else value, -math.inf if math.isnan(loss) else -loss


def find_best(rows, monitor):
    """The row of the best epoch, the first of equal ones; None where no row has the metric.

    >>> find_best([{"epoch": 1, "val_loss": 2.0}, {"epoch": 2, "val_loss": 1.5}], "val_loss")["epoch"]
    2
    """
    best = max(rows, key=lambda row: score_row(row, monitor), default={})
    return best if score_row(best, monitor) > NO_SCORE else None


def count_epochs_without_gain(rows, monitor):
    """How many epochs have passed since the best one; 0 before there is one."""
    best = find_best(rows, monitor)
    return 0 if best is None else len(rows) - 1 - rows.index(best)

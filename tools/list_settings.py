"""Lists finished runs by their accuracy on the images left out, to choose what ships before the test set is asked.

    python tools/list_settings.py RUN...

adds a line for each to examples/paper_in_miniature/results/shipped.csv; `python -m examples.paper_in_miniature plot`
then fills in the page. Several stages of a training are one line: name the last.
"""

import argparse
from pathlib import Path

from ship import ROOT, measure_minutes, read_facts, restore_commands

from examples.paper_in_miniature.results import add_lines
from keras_vit.training.runs.history import read_rows

TABLE = ROOT / "examples" / "paper_in_miniature" / "results" / "shipped.csv"
COLUMNS = ("command", "seed", "held_out_images", "held_out_accuracy", "minutes")


def describe_run(run):
    """{column: value} of a finished run; the accuracy is the best epoch's, whose weights are kept."""
    rows, facts = read_rows(run / "metrics.csv"), read_facts(run)
    if not facts["held_out"]:
        raise SystemExit(f"{run} held no images out, so nothing can be chosen by it.")
    if rows[-1]["step"] < facts["total_steps"]:
        raise SystemExit(f"{run} is not finished: {rows[-1]['step']:,} of {facts['total_steps']:,} steps.")
    return {
        "command": restore_commands(run).replace("\n", "; "),
        "seed": facts["settings"]["seed"],
        "held_out_images": facts["held_out"],
        "held_out_accuracy": round(max(row["val_accuracy"] for row in rows if "val_accuracy" in row), 4),
        "minutes": measure_minutes(run),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the folder of a finished run")
    lines = [describe_run(run) for run in parser.parse_args().runs]
    add_lines(TABLE, COLUMNS, lines)
    for line in lines:
        print(f"{line['held_out_accuracy']:.2%} of {line['held_out_images']:,}: {line['command']}")


if __name__ == "__main__":
    main()

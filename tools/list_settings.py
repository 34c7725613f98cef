"""Lists finished runs by their accuracy on the images left out, to choose what ships before the test set is asked.

    python tools/list_settings.py RUN...
    python tools/list_settings.py --test fashion-mnist FOLDER RUN...    # of a setting already chosen

adds a line for each to examples/paper_in_miniature/results/shipped.csv; `python -m examples.paper_in_miniature plot`
then fills in the page. Several stages of a training are one line: name the last.
"""

import argparse
import sys
from pathlib import Path

from samples import TEST_SETS
from ship import ROOT, measure_accuracy, measure_minutes, read_facts, restore_commands

from keras_vit import zoo
from keras_vit.training.runs.history import read_rows
from keras_vit.training.runs.run_folder import model_of

TABLE = ROOT / "examples" / "paper_in_miniature" / "results" / "shipped.csv"
COLUMNS = ("command", "seed", "held_out_images", "held_out_accuracy", "test_images", "test_accuracy", "minutes")


def describe_run(run, test_set=None):
    """{column: value} of a finished run; the accuracy is the best epoch's, whose weights are kept.

    Args:
        run: folder of the run.
        test_set: the examples to test it on; None for a run of a setting that is not chosen.
    """
    rows, facts = read_rows(run / "metrics.csv"), read_facts(run)
    if not facts["held_out"] and test_set is None:
        raise SystemExit(f"{run} held no images out, so nothing can be chosen by it.")
    if rows[-1]["step"] < facts["total_steps"]:
        raise SystemExit(f"{run} is not finished: {rows[-1]['step']:,} of {facts['total_steps']:,} steps.")
    held_out = [row["val_accuracy"] for row in rows if "val_accuracy" in row]
    tested = measure_accuracy(zoo.load(model_of(run)), test_set) if test_set else None
    return {
        "command": restore_commands(run).replace("\n", "; "),
        "seed": facts["settings"]["seed"],
        "held_out_images": facts["held_out"] or "",
        "held_out_accuracy": round(max(held_out), 4) if held_out else "",
        "test_images": tested.count if tested else "",
        "test_accuracy": round(tested.value, 4) if tested else "",
        "minutes": measure_minutes(run),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="the folder of a finished run")
    parser.add_argument("--test", nargs=2, metavar=("TAG", "FOLDER"), help="the test set's tag and folder")
    arguments = parser.parse_args()
    test_set = TEST_SETS[arguments.test[0]].load(arguments.test[1]) if arguments.test else None
    lines = [describe_run(run, test_set) for run in arguments.runs]
    sys.path.append(str(ROOT))  # a script sees tools/ alone
    from examples.paper_in_miniature.results import add_lines

    add_lines(TABLE, COLUMNS, lines)
    for line in lines:
        print(", ".join(f"{column} {value}" for column, value in line.items() if value != ""))


if __name__ == "__main__":
    main()

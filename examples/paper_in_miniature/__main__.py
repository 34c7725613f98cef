"""The paper's claims, measured small: docs/paper_in_miniature.md. From the repository's root.

`plan` says what is left to measure and how long it takes; `plot` draws what is there and fills in the page's tables.
An experiment goes on where it was stopped, and adds a line to its table after every training.
"""

import argparse
import os
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def main(arguments: list[str] | None = None) -> None:
    from examples.paper_in_miniature import planning, plots, tables
    from examples.paper_in_miniature.experiments import EXPERIMENTS
    from examples.paper_in_miniature.trainings import Workshop

    parser = argparse.ArgumentParser(
        prog="python -m examples.paper_in_miniature",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=["plan", "plot", *EXPERIMENTS], metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, default=5, help="how many: 0, 1, ... (default: 5)")
    parser.add_argument("--rows", type=int, help="only so many of the experiment's settings, the first (default: all)")
    parser.add_argument("--data", default="fashion_mnist:/usr/share/datasets/fashion-mnist", help="to train on")
    parser.add_argument("--transfer", default="digits", help="to transfer to")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the tables")
    parser.add_argument("--weights", type=Path, default=Path("runs/paper_in_miniature"), help="folder of the models")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page whose tables and plots are made")
    parser.add_argument("--quick", action="store_true", help="two updates in place of each training, to try it out")
    given = parser.parse_args(arguments)
    workshop = Workshop({"pretraining": given.data, "transfer": given.transfer}, given.weights, given.quick)
    if given.name == "plan":
        planning.print_plan(given.results, workshop, given.seeds)
    elif given.name == "plot":
        plots.draw_all(given.results, given.docs / tables.IMAGES, workshop)
        page = given.docs / "paper_in_miniature.md"
        page.write_text(tables.fill_in_results(page.read_text("utf-8"), given.results, workshop), "utf-8")
    else:
        experiment = EXPERIMENTS[given.name]
        planning.run_experiment(given.name, experiment, given.results, workshop, given.seeds, given.rows)


if __name__ == "__main__":
    # One thread: two experiments side by side are faster than one with two.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    main()

"""python -m examples.paper_in_miniature NAME: one experiment; `plan` says what is left, `plot` draws what is there."""

import argparse
import os
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments=None):
    from examples.paper_in_miniature.experiments import EXPERIMENTS
    from examples.paper_in_miniature.results import run_experiment
    from examples.paper_in_miniature.trainings import Workshop

    parser = argparse.ArgumentParser(prog="python -m examples.paper_in_miniature", description=__doc__)
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--seeds", type=int, default=3, help="how many: 0, 1, ... (default: 3)")
    parser.add_argument("--rows", type=int, help="of the experiment's rows only so many, the first (default: all)")
    parser.add_argument("--data", default="fashion_mnist:/usr/share/datasets/fashion-mnist", help="to train on")
    parser.add_argument("--transfer", default="digits", help="to transfer to")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the tables")
    parser.add_argument("--weights", type=Path, default=Path("runs/paper_in_miniature"), help="folder of the models")
    parser.add_argument("--quick", action="store_true", help="two updates for each training; give other folders")
    given = parser.parse_args(arguments)
    workshop = Workshop({"pretraining": given.data, "transfer": given.transfer}, given.weights, given.quick)
    run_experiment(EXPERIMENTS[given.name], given.results / f"{given.name}.csv", workshop, given.seeds, given.rows)


if __name__ == "__main__":
    # One thread: two experiments side by side are faster than one with two.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    main()

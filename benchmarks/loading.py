"""What loading a checkpoint costs, compared with reading its arrays and building its model.

    python benchmarks/loading.py ViT-B/16 ViT-H/14

Each number comes from a process of its own. `load / (2 read + build)` should stay below 1; `peak / file` is the most
memory that loading needs, beyond what the framework took before, divided by the size of the file.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
from timing import seconds


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_all(path):
    with np.load(path) as archive:
        for name in archive.files:
            archive[name]


def measure(step, name, path):
    """One step in this process: "save" the checkpoint, "build" its model, "read" its arrays, or "load" it."""
    from keras_vit import models, zoo

    models.build(models.variant("ViT-Test/4").config)  # the framework's own start
    before = peak_mib()
    steps = {
        "save": lambda: zoo.save(models.build(models.variant(name).config), path),
        "build": lambda: models.build(models.variant(name).config),
        "read": lambda: read_all(path),
        "load": lambda: zoo.load(path),
    }
    print(seconds(steps[step]), peak_mib() - before)


def measure_in_process(step, name, path):
    command = [sys.executable, __file__, "--step", step, name, "--path", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return map(float, done.stdout.split())


def report(name, folder, rounds):
    path = pathlib.Path(folder) / f"{name.replace('/', '_')}.npz"
    measure_in_process("save", name, path)
    taken = {"build": [], "read": [], "load": []}
    for _ in range(rounds):
        for step, times in taken.items():
            duration, peak = measure_in_process(step, name, path)
            times.append(duration)
    build, read, load = (float(np.median(times)) for times in taken.values())
    results = {
        "read s": read,
        "build s": build,
        "load s": load,
        "load / (2 read + build)": load / (2 * read + build),
        "peak / file": peak * 2**20 / path.stat().st_size,
    }
    print(f"{name:14}" + "  ".join(f"{title} {value:.2f}" for title, value in results.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="variants, such as ViT-B/16")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each number, of which the median counts")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        return measure(arguments.step, arguments.names[0], arguments.path)
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            report(name, folder, arguments.rounds)


if __name__ == "__main__":
    main()

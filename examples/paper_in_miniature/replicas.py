"""The same recipe on one device and on two, the latter killed twice: the test accuracies, written to a CSV file.

    python -m examples.paper_in_miniature.replicas --data fashion_mnist:FOLDER --out runs/replicas

Every run is a `keras-vit pretrain` in a process of its own. Those on one device, with a seed each, are left alone: they
say how far accuracies differ by chance. The run on two logical CPUs has the first seed; it is killed (SIGKILL) once a
third and once two thirds of its steps are done, and resumed. A run that is there already is not done again.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
COLUMNS = ("devices", "seed", "killed at steps", "steps", "accuracy", "difference of weights")
# Two CPUs of one processor, as TensorFlow sees them; then the command.
TWO_CPUS = """
import tensorflow as tf
cpus = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
from keras_vit.cli import main
main()
"""


def start_command(devices, *arguments):
    """A process that runs `keras-vit` on so many logical CPUs."""
    script = ["-c", TWO_CPUS] if devices == 2 else ["-m", "keras_vit"]
    return subprocess.Popen([sys.executable, *script, *map(str, arguments)])


def find_last_step(folder):
    """The step of a run's last checkpoint; 0 before the first."""
    return max((int(path.stem.partition("-")[2]) for path in (folder / "checkpoints").glob("step-*.npz")), default=0)


def run_to(process, folder, step):
    """Waits until a checkpoint has that step, then kills the process; returns the step it had come to."""
    while find_last_step(folder) < step:
        if process.poll() is not None:
            raise SystemExit(f"The run in {folder} ended before step {step}.")
        time.sleep(0.1)
    process.kill()
    process.wait()
    return find_last_step(folder)


def finish(process, folder):
    if process.wait():
        raise SystemExit(f"The run in {folder} failed; its last lines say why.")


def train(folder, devices, seed, kills, options, total):
    """Trains into `folder`; returns the steps whose checkpoints it went on from."""
    strategy = ("--strategy", "mirrored" if devices == 2 else "one_device")
    process = start_command(devices, "pretrain", *options, *strategy, "--seed", seed, "--out", folder)
    killed = []
    for i in range(kills):
        killed.append(run_to(process, folder, (i + 1) * total // (kills + 1)))
        process = start_command(devices, "pretrain", "--out", folder, "--resume")
    finish(process, folder)
    return killed


def read_weights(folder):
    with np.load(folder / "last.weights.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def measure_accuracy(folder, dataset):
    """Of a finished run, on the test set."""
    import keras_vit
    from keras_vit.training.runs.run_folder import model_of

    model = keras_vit.zoo.load(model_of(str(folder)))
    return keras_vit.evaluation.evaluate(model, keras_vit.data.load(dataset, "test"), batch_size=250).top1.value


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the dataset to train on")
    parser.add_argument("--model", default="ViT-Mini/4")
    parser.add_argument("--recipe", default="mini-vit")
    parser.add_argument("--augmentation", default="pad-crop", help="default: pad-crop")
    parser.add_argument("--steps", type=int, default=1500, help="of each run (default: 1500)")
    parser.add_argument("--seeds", type=int, default=3, help="how many on one device: 0, 1, ... (default: 3)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--table", type=Path, default=HERE / "results" / "replicas.csv")
    given = parser.parse_args(arguments)
    options = ("--data", given.data, "--split", "train+validation", "--model", given.model, "--recipe", given.recipe)
    options += ("--augmentation", given.augmentation, "--steps", given.steps, "--every", max(1, given.steps // 30))
    lines = []
    for devices, seed, kills in [(1, 0, 0), (2, 0, 2), *((1, seed, 0) for seed in range(1, given.seeds))]:
        folder = given.out / f"{devices}-devices-seed-{seed}"
        record = folder.with_suffix(".json")
        if not record.exists():
            killed = train(folder, devices, seed, kills, options, given.steps)
            record.write_text(json.dumps({"killed": killed, "accuracy": measure_accuracy(folder, given.data)}))
        known = json.loads(record.read_text())
        weights = read_weights(folder)
        first = read_weights(given.out / "1-devices-seed-0")
        difference = np.linalg.norm(weights - first) / np.linalg.norm(first)
        killed = " ".join(map(str, known["killed"]))
        lines.append((devices, seed, killed, given.steps, round(known["accuracy"], 5), f"{difference:.2g}"))
        print(*lines[-1], flush=True)
    given.table.parent.mkdir(parents=True, exist_ok=True)
    with open(given.table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


if __name__ == "__main__":
    main()

"""The examples and the training commands, each run in small."""

import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from keras_vit import training, zoo

pytestmark = pytest.mark.slow

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def run(*command):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Forty images of two classes that any model can tell apart: reddish and bluish ones."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (folder / name).mkdir()
        for i in range(20):
            pixels = rng.integers(0, 90, (40, 48, 3))
            pixels[..., channel] += 150
            Image.fromarray(pixels.astype("uint8")).save(folder / name / f"{i}.jpg")
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A checkpoint of random weights, to fine-tune from."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.keras"
    zoo.save(zoo.load("ViT-Test/4", weights=None, image_size=16, num_classes=5), path)
    return path


def test_own_photos(photos, tiny, tmp_path):
    where = ("--model", tiny, "--out", tmp_path / "runs/vit")  # in a folder that is not there
    assert "onnx" in run(EXAMPLES / "own_photos.py", photos, *where, "--epochs", 2, "--batch-size", 8)
    assert zoo.load(tmp_path / "runs/vit.npz").labels == ("blue", "red")
    with pytest.raises(AssertionError, match="vit.npz already exists"):
        run(EXAMPLES / "own_photos.py", photos, *where)


def test_cifar10_gpu(tiny, tmp_path):
    small = ("--dataset", "digits", "--steps", 6, "--batch-size", 16, "--microbatches", 2, "--image-size", 16)
    said = run(EXAMPLES / "cifar10_gpu.py", "--model", tiny, "--out", tmp_path, "--precision", "float32", *small)
    assert (tmp_path / "model.keras").exists()
    # The test set chooses nothing: it is seen once, at the end.
    assert not (tmp_path / "best.weights.npz").exists()
    assert "val_" not in (tmp_path / "metrics.csv").read_text() and "'accuracy': " in said


def test_imagenet_tpu(tmp_path):
    small = ("--dataset", "digits", "--epochs", 0.2, "--batch-size", 16, "--image-size", 16)
    run(EXAMPLES / "imagenet_tpu.py", "--model", "ViT-Test/4", "--out", tmp_path, "--steps-per-execution", 2, *small)
    assert zoo.load(tmp_path / "model.keras").config.representation_size == 64


@pytest.mark.long
def test_finetune_then_export_then_verify(photos, tiny, tmp_path):
    """A stranger's folder of photos to a bundle of proved files, by the commands alone."""
    train = ("--data", f"folder:{photos}", "--out", tmp_path / "run", "--model", tiny)
    out = run("-m", "keras_vit", "finetune", *train, "--epochs", 12, "--batch-size", 8, "--grid-search")
    assert "Training once at each point of learning_rate" in out
    assert re.search(r"Held-out accuracy of epoch \d+, the best of 12: 100", out)
    made = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "model.keras",
        "last.weights.npz",
        "best.weights.npz",
        "mistakes.png",
        "curves.png",
        "metrics.csv",
        "config.json",
    } <= made
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        assert float(list(csv.DictReader(file))[-1]["val_accuracy"]) == 1
    bundle = tmp_path / "dist"
    formats = ("--to", "onnx", "tflite", "--quantize", "dynamic", "--calibration", f"folder:{photos}")
    run("-m", "keras_vit", "export", tmp_path / "run", *formats, "--out", bundle)
    about = json.loads((bundle / "model.json").read_text())
    assert [artefact["format"] for artefact in about["artefacts"]] == ["onnx", "tflite"]
    assert about["labels"] == ["blue", "red"]
    assert "100.0%" in run("-m", "keras_vit", "verify", bundle)


SMALL = "--data digits --model ViT-Test/4 --image-size 16 --steps 24 --batch-size 16 --every 5".split()


def heed_ctrl_c():
    """A shell's background jobs, as this one may be, ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.long
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    """A finished run's files are then, one by one, what another run refuses to overwrite."""
    command = [sys.executable, "-m", "keras_vit", "pretrain", *SMALL, "--out", str(tmp_path / "cut")]
    cut = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c)
    while cut.poll() is None and not list((tmp_path / "cut" / "checkpoints").glob("step-*")):
        time.sleep(0.05)
    cut.send_signal(signal.SIGINT)
    out, err = cut.communicate()
    assert cut.returncode == 130 and "Traceback" not in err
    assert "saved at step" in out
    again = out.replace(" \\\n   ", "").splitlines()[-1].removeprefix("Go on with: ")
    assert again == shlex.join(["keras-vit", "pretrain", *command[-2:], "--resume", "--every", "5"])
    run("-m", *shlex.split(again.replace("keras-vit", "keras_vit", 1)))
    for path in [path for path in (tmp_path / "cut").rglob("*") if path.is_file() and path.name != "run.json"]:
        place = tmp_path / "other" / path.relative_to(tmp_path / "cut")
        place.parent.mkdir(parents=True)
        place.write_text("precious")
        with pytest.raises(training.RunError, match=f"{place} was not written"):
            training.Run(tmp_path / "other").files.check(resume=False)
        shutil.rmtree(tmp_path / "other")


def weights(folder):
    with np.load(folder / "last.weights.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.long
def test_a_killed_command_resumes_to_the_same_weights(tmp_path):
    """kill -9 once a checkpoint is there; --resume then ends where the run that was never killed ends, bit for bit."""
    command = [sys.executable, "-m", "keras_vit", "pretrain", *SMALL, "--out", str(tmp_path / "cut")]
    cut = subprocess.Popen([*command, "--learning-rate", "0.001"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while cut.poll() is None and not list((tmp_path / "cut" / "checkpoints").glob("step-*")):
        time.sleep(0.05)
    cut.kill()
    cut.wait()
    run(*command[1:], "--learning-rate", "0.001", "--resume")
    run(*command[1:-1], tmp_path / "reference", "--learning-rate", "0.001")
    resumed, reference = weights(tmp_path / "cut"), weights(tmp_path / "reference")
    for name, value in reference.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    done = subprocess.run([*command, "--learning-rate", "0.002", "--resume"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "was begun with learning_rate=0.001" in done.stderr

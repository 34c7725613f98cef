"""`pretrain --objective masked-patches` as a user meets it, and what its run is good for afterwards."""

import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import zoo

PRETRAIN = "pretrain --data digits --model ViT-Test/4 --image-size 16 --objective masked-patches".split()


@pytest.mark.slow
def test_from_masked_patches_to_a_classifier(keras_vit, tmp_path):
    out = tmp_path / "run"
    done = keras_vit(*PRETRAIN, "--steps", 6, "--learning-rate", 0.003, "--test", "--out", out)
    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    assert "8 of 16 patches corrupted to predict them (mean-colour)" in said
    assert "Test accuracy of the corrupted patches' colours after the last step" in said and "10 classes" not in said
    assert np.asarray(Image.open(out / "masked_patches.png").convert("L")).std() > 20
    assert not (out / "mistakes.png").exists() and (out / "best.weights.npz").exists()
    whole = keras.saving.load_model(out / "masked_patches.keras")
    for name in ("last.weights.npz", "model.keras"):
        encoder = zoo.load(out / name)
        assert encoder.config.num_classes == 0
        for a, b in zip(encoder.weights, whole.encoder.weights, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    with np.load(out / "last.weights.npz") as arrays:
        assert {"embedding/kernel", "Transformer/encoder_norm/scale"} < set(arrays) and "head/kernel" not in arrays
    tuned = keras_vit("finetune", "--data", "digits", "--model", out, "--steps", 2, "--out", tmp_path / "tuned")
    assert tuned.status == 0, tuned.err
    assert zoo.load(tmp_path / "tuned/model.keras").labels == tuple("0123456789")
    shots = keras_vit("fewshot", out, "--data", "digits", "--shots", 5, "--seeds", 1)
    assert shots.status == 0 and shots.out.splitlines()[1].split()[0] == "5"


@pytest.mark.slow
def test_pixels_without_held_out_images(keras_vit, tmp_path):
    options = ("--patch-target", "pixels", "--corruption-rate", 0.15, "--split", "train+validation", "--steps", 2)
    done = keras_vit(*PRETRAIN, *options, "--out", tmp_path / "run")
    assert done.status == 0, done.err
    assert "2 of 16 patches corrupted to predict them (pixels)" in " ".join(done.out.split())
    assert "accuracy" not in done.out and (tmp_path / "run/masked_patches.png").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--corruption-rate 0", "must be in (0, 1]. Received: 0.0"),
        ("--corruption-rate 1.5", "must be in (0, 1]. Received: 1.5"),
        ("--model R50x1", "the convolutions of a hybrid or a ResNet show a masked patch to its neighbours"),
        ("--model R+ViT-Ti/16", "Choose a ViT, such as ViT-B/16"),
        ("--model ViT-B/17", "Did you mean ViT-B/16"),
        ("--image-size 4", "several whole patches. Received: 4 x 4 pixels"),
        ("--augmentation strong1", "no labels that mixup or cutmix could mix"),
        ("--patch-target pixels --search dropout_rate=0,0.1", "A search ranks by accuracy, and pixels have none"),
        ("--objective labels --patch-target pixels", "patch_target is for masked patches"),
        ("--objective labels --corruption-rate 0.15", "corruption_rate is for masked patches"),
        ("--objective labels --recipe pretrain-masked-patches", "give objective=masked-patches too"),
    ],
)
def test_what_cannot_be_masked_is_a_sentence(keras_vit, tmp_path, options, sentence):
    done = keras_vit(*PRETRAIN, *options.split(), "--steps", 1, "--out", tmp_path / "runs/1")
    assert (done.status, done.err.count("\n")) == (1, 1) and sentence in done.err
    assert not list(tmp_path.iterdir())


def wait_for_checkpoint(process, folder, least):
    while process.poll() is None:
        steps = [int(path.stem[5:]) for path in (folder / "checkpoints").glob("step-*.npz")]
        if max(steps, default=0) >= least:
            return
        time.sleep(0.01)
    raise AssertionError("the run ended before it was killed")


@pytest.mark.slow
@pytest.mark.long
def test_a_command_that_is_killed_ends_with_the_same_bits(tmp_path):
    def command(name, *options):
        options = (*PRETRAIN, "--steps", "60", "--every", "3", "--split", "train+validation", *options)
        return [sys.executable, "-m", "keras_vit", *options, "--out", str(tmp_path / name)]

    subprocess.run(command("whole"), check=True)
    with subprocess.Popen(command("killed")) as process:
        wait_for_checkpoint(process, tmp_path / "killed", 6)
        process.send_signal(signal.SIGKILL)
    subprocess.run(command("killed", "--resume"), check=True)
    whole, killed = (dict(np.load(tmp_path / name / "last.weights.npz")) for name in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(killed[name], values, err_msg=name)

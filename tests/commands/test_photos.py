"""From a folder of photos to a bundle: what the model card says of the run, and what a slip of the hand is answered."""

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image

from keras_vit.commands.finetune import list_next_commands
from keras_vit.commands.parsing import complete_place
from keras_vit.commands.progress import FitProgress
from keras_vit.errors import ConfigError, Interrupted, Preempted
from keras_vit.trainers import provenance
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.history import write_rows
from keras_vit.training.runs.run_folder import RunFolder, find_row
from tests.commands.test_names import test_the_shell_completes as require_completion

SMALL = "--model ViT-Test/4 --image-size 16 --learning-rate 0.002 --batch-size 8 --epochs 1 --augmentation none"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photos/, tags.csv of several classes each, and no runs yet."""
    root, rng = tmp_path_factory.mktemp("place"), np.random.default_rng(0)
    rows = ["path,labels"]
    for name in ("dark", "light"):
        (root / "photos" / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), "uint8")).save(root / "photos" / name / f"{i:02}.png")
            rows.append(f"photos/{name}/{i:02}.png,{name}{'|odd' if i % 2 else ''}")
    (root / "tags.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.mark.slow
def test_the_card_of_a_run_says_how_it_was_trained(keras_vit, place, monkeypatch):
    monkeypatch.chdir(place)
    assert keras_vit("pretrain", "--data", "folder:photos", "--out", "run", *SMALL.split()).status == 0
    done = keras_vit("export", "run", "--to", "onnx", "--licence", "mit", "--out", "dist")
    assert done.status == 0 and max(map(len, done.out.splitlines())) <= 120, done.err
    about, card = json.loads((place / "dist/model.json").read_text()), (place / "dist/README.md").read_text()
    measured = json.loads(keras_vit("evaluate", "run", "--data", "folder:photos", "--json").out)["top1"]
    assert about["evaluated"] == {
        "dataset": "folder:photos",
        "split": "validation",
        "images": measured["count"],
        "accuracy": pytest.approx(measured["right"] / measured["count"]),
    }
    assert (
        "\n# ViT-Test/4 on photos\n" in card and "37 images of folder:photos, by the recipe pretrain-imagenet" in card
    )
    assert f"{measured['right']} of {measured['count']} images (validation of folder:photos)" in card
    assert "weights of: ViT-Test/4, random" in card and str(place) not in card + json.dumps(about)
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "mit" and front["model-index"][0]["results"][0]["metrics"][0]["type"] == "accuracy"
    assert keras_vit("verify", "dist").status == 0
    assert keras_vit("inspect", "run", "--out", "report").status == 0  # of the images that the run held out
    title = f"ViT-Test/4 on photos: {measured['count']} images of photos (validation)"
    assert f"<h1>{title}</h1>" in (place / "report/index.html").read_text()


@pytest.mark.slow
def test_a_run_with_several_classes_per_image(keras_vit, place, monkeypatch):
    monkeypatch.chdir(place)
    done = keras_vit("pretrain", "--data", "csv:tags.csv", "--out", "tags", *SMALL.split())
    assert done.status == 0 and " val_mAP " in done.out, done.err
    done = keras_vit("evaluate", "tags", "--data", "csv:tags.csv")
    assert done.status == 0 and "no images of the split test. Those held out" in done.err
    answer = json.loads(keras_vit("predict", "photos/dark/01.png", "--model", "tags", "--json").out)
    assert sum(row["probability"] for row in answer["classes"]) > 1.01  # of a softmax 1
    assert "mean_average_precision" in provenance.describe_run(place / "tags/best.weights.npz")["evaluated"]


def test_classes_that_cannot_be_balanced(keras_vit, place, monkeypatch, tmp_path):
    """Refused before anything is said of how they were."""
    monkeypatch.chdir(place)
    line = ("--data", "csv:tags.csv", "--class-weights", "balanced", "--out", tmp_path / "x", *SMALL.split())
    done = keras_vit("pretrain", *line)
    assert done.status == 1 and "class_weights needs data with one class per image" in done.err
    assert "balanced" not in done.out and not (tmp_path / "x").exists()


def test_what_was_not_measured_is_not_stated(tmp_path):
    """Metrics of a run that averages are those of the averaged weights."""
    rows = [{"epoch": 1, "step": 3, "val_accuracy": 0.5}, {"epoch": 2, "step": 6, "val_accuracy": 0.25}]
    last, best = tmp_path / "last.weights.npz", tmp_path / "best.weights.npz"
    write_rows(rows, tmp_path / "metrics.csv")
    assert find_row(best) == rows[0]
    assert find_row(last) == rows[1]
    (tmp_path / "averaged.weights.npz").touch()
    assert find_row(last) is None
    assert provenance.describe_run(tmp_path / "mine.npz") == provenance.describe_run(best) == {}


def test_a_model_where_images_are_expected(keras_vit, tmp_path):
    (tmp_path / "model.keras").touch()
    for model in (tmp_path, tmp_path / "model.keras"):
        done = keras_vit("predict", model, "cat.jpg")
        assert done.status == 1 and f"{model} is a model, not an image. Give it as --model: " in done.err


@pytest.mark.parametrize("pretrain", [True, False])
def test_an_unfinished_run_says_by_which_command_it_goes_on(keras_vit, tmp_path, pretrain):
    folder = RunFolder(tmp_path)
    folder.save(folder.digests())
    (tmp_path / "config.json").write_text(json.dumps({"total_steps": 9, "settings": {"pretrain": pretrain}}))
    done = keras_vit("export", tmp_path, "--out", tmp_path / "dist")
    command = "pretrain" if pretrain else "finetune"
    assert done.status == 1 and f"of 9 steps are saved): resume it. The command is keras-vit {command} --" in done.err


def test_info_of_a_run(keras_vit, tmp_path):
    done = keras_vit("info", tmp_path)
    assert done.status == 1 and f"{tmp_path} is a file or folder" in done.err and "keras-vit evaluate" in done.err
    (tmp_path / "a.png").touch()
    done = keras_vit("info", tmp_path / "a.png")
    assert done.status == 1 and "keras-vit list shows the names" in done.err and "evaluate" not in done.err


def test_what_follows_masked_patches():
    """An encoder without classes can be fine-tuned, neither asked nor evaluated."""
    (command,) = list_next_commands("runs/1", "folder:photos", None, has_head=False)
    assert command.startswith("keras-vit finetune --model runs/1 --data ")


@pytest.mark.parametrize("kit", [{"lora": 4}, {"freeze": "1"}, {"freeze": "backbone"}, {"class_weights": "balanced"}])
def test_the_fine_tuning_kit_is_not_for_masked_patches(kit):
    with pytest.raises(ConfigError, match=f"{next(iter(kit))} needs a model with classes"):
        Settings(dataset="digits", model="ViT-Test/4", pretrain=True, objective="masked-patches", **kit)


@pytest.mark.parametrize("given", [{"objective": "masked-patches"}, {"teacher": "runs/1"}])
def test_what_needs_augmented_images_is_not_left_to_the_device(given):
    with pytest.raises(ConfigError, match="needs the augmented images on the host. Leave out augment_on=device."):
        Settings(dataset="digits", model="ViT-Test/4", pretrain=True, augment_on="device", **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("keras-vit finetune --recipe finetune-fl", ["finetune-flowers"]),
        ("keras-vit pretrain --augmentation strong", ["strong1", "strong2"]),
        ("keras-vit finetune --data fo", ["folder:"]),
        ("keras-vit evaluate R152x4:bit-m", ["R152x4:bit-m", "R152x4:bit-m-in1k"]),
        ("keras-vit export ViT-H", ["ViT-H/14", "ViT-H/14:i21k"]),
        ("keras-vit predict a.png --model ViT-H", ["ViT-H/14", "ViT-H/14:i21k"]),
        ("keras-vit preview --recipe finetune-fl", ["finetune-flowers"]),
    ],
)
def test_the_shell_completes_options(typed, offered):
    require_completion(typed, offered)


def test_the_shell_completes_paths(tmp_path):
    (tmp_path / "runs").mkdir()
    assert complete_place(f"{tmp_path}/ru") == [f"{tmp_path}/runs/"]


def test_an_epoch_of_several_classes_per_image_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = FitProgress(10, batch_size=2, epochs=10, monitor="val_mean_average_precision")
    shown.on_train_begin()
    names = ("mean_average_precision", "loss", "val_mean_average_precision", "val_loss")
    shown.on_epoch_end(0, dict.fromkeys(names, 0.5))
    shown.close()
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(("stopped", "status"), [(Interrupted(3), 130), (Preempted(3), 143)])
def test_a_stopped_training_ends_whatever_still_reads(stopped, status):
    """TensorFlow's readers, stopped by the interpreter's end, may wait for Python forever; here a thread does."""
    code = (
        "import threading, keras_vit.cli as c; from keras_vit.errors import Interrupted, Preempted\n"
        "def app(): threading.Thread(target=threading.Event().wait).start(); print('saved'); "
        f"raise {type(stopped).__name__}(3)\n"
        "c.app = app; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "saved\n")


@pytest.mark.slow
def test_too_many_unreadable_images_end_the_command(tmp_path):
    """The readers of TensorFlow, which wait for Python, do not keep the process from its end."""
    for name, colour in (("dark", 9), ("light", 240)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(13):
            Image.new("RGB", (16, 16), (colour, i, i)).save(tmp_path / "photos" / name / f"{i:02}.png")
            (tmp_path / "photos" / "dark" / f"x{i}.jpg").write_text("hi")
    command = [sys.executable, "-m", "keras_vit", "pretrain", "--data", "folder:photos", "--out", "run", *SMALL.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "at most 10 are skipped" in done.stderr.splitlines()[-1]

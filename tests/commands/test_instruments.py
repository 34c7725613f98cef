"""`benchmark`, `compare` and `deduplicate` as a user meets them."""

import csv
import json
import os

import numpy as np
import pytest
from PIL import Image

from keras_vit import zoo
from keras_vit.commands import compare
from keras_vit.files import sha256
from keras_vit.trainers.settings import Settings

ALL = "train+validation"  # nothing held out


@pytest.mark.slow
def test_benchmark(keras_vit, tmp_path):
    """Whole: a process that starts, finds its device, runs steps, and writes what it found."""
    asked = ["benchmark", "ViT-Test/4", "--image-size", 8, "--batch-size", 1, "--batch-size", 3, "--rounds", 2]
    status, out, _ = keras_vit(*asked, "--out", tmp_path)
    assert not status and "ViT-Test/4" in out and max(map(len, out.splitlines())) <= 80
    rows = list(csv.DictReader(open(tmp_path / "speed.csv")))
    assert [(row["image_size"], row["batch_size"], row["rounds"]) for row in rows] == [("8", "1", "2"), ("8", "3", "2")]
    assert all(1 < float(row["slowest"]) <= float(row["images_per_second"]) for row in rows)
    assert (tmp_path / "speed.png").stat().st_size > 5000
    about = json.loads((tmp_path / "measurements.jsonl").read_text().splitlines()[0])
    assert about["step"] == "inference" and about["device"]
    status, _, err = keras_vit("benchmark", "ViT-Test/5")
    assert status == 1 and "There is no model 'ViT-Test/5'" in err


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six images to train on, of which the two whose names begin with x are, mirrored, to test on too."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i, name in enumerate(("a/x<b>", "a/p", "a/q", "b/x", "b/r", "b/s")):
        image = Image.fromarray(rng.integers(0, 256, (6, 9, 3), "uint8")).resize((90, 60))
        (root / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "test" / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / "train" / f"{name}.png")
        if "x" in name:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(root / "test" / f"{name}{i}.jpg", quality=80)
    return f"folder:{root}"


@pytest.mark.slow
def test_deduplicate(keras_vit, photos, tmp_path):
    status, out, _ = keras_vit("deduplicate", "--data", photos, "--split", ALL, "--out", tmp_path)
    assert not status and "2 of 6 images are near-duplicates, in 2 pairs." in out
    read = json.loads((tmp_path / "duplicates.json").read_text())
    assert [pair["mirrored"] for pair in read["pairs"]] == [True, True]
    page = (tmp_path / "index.html").read_text("utf-8")
    assert (
        page.count("<img ") == 4 and "x&lt;b&gt;.png" in page and "<b>" not in page and "http" not in page.lower()[300:]
    )
    status, out, _ = keras_vit("deduplicate", "--data", "digits", "--most-bits", 0, "--out", tmp_path / "none")
    assert not status and json.loads((tmp_path / "none" / "duplicates.json").read_text())["dataset"] == "digits"


def test_deduplicate_names_its_option_for_the_split(keras_vit, photos, tmp_path):
    done = keras_vit("deduplicate", "--data", f"{photos}/train", "--out", tmp_path)
    assert done.status == 1 and "has no folder test" in done.err
    assert "--against-split chooses it; train+validation has all images" in done.err


def test_no_page_becomes_a_class_of_the_images(keras_vit, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")
    monkeypatch.chdir(tmp_path)
    model = "ViT-Mini/4:fashion-mnist"
    for words in (["deduplicate", "--against", "digits"], ["inspect", model], ["evaluate", model, "--out", "report"]):
        status, _, err = keras_vit(*words, "--data", "folder:.")
        assert status == 1 and "lies among the class folders of folder:., and would be read as one" in err, words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.slow
def test_training_without_duplicates(keras_vit, photos, tmp_path):
    keras_vit("deduplicate", "--data", photos, "--split", ALL, "--out", tmp_path)
    path = tmp_path / "duplicates.json"
    settings = Settings(dataset=photos, model="ViT-Test/4", without=str(path), split=ALL)
    from keras_vit.trainers.plan import load_splits

    assert load_splits(settings).train.num_examples == 4
    before = settings.digests()
    assert settings.as_recorded()["without"] == str(path) and before == {"without": sha256(path)}
    read = json.loads(path.read_text())
    read["pairs"].pop()
    path.write_text(json.dumps(read))
    assert load_splits(settings).train.num_examples == 5
    assert settings.digests() != before


@pytest.mark.long
@pytest.mark.slow
def test_a_run_without_duplicates_is_resumed_with_the_same_list(keras_vit, photos, tmp_path):
    keras_vit("deduplicate", "--data", photos, "--split", ALL, "--out", tmp_path)
    path, run = tmp_path / "duplicates.json", tmp_path / "run"
    line = f"pretrain --data {photos} --split {ALL} --model ViT-Test/4 --image-size 16 --steps 2 --batch-size 2"
    assert keras_vit(*line.split(), "--without", path, "--out", run).status == 0
    assert keras_vit("pretrain", "--resume", "--out", run, "--steps", 3).status == 0
    path.write_text(path.read_text() + " ")
    done = keras_vit("pretrain", "--resume", "--out", run, "--steps", 4)
    assert done.status == 1 and "has changed since the run in" in done.err


@pytest.mark.slow
def test_comparing_one_candidate_or_a_damaged_one_is_an_error(keras_vit, tmp_path):
    assert "two candidates or more" in keras_vit("compare", "ViT-Mini/4:fashion-mnist", "--data", "digits").err
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    done = keras_vit("compare", "ViT-Mini/4:fashion-mnist", tmp_path / "m.onnx", "--data", "digits")
    assert done.status == 1 and "m.onnx" in done.err and "Traceback" not in done.err


@pytest.mark.slow
def test_the_size_of_a_run_is_that_of_the_weights_it_is_asked_by(tmp_path):
    model = zoo.load("ViT-Test/4", weights=None, image_size=8, labels=list("0123456789"))
    zoo.save(model, tmp_path / "best.weights.npz")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-00000001.npz").write_bytes(b"0" * 10**6)
    found = compare.measure(str(tmp_path), "digits", "test", 64, None, lambda done: None)
    assert found.bytes == os.path.getsize(tmp_path / "best.weights.npz") and found.top1.count == 360

"""`keras-vit predict`, `evaluate` and `preview` of folders, patterns and exported files."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_vit import cli, data, export, zoo
from keras_vit.commands import compare, evaluate
from keras_vit.images.pillow import read_image
from keras_vit.inference import vector_search

LABELS = ("hen", "cat", "dog")  # folders come sorted


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a model, an exported file of it, and photos of its classes."""
    root = tmp_path_factory.mktemp("asked")
    rng = np.random.default_rng(0)
    for name in LABELS:
        (root / "photos" / name).mkdir(parents=True)
        for number in range(7):
            Image.fromarray(rng.integers(0, 256, (20, 30, 4), "uint8")).save(root / "photos" / name / f"{number}.png")
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=LABELS)
    model.get_layer("head").kernel.assign(rng.normal(size=(64, 3)))
    export.bundle(model, root / "dist", formats=["onnx"])
    zoo.save(model, root / "model.keras")
    return root


@pytest.mark.slow
def test_evaluate(keras_vit, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    done = keras_vit("evaluate", "dist", "--data", "folder:photos", "--json", "--out", tmp_path / "report")
    assert done.status == 0 and "folder:photos has no splits: all of its images are evaluated" in done.err
    found = json.loads(done.out)
    assert found["top1"]["count"] == 21 and set(found["classes"][0]) == {"name", "count", "precision", "recall", "f1"}
    assert [score["name"] for score in found["classes"]] == list(LABELS)
    assert json.loads((tmp_path / "report/evaluation.json").read_text())["confusion"] == found["confusion"]
    assert Image.open(tmp_path / "report/mistakes.png").width > 1000
    done = keras_vit("evaluate", "dist/model.onnx", "--data", "folder:photos", "--split", "train")
    assert done.status == 0 and "images  recall  precision" in done.out and "F1" in done.out and "hen" in done.out


@pytest.mark.slow
def test_an_unreadable_image_is_named_once_and_mistakes_by_file(root, tmp_path):
    """In a process of its own, whose libraries write to its standard error too."""
    photos = tmp_path / "photos"
    for name in LABELS:
        (photos / name).mkdir(parents=True)
        for source in (root / "photos" / name).iterdir():
            Image.open(source).convert("RGB").save(photos / name / f"{source.stem}.jpg")
    torn = photos / "cat/3.jpg"
    torn.write_bytes(torn.read_bytes()[:700])
    command = (sys.executable, "-m", "keras_vit", "evaluate", root / "model.keras", "--data", f"folder:{photos}")
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([*command, "--out", tmp_path / "out"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("3.jpg cannot be read and is skipped") == 1 and "jpeg_mem" not in done.stderr
    with open(tmp_path / "out/mistakes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = json.loads((tmp_path / "out/evaluation.json").read_text())
    assert found["top1"]["count"] == 20 and len(rows) == 20 - found["top1"]["right"]
    assert all(Path(row["image"]).parent.name == row["class"] != row["predicted"] for row in rows)


def test_which_split_is_evaluated(keras_vit, root, tmp_path, monkeypatch):
    """A folder of its own is a test set; the one that a run was trained on has its held-out images; test/ is test."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.keras").symlink_to(root / "model.keras")
    (tmp_path / "run/config.json").write_text(json.dumps({"settings": {"dataset": f"folder:{root / 'photos'}/"}}))
    monkeypatch.chdir(root)
    assert evaluate.choose_split("folder:photos", str(tmp_path / "run"))[0] == "validation"
    done = keras_vit("evaluate", tmp_path / "run", "--data", "folder:photos", "--json")
    assert done.status == 0 and "The run was trained on folder:photos: the images that it held out" in done.err
    assert json.loads(done.out)["top1"]["count"] < 21
    for models, common in ((["dist", "ViT-B/16"], "train+validation"), (["dist", str(tmp_path / "run")], "validation")):
        assert compare.choose_common_split("folder:photos", models)[0] == common
    settings = {"dataset": f"folder:{root / 'photos'}", "split": "train+validation"}
    (tmp_path / "run/config.json").write_text(json.dumps({"settings": settings}))
    split, said = evaluate.choose_split("folder:photos", str(tmp_path / "run"))
    assert split == "train+validation" and "The run was trained on them" in said
    for other in ("model.keras", "dist", "ViT-B/16"):
        assert evaluate.choose_split("folder:photos", other)[0] == "train+validation"
    listed = f"csv:{root / 'photos'}/labels.csv"
    Path(listed[4:]).write_text("image,label\n" + "".join(f"cat/{i}.jpg,cat\n" for i in range(3)))
    (tmp_path / "run/config.json").write_text(json.dumps({"settings": {**settings, "dataset": listed}}))
    for model, known in ((str(tmp_path / "run"), True), ("dist", False)):
        split, said = evaluate.choose_split(listed, model)
        assert split == "validation" and ("it knows them" in said) is known
    split = tmp_path / "split"
    (split).mkdir()
    (split / "train").symlink_to(root / "photos")
    assert evaluate.choose_split(f"folder:{split}", "dist")[0] == "train+validation"
    (split / "val").symlink_to(root / "photos")
    assert evaluate.choose_split(f"folder:{split}", "dist")[0] == "validation"
    (split / "test").symlink_to(root / "photos")
    assert evaluate.choose_split(f"folder:{split}", "dist") == ("test", None) == evaluate.choose_split("digits", "x")


def test_predict(keras_vit, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    done = keras_vit("predict", "photos", "--model", "dist", "--out", tmp_path / "made/p.csv", "--top", 2)
    assert done.status == 0 and "21 of 21 images" in done.out
    lines = (tmp_path / "made/p.csv").read_text().splitlines()
    assert len(lines) == 22 and lines[0] == "image,class_1,probability_1,class_2,probability_2"
    tables = []
    for images in ("photos", "photos/cat/3.png"):
        keras_vit("predict", images, "--model", "model.keras", "--out", tmp_path / "p.csv")
        tables.append(list(csv.reader((tmp_path / "p.csv").read_text().splitlines())))
    one = tables[1][1]
    (same,) = (row for row in tables[0] if row[0] == one[0])
    assert same[1::2] == one[1::2]
    np.testing.assert_allclose(np.array(one[2::2], float), np.array(same[2::2], float), atol=1e-5)
    (root / "photos/torn.png").write_bytes(b"torn")
    done = keras_vit("predict", "photos/*.png", "photos/cat", "--model", "model.keras", "--csv", "--batch-size", "2")
    again = keras_vit("predict", "photos", "--model", "model.keras", "--out", tmp_path / "p.json")
    nothing = keras_vit("predict", "photos/torn.png", "--model", "model.keras", "--out", tmp_path / "p.json")
    (root / "photos/torn.png").unlink()
    assert nothing.status == 1 and "None of the images can be read" in nothing.err  # and the old file stays
    assert done.status == 1 and "photos/torn.png cannot be read" in done.err and len(done.out.splitlines()) == 8
    assert again.status == 1 and "21 of 22 images. 1 could not be read" in again.out
    assert len(json.loads((tmp_path / "p.json").read_text())) == 21


@pytest.mark.slow
def test_a_page_shows_what_the_run_held_out(keras_vit, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    run = tmp_path / "last"
    run.mkdir()
    zoo.save(zoo.load("model.keras"), run / "last.weights.npz")
    (run / "config.json").write_text(json.dumps({"settings": {"dataset": "folder:photos"}}))
    done = keras_vit("export", run, "--to", "onnx", "--web", "--out", tmp_path / "dist")
    assert done.status == 0, done.err
    about = json.loads((tmp_path / "dist/web/model.json").read_text())
    held_out = data.load("folder:photos", "validation")
    images = data.read_images(held_out, range(held_out.num_examples))
    shown = [read_image(tmp_path / "dist/web/examples" / entry["file"]) for entry in about["examples"]]
    assert len(shown) == min(4, len(images)) > 1
    assert all(any(np.array_equal(picture, image) for image in images) for picture in shown[:-1])
    assert about["name"] == "ViT on photos" in (tmp_path / "dist/README.md").read_text()
    keras_vit("export", run, "--to", "onnx", "--name", "Cats & dogs", "--out", tmp_path / "named")
    assert json.loads((tmp_path / "named/model.json").read_text())["name"] == "Cats & dogs"
    keras_vit("inspect", run, next((root / "photos/cat").glob("*.png")), "--out", tmp_path / "report")
    assert "<h1>ViT on photos: 1 image</h1>" in (tmp_path / "report/index.html").read_text()


@pytest.mark.slow
def test_preview(keras_vit, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    done = keras_vit("preview", "--data", "folder:photos", "--model", "model.keras", "--out", tmp_path / "new/p.png")
    assert done.status == 0 and Image.open(tmp_path / "new/p.png").width > 500


def test_what_a_preview_shows_is_what_finetune_takes(monkeypatch, tmp_path):
    """By default the recipe's augmentation at the size of its model; none where the dataset takes none."""
    seen = []
    monkeypatch.setattr(data, "draw_preview", lambda *given: seen.append((given[2].image_size, given[3])))
    for line in ("", "--model ViT-Test/4", "--image-size 40", "--augmentation strong1 --recipe finetune-pets"):
        assert (
            CliRunner().invoke(cli.app, f"preview --data digits --out {tmp_path}/p.png {line}".split()).exit_code == 0
        )
    assert seen == [((224, 224), None), ((32, 32), None), ((40, 40), None), ((384, 384), "strong1")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("predict x.png --json --csv", "Give --json or --csv, not both"),
        ("predict x.png --out a.csv --json", "The ending of a.csv chooses"),
        ("predict x.png --out a.xlsx", "A file of predictions ends in .csv or .json or .jsonl. Received: a.xlsx."),
        ("predict empty --model {root}/model.keras", "There are no images at empty"),
        ("predict empty/*.png --model {root}/model.keras", "There are no images at empty"),
        ("predict http://a:b@x.org/c.jpg?d --model {root}/model.keras", "http://x.org/c.jpg is not fetched: expected"),
        ("predict empty --model absent.tflite", "There is no file absent.tflite"),
        ("predict empty --model empty", "There is no model in the folder empty"),
        ("predict ViT-B/16 x.png", "ViT-B/16 is a model, not an image"),
        ("evaluate {root}/dist --data folder:empty", "empty has no folders"),
        ("inspect {root}/model.keras x.png --split test", "--split is of --data. Name a dataset"),
        ("preview --data digits --out a.jpg", "A preview is a PNG file. Received: a.jpg"),
    ],
)
def test_bad_input_is_a_sentence(keras_vit, root, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    done = keras_vit(*arguments.format(root=root).split())
    assert done.status == 1 and sentence in done.err and "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.slow
def test_held_out_images_that_nobody_can_read_are_a_sentence(root, tmp_path, keras_vit):
    shutil.copytree(root / "photos", tmp_path / "photos")
    dataset, model = f"folder:{tmp_path / 'photos'}", root / "model.keras"
    for path in data.load(dataset, "validation").paths():
        Path(path).write_bytes(b"x")
    train = ("finetune", "--data", dataset, "--model", model, "--steps", 2, "--batch-size", 4, "--out", tmp_path / "r")
    done = keras_vit(*train)
    assert done.status == 1 and "can be read, so nothing judges the run; its weights are written" in done.err
    assert (tmp_path / "r/model.keras").exists()
    for command in ("fewshot", "probe"):
        done = keras_vit(command, model, "--data", dataset, "--shots", 2)
        assert done.status == 1 and "of at least one example" in done.err.splitlines()[-1]
        done = keras_vit(command, model, "--data", dataset, "--split", "train")
        assert done.status == 1 and "Test them on test or validation. Received: train." in done.err


@pytest.mark.slow
def test_training_counts_the_images_it_skipped(root, tmp_path, keras_vit):
    photos = tmp_path / "photos"
    shutil.copytree(root / "photos", photos)
    for name in ("cat/0.png", "hen/0.png"):
        (photos / name).write_bytes((photos / name).read_bytes()[:60])
    done = keras_vit(
        "finetune",
        "--data",
        f"folder:{photos}",
        "--model",
        root / "model.keras",
        "--epochs",
        1,
        "--out",
        tmp_path / "r",
    )
    assert done.status == 0, done.err
    assert "Images that cannot be read, and were skipped: 2." in done.out


def test_vectors_and_the_nearest_pictures(keras_vit, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    file, page = tmp_path / "v.npz", tmp_path / "near.html"
    assert keras_vit("embed", "photos", "--model", "model.keras", "--out", file, "--vector", "token").status == 0
    done = keras_vit("near", "photos/cat/3.png", "--in", file, "--out", page, "--count", 4)
    shown = page.read_text("utf-8")
    assert done.status == 0 and shown.count("<img") == 5 and "1.000 photos/cat/3.png" in shown
    assert "the vector token of model.keras, among 21 images" in shown
    (tmp_path / "torn.png").write_text("torn")
    done = keras_vit("near", tmp_path / "torn.png", "photos/cat", "--in", file, "--out", page, "--count", 4)
    assert done.status == 1 and "torn.png cannot be read as an image" in done.err
    assert page.read_text("utf-8").count("<img") == 7 * 5 and "1.000 photos/cat/6.png" in page.read_text("utf-8")
    (tmp_path / "torn.png").unlink()
    for arguments, said in (
        (("embed", "photos", "--model", "dist", "--out", tmp_path / "w.npz"), "is an exported classifier"),
        (("near", "photos/cat/3.png", "--in", file, "--model", "dist"), "was not made by dist as it is now"),
        (("near", "photos/cat/3.png", "--in", "photos/cat/3.png"), "A file of vectors ends in .npz or .parquet"),
    ):
        done = keras_vit(*arguments)
        assert done.status == 1 and said in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"v.npz", "near.html"}
    monkeypatch.setattr(vector_search, "MOST", 20)
    near = "near", "photos/cat/3.png", "--in", file, "--out", page, "--count", 4
    done = keras_vit(*near, "--exact")
    assert done.status == 0 and "Approximate" not in done.err and page.read_text("utf-8") == shown
    done = keras_vit(*near)
    said = r"Approximate: \d+ % of the 12 nearest of 100 sample vectors are found; --exact compares all\.\n"
    assert done.status == 0 and re.search(said, done.err) and "1.000 photos/cat/3.png" in page.read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"v.npz", "v.npz.index", "near.html"}
    monkeypatch.setitem(sys.modules, "faiss", None)
    done = keras_vit(*near)
    assert done.status == 1 and "keras-vit near needs faiss-cpu" in done.err and "'.[search]'" in done.err

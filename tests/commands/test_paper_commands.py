"""`evaluate`, `fewshot`, `probe` and `inspect` as a user meets them."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit import data, evaluation, zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "digits.npz"
    zoo.save(zoo.load("ViT-Test/4", weights=None, num_classes=10), path)
    return str(path)


@pytest.mark.slow
def test_evaluate(keras_vit, model, tmp_path):
    status, out, _ = keras_vit("evaluate", model, "--data", "digits", "--out", tmp_path / "report")
    assert not status and "of 360; 95% interval" in out and "calibration error  0.000" in out
    read = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    assert read["top1"]["count"] == 360 and f"({read['top1']['right']} of 360" in out
    assert np.asarray(Image.open(tmp_path / "report" / "mistakes.png").convert("L")).std() > 5
    status, out, _ = keras_vit("evaluate", model, "--data", "digits", "--json")
    assert json.loads(out)["top1"]["right"] == read["top1"]["right"]
    status, _, err = keras_vit("evaluate", "ViT-Test/4", "--data", "digits")
    assert status == 1 and len(err.splitlines()) >= 1


@pytest.mark.slow
def test_fewshot(keras_vit, model):
    status, out, _ = keras_vit("fewshot", model, "--data", "digits", "--shots", 5, "--seeds", 2, "--json")
    assert not status and len(json.loads(out)["5"]) == 2
    status, out, _ = keras_vit("fewshot", model, "--data", "digits", "--shots", 1, "--shots", 25)
    assert [line.split()[0] for line in out.splitlines()] == ["shots", "1", "25"]
    status, _, err = keras_vit("fewshot", model, "--data", "digits", "--shots", 999)
    assert status == 1 and "999 shots need 999 of every class" in err


@pytest.mark.slow
def test_fewshot_of_a_folder_without_test_images(keras_vit, model, tmp_path):
    """Those that training would hold out are the test."""
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            image = np.random.default_rng(number).integers(0, 256, (9, 9, 3), "uint8")
            Image.fromarray(image).save(tmp_path / "photos" / name / f"{number}.png")
    arguments = ("fewshot", model, "--data", f"folder:{tmp_path / 'photos'}", "--shots", 2)
    status, out, err = keras_vit(*arguments)
    assert not status and [line.split()[0] for line in out.splitlines()] == ["shots", "2"]
    assert err.strip() == f"Tested on the split validation of folder:{tmp_path / 'photos'}."
    status, _, err = keras_vit(*arguments, "--split", "test")
    advice = "Add one, or use the split 'validation', as a training without --test does."
    assert status == 1 and f"has no folder test. {advice}" in err


@pytest.mark.slow
def test_probe(keras_vit, model):
    """Two models in one table; the numbers are those of the features' own probes."""
    arguments = ("probe", model, "ViT-Mini/4:fashion-mnist", "--data", "digits", "--shots", 2)
    status, out, _ = keras_vit(*arguments, "--json")
    found = json.loads(out)
    assert not status and list(found) == [model, "ViT-Mini/4:fashion-mnist"]
    assert [list(row) for row in found.values()] == [["20-NN", "linear", "2-shot"]] * 2
    digits = [data.load("digits", split) for split in ("train", "test")]
    sets = [evaluation.extract_features(zoo.load("ViT-Mini/4:fashion-mnist"), split) for split in digits]
    right = int((evaluation.nearest_neighbours(*sets[0], sets[1][0]) == sets[1][1]).sum())
    shown = found["ViT-Mini/4:fashion-mnist"]["20-NN"]
    assert shown["right"] == right and shown["interval_95"][0] < shown["accuracy"] < shown["interval_95"][1]
    assert found["ViT-Mini/4:fashion-mnist"]["linear"]["accuracy"] > 0.9
    status, out, _ = keras_vit(*arguments[:2], "--data", "digits")
    assert out.split()[:4] == ["model", "20-NN", "linear", "5-shot"] and out.count("(") == 3
    status, _, err = keras_vit("probe", model, "--data", "digits", "--shots", 999)
    assert status == 1 and "999 shots need 999 of every class" in err


@pytest.mark.slow
def test_inspect(keras_vit, model, tmp_path):
    names = [str(tmp_path / f"{name}.png") for name in "ab"]
    for seed, name in enumerate(names):
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 30, 3), "uint8")).save(name)
    status, out, _ = keras_vit("inspect", model, "--images", *names, "--out", tmp_path / "report")
    assert not status and out.strip() == str(tmp_path / "report" / "index.html")
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "a.png" in page and "b.png" in page and "averaged over 2 images" in page
    status, _, err = keras_vit("inspect", model, names[0], tmp_path / "absent.png", "--out", tmp_path / "other")
    assert status == 1 and "absent.png" in err and (tmp_path / "other" / "index.html").exists()
    status, _, err = keras_vit("inspect", model, "--out", tmp_path / "none")
    assert status == 1 and "There is no image to look at" in err and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_inspect_of_a_dataset(keras_vit, model, tmp_path):
    status, _, err = keras_vit("inspect", model, "--data", "digits", "--out", tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert not status and "averaged over 128 images" in page and "train 11" in page and not err.strip()

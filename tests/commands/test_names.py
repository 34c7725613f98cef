"""What the commands say of names: recipes, models, and what the shell completes."""

import json
import os
import re
import subprocess
import sys

import pytest
from PIL import Image

from keras_vit import cli, training, zoo
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.training import RECIPES

COMMANDS = {name: cli.load_command(name) for name in cli.COMMANDS}


def test_recipes_are_listed_within_80_columns(keras_vit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = keras_vit("recipes").out.splitlines()
    assert [name for name in RECIPES if not any(line.startswith(f"{name} ") for line in lines)] == []
    assert max(map(len, lines)) <= 80


def test_one_recipe_is_shown_whole(keras_vit):
    assert "0.001, 0.003, 0.01, 0.03" in keras_vit("recipes", "finetune-pets").out
    shown = json.loads(keras_vit("recipes", "finetune-pets", "--json").out)
    assert [row["learning_rates"] for row in shown] == [list(RECIPES["finetune-pets"].learning_rates)]


def test_names_that_nothing_has(keras_vit):
    assert "There is no recipe 'nope'" in keras_vit("recipes", "nope").err
    assert "No model matches 'nope'" in keras_vit("list", "nope").err
    said = keras_vit("list", "vit_base_patch16_224").err
    assert "Here it is called ViT-B/16:augreg-i21k-in1k-224" in said


# What each command takes beside a model.
BESIDE_A_MODEL = {
    "info": ["--json"],
    "evaluate": ["--data", "digits"],
    "export": ["--out", "dist"],
    "fewshot": ["--data", "digits"],
    "probe": ["--data", "digits"],
    "vtab": ["--out", "x"],
    "inspect": ["--images", "a.jpg"],
    "benchmark": [],
    "finetune": ["--data", "digits", "--out", "runs/1"],
    "pretrain": ["--data", "digits", "--out", "runs/1", "--test"],
    "preview": ["--data", "digits"],
}


@pytest.mark.parametrize("name", BESIDE_A_MODEL)
def test_a_model_is_an_argument_and_an_option_alike(name):
    rest = BESIDE_A_MODEL[name]
    lines = [["runs/1", *rest], [*rest, "runs/1"], ["--model", "runs/1", *rest], [*rest, "--model=runs/1"]]
    told = [COMMANDS[name].make_context(name, line).params for line in lines]
    assert told == [told[0]] * 4 and told[0].get("model", told[0].get("models")) in ("runs/1", ["runs/1"])
    if name not in ("inspect", "benchmark", "probe"):  # whose further arguments are images and models
        with pytest.raises(Exception, match="unexpected extra argument"):
            COMMANDS[name].make_context(name, ["a", "--model", "b", *rest])


def test_images_beside_a_model():
    told = [
        COMMANDS["inspect"].make_context("inspect", line.split()).params
        for line in ("a.jpg --model runs/1 b.jpg", "--model runs/1 a.jpg b.jpg", "runs/1 a.jpg b.jpg")
    ]
    assert told == [told[0]] * 3 and (told[0]["model"], told[0]["more"]) == ("runs/1", ["a.jpg", "b.jpg"])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_into_80_columns(keras_vit, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert max(map(len, keras_vit(name, "--help").out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["finetune", "pretrain"])
def test_help_begins_with_the_usual_options(keras_vit, name):
    usual, *others = re.split("^╭─ ", keras_vit(name, "--help").out, flags=re.MULTILINE)[1:]
    assert usual.startswith("Options") and len(others) >= 5
    names = re.findall(r"^│ .  (--[a-z-]+) ", usual, re.MULTILINE)
    assert sorted(names) == ["--data", "--epochs", "--help", "--learning-rate", "--model", "--out"]
    assert all(title in "".join(others) for title in ("Data ─", "Weights ─", "Schedule ─", "Memory and machines ─"))


FOREIGN = {
    ("finetune", "--lr"): "Here it is called --learning-rate",
    ("finetune", "--weights"): "Here it is called --model",
    ("pretrain", "--imgsz=64"): "Here it is called --image-size",
    ("evaluate", "--weights"): "Here it is called --model",
}


@pytest.mark.parametrize(("line", "said"), FOREIGN.items())
def test_an_option_of_other_packages(keras_vit, line, said):
    done = keras_vit(*line, "1", "--data", "digits", "--out", "x")
    assert done.status == 2 and said in re.sub(r"[│\s]+", " ", done.err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("finetune", "--data", "digits", "--out", ""), "There is nothing after --out."),
        (("finetune", "--data", "digits", "--out=d", "--teacher="), "There is nothing after --teacher."),
        (("predict", ""), "There is nothing after keras-vit predict."),
        (("vtab", "ViT-B/16", "--tasks", "", "--out", "d"), "There is nothing after --tasks."),
    ],
)
def test_an_empty_word(keras_vit, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = keras_vit(*words)
    assert done.status == 2 and said in " ".join(done.err.split()) and not list(tmp_path.iterdir())


def test_names_of_other_packages():
    for module, name in (("keras_vit", "load"), ("keras_vit", "from_preset"), ("keras_vit.zoo", "from_preset")):
        with pytest.raises(AttributeError, match=f"{name}. It is keras_vit.zoo.load"):
            getattr(sys.modules[module], name)
    assert not hasattr(zoo, "nothing")
    for arguments, said in (
        ({"include_top": False}, "num_classes=0 leaves the head out"),
        ({"classifier_activation": "softmax"}, "Models return logits"),
        ({"pretrained": False}, "weights=None gives random ones"),
    ):
        with pytest.raises(ConfigError, match=said):
            zoo.load("ViT-Test/4", weights=None, **arguments)
    with pytest.raises(UnknownNameError, match="is BiT's R50x1"):
        zoo.load("resnet50")
    with pytest.raises(ConfigError, match="Here it is called learning_rate"):
        training.recipe("finetune-pets", lr=0.1)


# Command lines with one mistake each, and what is said of it.
TYPOS = {
    "verify nope": "nope is not a bundle",
    "predict nope.jpg": "There is no image nope.jpg",
    "predict {photo} --model runs/nope": "There is no folder or file runs/nope",
    "predict {photo} --model dist/nope.tflite": "There is no file dist/nope.tflite",
    "embed nope --model R20x0.5:emoji --out v.npz": "There is no image nope",
    "embed {photo} --model runs/nope --out v.npz": "There is no folder or file runs/nope",
    "embed {photo} --model R20x0.5:emoji --out v.csv": "A file of vectors ends in .npz or .parquet. Received: v.csv.",
    "embed {photo} --model R20x0.5:emoji --out v.npz --vector mean": "There is no vector 'mean'",
    "near {photo} --in nope.npz": "There is no file nope.npz",
    "evaluate nope/x --data digits": "There is no folder or file nope/x",
    "evaluate R20x0.5:emoji --data photos": "There is no dataset 'photos'. Nor is there a folder",
    "evaluate R20x0.5:emojis --data digits": "Did you mean emoji",
    "export runs/nope --out d": "There is no folder or file runs/nope",
    "export R20x0.5:emoji --out d --calibration cifar11": "Did you mean cifar10",
    "fewshot ViT-B/99 --data digits": "Did you mean ViT-B/",
    "fewshot R20x0.5:emoji --data csv:nope.csv": "There is no CSV file nope.csv",
    "probe R20x0.5:emoji runs/nope --data digits": "There is no folder or file runs/nope",
    "inspect runs/nope --data digits": "There is no folder or file runs/nope",
    "inspect R20x0.5:emoji --data folder:nope": "There is no folder nope",
    "preview --data digits --recipe nope": "There is no recipe 'nope'",
    "preview --data folder:nope": "There is no folder nope",
    "vtab R20x0.5:emoji --out d --tasks nope": "There is no task of VTAB 'nope'",
    "vtab runs/nope --out d": "There is no folder or file runs/nope",
    "benchmark qqq --out d": "keras-vit list, in Python zoo.list(), shows all",
    "deduplicate --data folder:nope": "There is no folder nope",
    "finetune --data folder:{loose} --out d": "loose has 1 image and no folders. Expected one folder of images",
    "finetune --data folder:{one} --out d": "has one class, 'loose'",
    "finetune --data digits --out d --search lr=1,2": "Here it is called learning_rate",
    "finetune --data digits --out d --protocol paper --model runs/nope": "There is no folder or file runs/nope",
    "finetune --out d --protocol paper": "Nothing says what to train on",
}


def test_typos_cost_no_tensorflow(tmp_path):
    """In a process that imports nothing else: at each error TensorFlow is not there."""
    photo = tmp_path / "one/loose/a.png"
    photo.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(photo)
    places = {"photo": photo, "loose": photo.parent, "one": photo.parents[1]}
    lines = [line.format(**places) for line in TYPOS]
    code = """
import contextlib, io, json, sys
from keras_vit import cli
for line in json.load(sys.stdin):
    sys.argv = ["keras-vit", *line.split()]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            cli.main()
        except SystemExit as left:
            print(json.dumps([left.code, said.getvalue(), "tensorflow" in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(lines), capture_output=True, text=True, cwd=tmp_path
    )
    for said, line in zip(TYPOS.values(), map(json.loads, done.stdout.splitlines()), strict=True):
        assert line[0] == 1 and said in line[1] and len(line[1]) < 400 and not line[2], line
    assert {path.name for path in tmp_path.iterdir()} == {"one"}, done.stderr


def test_a_family_in_any_case(keras_vit):
    rows = json.loads(keras_vit("list", "--family", "resnet", "--json").out)
    assert {row["family"] for row in rows} == {"ResNet"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("keras-vit recipes finetune-fl", ["finetune-flowers"]),
        ("keras-vit info R152x4:bit-m", ["R152x4:bit-m", "R152x4:bit-m-in1k"]),
        ("keras-vit fin", ["finetune"]),
    ],
)
def test_the_shell_completes(typed, offered):
    """As fish asks for it; the process is the one that its script runs."""
    environment = {**os.environ, "_KERAS_VIT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment["_TYPER_COMPLETE_ARGS"] = typed
    code = "import sys; sys.argv = ['keras-vit']; from keras_vit.cli import app; app(prog_name='keras-vit')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == offered, done.stderr

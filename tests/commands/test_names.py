"""What the commands say of names: recipes, models, and what the shell completes."""

import json
import os
import subprocess
import sys

import pytest

from keras_vit.training import RECIPES


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

"""The command as a user meets it: what it prints, and its exit codes for input that cannot be used."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_vit import cli, data, evaluation, files, inspection, training, zoo
from keras_vit import export as exporting
from keras_vit.commands import export, finetune
from keras_vit.commands.demo import run_demo
from keras_vit.errors import KerasVitError
from keras_vit.trainers.settings import MASKED_PATCHES, Settings


def in_a_process(*arguments):
    """For what only a process shows: TensorFlow's own output, the interpreter's traceback, the exit status."""
    command = [sys.executable, "-m", "keras_vit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model that knows its classes by name."""
    path = tmp_path_factory.mktemp("model") / "colours.keras"
    colours = zoo.load("ViT-Test/4", weights=None, labels=[f"colour {i}" for i in range(6)])
    for variable in colours.get_layer("head").trainable_variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    colours.save(path)
    return path


@pytest.fixture
def picture(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype="uint8")
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


COMMANDS = {name: cli.load_command(name) for name in cli.COMMANDS}


def test_the_commands(keras_vit):
    assert set(COMMANDS) == {
        "list",
        "info",
        "recipes",
        "predict",
        "embed",
        "near",
        "finetune",
        "pretrain",
        "export",
        "serve",
        "verify",
        "evaluate",
        "compare",
        "doctor",
        "fewshot",
        "probe",
        "vtab",
        "inspect",
        "preview",
        "benchmark",
        "deduplicate",
        "demo",
    }
    assert "Exit codes" in keras_vit("--help").out
    assert keras_vit("--version").out.startswith("keras-vit ")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches(name):
    done = CliRunner().invoke(cli.app, [name, "--help"])
    assert done.exit_code == 0 and len(done.output) > 300
    assert f"Example: keras-vit {name} " in COMMANDS[name].help
    for parameter in COMMANDS[name].params:
        if parameter.name != "help":
            assert parameter.help[0].isalnum() and parameter.help.endswith("."), parameter.name


@pytest.mark.parametrize("name", ["finetune", "pretrain"])
def test_every_setting_of_a_training_is_an_option(name):
    fields = {field.name: field.default for field in dataclasses.fields(Settings) if field.name != "pretrain"}
    options = {option.name: option for option in COMMANDS[name].params}
    if name == "finetune":
        fields = {field: default for field, default in fields.items() if field not in MASKED_PATCHES}
    assert set(fields) < set(options)
    own = {"protocol", "seeds"} if name == "finetune" else set()
    assert set(options) - set(fields) - {"help"} == {"out", "every", "resume"} | own
    for field, default in fields.items():
        if field not in ("model", "dataset"):
            assert options[field].default == default, field


def test_a_training_is_told_what_was_typed(monkeypatch):
    told = {}
    monkeypatch.setattr(finetune, "start_training", lambda **arguments: told.update(arguments))
    line = "finetune --data digits --out x --epochs 2.5 --test --split train+validation --every 7 --batch-size 8"
    assert CliRunner().invoke(cli.app, line.split()).exit_code == 0
    apart = ("out", "every", "resume", "pretrain", "context")
    assert {key: value for key, value in told.items() if key not in apart} == {
        **{f.name: f.default for f in dataclasses.fields(Settings) if f.name not in ("pretrain", *MASKED_PATCHES)},
        **{"dataset": "digits", "model": "ViT-B/16", "epochs": 2.5, "test": True, "split": "train+validation"},
        "batch_size": 8,
    }
    assert (str(told["out"]), told["every"], told["resume"], told["pretrain"]) == ("x", 7, False, False)


def test_list(keras_vit):
    done = keras_vit("list", "R50*")
    assert done.status == 0
    assert "R50+ViT-B/16" in done.out and "R50x1" in done.out and "ViT-H/14" not in done.out
    rows = json.loads(keras_vit("list", "*", "--json", "--max-params", "10000000", "--family", "ViT").out)
    assert {row["variant"] for row in rows} == {"ViT-Test/4", "ViT-Mini/4", "ViT-Ti/16"}


def test_info(keras_vit):
    assert json.loads(keras_vit("info", "ViT-B/16", "--json").out)[0]["parameters"] == 86_567_656
    assert "86,567,656" in keras_vit("info", "ViT-B/16").out


def test_predict(keras_vit, model, picture):
    done = keras_vit("predict", picture, picture, "--model", model, "--json")
    assert done.status == 0, done.err
    first, second = map(json.loads, done.out.splitlines())
    assert [c["class"] for c in first["classes"]] == [c["class"] for c in second["classes"]]
    for a, b in zip(first["classes"], second["classes"], strict=True):  # of one batch: rounding differs by place
        assert a["probability"] == pytest.approx(b["probability"], abs=1e-4)
    assert len(first["classes"]) == 5
    assert first["classes"][0]["class"].startswith("colour ")
    probabilities = [c["probability"] for c in first["classes"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert "picture.png" in keras_vit("predict", picture, "--model", model, "--top", "2").out


def test_a_corrupt_picture_does_not_stop_the_others(keras_vit, model, picture, tmp_path):
    torn = tmp_path / "torn.png"
    torn.write_bytes(picture.read_bytes()[:200])
    done = keras_vit("predict", torn, tmp_path / "absent.jpg", picture, "--model", model, "--json")
    assert done.status == 1
    assert json.loads(done.out)["image"] == str(picture)
    assert "torn.png cannot be read as an image" in done.err
    assert "There is no image" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("info", "ViT-B16"), 1, "Here it is called ViT-B/16"),
        (("predict", __file__, "--model", "VT-B/16"), 1, "Did you mean"),
        (("predict", __file__, "--model", "absent.npz"), 1, "There is no file absent.npz"),
        (("predict", __file__, "--model", "runs/absent"), 1, "There is no folder or file runs/absent."),
        (("list", "zzz*"), 1, "No model matches 'zzz*' and the options"),
        (("predict",), 2, "Missing argument"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_bad_input_is_a_sentence(keras_vit, arguments, code, sentence):
    done = keras_vit(*arguments)
    assert done.status == code
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_a_process_ends_with_the_sentence_and_the_status():
    for arguments, code in ((("info", "ViT-B16"), 1), (("predict",), 2)):
        done = in_a_process(*arguments)
        assert (done.returncode, done.stdout) == (code, "") and "Traceback" not in done.stderr
    assert in_a_process("info", "ViT-B/16", "--json").returncode == 0


TRAINING = "pretrain --data digits --model ViT-Test/4 --image-size 16 --out {out}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *[(f"--epochs {n}", "epochs must be positive") for n in ("0", "-1", "nan", "inf")],
        *[(f"--steps {n}", "steps must be positive") for n in ("0", "-3", 2**31)],
        *[(f"--image-size {n}", "image_size must be positive") for n in (0, -32)],
        *[(f"--learning-rate {n}", "learning_rate must be positive") for n in ("-1", "0", "nan", "inf", "1e308")],
        ("--epochs 2 --steps 4", "epochs or steps, not both"),
        ("--batch-size 100000", "larger than digits, which has 1,293"),
        *[(f"--seed {n}", "seed must be from 0") for n in (-1, 2**32)],
        ("--epochs 1e9", "total_steps must be positive"),
    ],
)
def test_numbers_that_no_run_can_have(keras_vit, tmp_path, options, sentence):
    """Before anything is loaded or written."""
    done = keras_vit(*f"{TRAINING} {options}".format(out=tmp_path / "runs/1").split())
    assert (done.status, done.err.count("\n")) == (1, 1) and sentence in done.err
    assert not list(tmp_path.iterdir())


WRITE = [name for name in COMMANDS if any(option.name == "out" for option in COMMANDS[name].params)]
NEEDED = {  # by these commands, to come to their work
    "predict": ("{picture}", "--model", "{model}"),
    "evaluate": ("{model}", "--data", "digits"),
    "compare": ("{model}", "ViT-Mini/4", "--data", "digits"),
    "doctor": ("{model}",),
    "inspect": ("{model}", "{picture}"),
    "preview": ("--data", "digits", "--model", "ViT-Test/4", "--count", "1", "--versions", "1"),
    "deduplicate": ("--data", "digits"),
}


@pytest.mark.parametrize("name", WRITE)
def test_an_address_is_no_place_to_write(keras_vit, tmp_path, monkeypatch, name):
    """It would be a folder "gs:" of this machine. Said before what else the command lacks."""
    assert len(WRITE) == 15
    monkeypatch.chdir(tmp_path)
    for place in ("gs://bucket/run.csv", "s3://bucket/run.png"):
        done = keras_vit(name, "--out", place)
        assert (done.status, done.out) == (1, "") and f"Received: {place}. Mount the bucket" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_address_is_no_place_to_write_in_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, place = zoo.load("ViT-Test/4", weights=None), "gs://bucket/place"
    recipe, digits = training.recipe("finetune-cifar10", batch_size=8, steps=2, image_size=8), data.load("digits")
    doors = [
        lambda: training.Run(place),
        lambda: recipe.callbacks(place),
        lambda: training.Checkpoints(place),
        lambda: training.search_recipe(recipe, {"learning_rate": [0.1]}, lambda _: pytest.fail("too late"), place),
        lambda: zoo.save(model, f"{place}.npz"),
        lambda: exporting.convert(model, f"{place}.onnx"),
        lambda: exporting.bundle(model, place),
        lambda: run_demo(Path(place), pytest.fail),
        lambda: data.draw_preview(digits, place),
        lambda: data.find_duplicates(digits, []).save(place),
        lambda: inspection.report(model, [np.zeros((32, 32, 3), "uint8")], place),
        lambda: evaluation.measure_speed(["ViT-Test/4"], [32], [1], record=place),
    ]
    for door in doors:
        with pytest.raises(KerasVitError, match="Received: gs://bucket/place.*Mount the bucket"):
            door()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NEEDED)
def test_a_place_that_is_none_is_said_before_any_work(keras_vit, picture, name):
    done = keras_vit(name, *NEEDED[name], "--out", picture / "p.png")
    assert done.status == 1 and f"{picture} is not a folder" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["predict", "evaluate", "inspect", "preview"])
def test_a_full_disk_is_a_sentence(keras_vit, picture, tmp_path, monkeypatch, name):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out, model = tmp_path / "out", tmp_path / "digits.keras"
    zoo.load("ViT-Test/4", weights=None, labels=[str(i) for i in range(10)]).save(model)
    monkeypatch.setattr(files.os, "fsync", full)
    needed = [word.format(model=model, picture=picture) for word in NEEDED[name]]
    done = keras_vit(name, *needed, "--out", out / "p.csv" if name == "predict" else out / "p.png")
    assert done.status == 1 and done.err.count("\n") == 1
    assert f"keras-vit: {out}" in done.err and "No space left on device. Make room there" in done.err
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {model, picture}


def test_other_errors_of_the_system_are_sentences(keras_vit, model, picture):
    done = keras_vit("predict", picture, "--model", model, "--out", "/proc/p.csv")
    assert (
        done.err
        == "keras-vit: /proc/p.csv cannot be read or written: No such file or directory. Choose another path.\n"
    )


def test_warnings_are_sentences_without_a_line_of_the_source(keras_vit):
    keras_vit("--version")
    assert (
        warnings.formatwarning("The checkpoint", UserWarning, "saver.py", 99, "save()") == "keras-vit: The checkpoint\n"
    )


def test_the_folder_of_a_run_is_a_model(keras_vit, model, picture, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(model, tmp_path / "run/model.keras")
    assert keras_vit("predict", picture, "--model", tmp_path / "run").status == 0
    training.Checkpoints(tmp_path / "begun/checkpoints").save(3, {})
    best = tmp_path / "begun/best.weights.npz"
    zoo.save(zoo.load(model), best)
    commands = (
        ("predict", picture, "--model", tmp_path / "begun"),
        ("export", tmp_path / "begun", "--out", tmp_path / "dist"),
        ("finetune", "--data", "digits", "--model", tmp_path / "begun", "--out", tmp_path / "next"),
    )
    for command in commands:
        done = keras_vit(*command)
        assert (
            done.status == 1
            and "begun is a run that has not finished (3 of all steps are saved): resume it" in done.err
            and f"best weights so far are a model too: {best}" in done.err
        )
    assert keras_vit("predict", picture, "--model", best).status == 0
    assert not (tmp_path / "dist").exists() and not (tmp_path / "next").exists()


def test_a_raw_error_shows_no_variables():
    """Whatever the version of the command library: a token may be among them."""
    code = """
import sys
from keras_vit import cli

@cli.app.command()
def fail():
    token = "hf_" + "secret"
    raise ValueError("raw")

sys.argv = ["keras-vit", "fail"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ValueError: raw" in done.stderr and "hf_secret" not in done.stderr + done.stdout


def test_weights_that_cannot_be_fetched(keras_vit, tmp_path, picture, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    done = keras_vit("predict", picture, "--model", "ViT-B/16")
    assert done.status == 1
    assert "not in the cache" in done.err


@pytest.mark.slow
def test_an_export_prints_its_own_lines_alone(model, tmp_path):
    done = in_a_process("export", model, "--to", "saved_model", "--endpoints", "features", "--out", tmp_path / "dist")
    assert (done.returncode, done.stderr) == (0, "")
    import tensorflow as tf

    assert "features" in tf.saved_model.load(str(tmp_path / "dist/saved_model/1")).signatures
    assert "check it again" in done.stdout


def test_options_with_several_values(monkeypatch):
    told = {}

    def bundle(model, out, formats, quantize, **options):
        told.update(options, formats=formats, quantize=quantize)
        return []

    monkeypatch.setattr(export.export, "bundle", bundle)
    typed = "export R20x0.5:emoji --to onnx tflite --quantize int8 --endpoints features attention --out onnx"
    parsed = "export R20x0.5:emoji --to onnx --to tflite --quantize int8 --endpoints features --endpoints attention"
    parsed += " --out onnx"
    for line in (typed, parsed):
        told.clear()
        assert CliRunner().invoke(cli.app, line.split()).exit_code == 0
        assert (told["formats"], told["endpoints"]) == (["onnx", "tflite"], ["features", "attention"])
        assert told["quantize"] == "int8"

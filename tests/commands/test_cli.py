"""The command as a user meets it: what it prints, and its exit codes for input that cannot be used."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from keras_vit import cli, training, zoo
from keras_vit.commands import demo
from keras_vit.errors import ExportError


def keras_vit(*arguments, **environment):
    import os

    command = [sys.executable, "-m", "keras_vit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


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


def test_help_teaches():
    assert "Exit codes" in keras_vit("--help").stdout
    for command in ("list", "info", "predict", "demo"):
        done = keras_vit(command, "--help")
        assert done.returncode == 0
        assert len(done.stdout) > 300


def test_list():
    done = keras_vit("list", "R50*")
    assert done.returncode == 0
    assert "R50+ViT-B/16" in done.stdout and "R50x1" in done.stdout and "ViT-H/14" not in done.stdout
    rows = json.loads(keras_vit("list", "*", "--json", "--max-params", "10000000", "--family", "ViT").stdout)
    assert {row["variant"] for row in rows} == {"ViT-Test/4", "ViT-Ti/16"}


def test_info():
    done = keras_vit("info", "ViT-B/16", "--json")
    assert json.loads(done.stdout)[0]["parameters"] == 86_567_656
    assert "86,567,656" in keras_vit("info", "ViT-B/16").stdout


def test_predict(model, picture):
    done = keras_vit("predict", picture, picture, "--model", model, "--json")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["classes"] == second["classes"]
    assert len(first["classes"]) == 5
    assert first["classes"][0]["class"].startswith("colour ")
    probabilities = [c["probability"] for c in first["classes"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert "picture.png" in keras_vit("predict", picture, "--model", model, "--top", "2").stdout


def test_a_corrupt_picture_does_not_stop_the_others(model, picture, tmp_path):
    torn = tmp_path / "torn.png"
    torn.write_bytes(picture.read_bytes()[:200])
    done = keras_vit("predict", torn, tmp_path / "absent.jpg", picture, "--model", model, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["image"] == str(picture)
    assert "torn.png cannot be read as an image" in done.stderr
    assert "There is no image" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("info", "ViT-B16"), 1, "Did you mean ViT-B/16"),
        (("predict", "x.png", "--model", "VT-B/16"), 1, "Did you mean"),
        (("predict", "x.png", "--model", "absent.npz"), 1, "There is no file absent.npz"),
        (("predict",), 2, "Missing argument"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_bad_input_is_a_sentence(arguments, code, sentence):
    done = keras_vit(*arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


TRAINING = "pretrain --data digits --model ViT-Test/4 --image-size 16 --out {out}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *[(f"--precision {name}", "float32, mixed_bfloat16, mixed_float16") for name in ("fp16", "float64", "int8")],
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
def test_numbers_that_no_run_can_have(tmp_path, monkeypatch, capsys, options, sentence):
    """Before anything is loaded or written."""
    arguments = f"{TRAINING} {options}".format(out=tmp_path / "runs/1").split()
    status, err = in_process(monkeypatch, capsys, *arguments)
    assert (status, err.count("\n")) == (1, 1) and sentence in err
    assert not list(tmp_path.iterdir())


def in_process(monkeypatch, capsys, *arguments):
    """The exit status of the command, and what it says on standard error."""
    monkeypatch.setattr(sys, "argv", ["keras-vit", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code, capsys.readouterr().err


def test_the_folder_of_a_run_is_a_model(model, picture, tmp_path, monkeypatch, capsys):
    (tmp_path / "run").mkdir()
    shutil.copy(model, tmp_path / "run/model.keras")
    assert in_process(monkeypatch, capsys, "predict", picture, "--model", tmp_path / "run")[0] == 0
    training.Checkpoints(tmp_path / "begun/checkpoints").save(3, {})
    commands = (
        ("predict", picture, "--model", tmp_path / "begun"),
        ("export", tmp_path / "begun", "--out", tmp_path / "dist"),
        ("finetune", "--data", "digits", "--model", tmp_path / "begun", "--out", tmp_path / "next"),
    )
    for command in commands:
        status, err = in_process(monkeypatch, capsys, *command)
        assert status == 1 and "begun has not finished (3 of all steps are saved)" in err
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


def test_weights_that_cannot_be_fetched(tmp_path, picture):
    environment = {"KERAS_VIT_OFFLINE": "1", "KERAS_VIT_CACHE": str(tmp_path / "cache")}
    done = keras_vit("predict", picture, "--model", "ViT-B/16", **environment)
    assert done.returncode == 1
    assert "not in the cache" in done.stderr


def test_an_export_prints_its_own_lines_alone(model, tmp_path):
    done = keras_vit("export", model, "--to", "saved_model", "--endpoints", "features", "--out", tmp_path / "dist")
    assert (done.returncode, done.stderr) == (0, "")
    import tensorflow as tf

    assert "features" in tf.saved_model.load(str(tmp_path / "dist/saved_model/1")).signatures
    assert "prove it again" in done.stdout


@pytest.mark.parametrize("name", ["digits.keras", "digits.png", "digits"])
def test_the_demo_keeps_what_is_there(tmp_path, monkeypatch, capsys, name):
    (tmp_path / name).write_text("precious")
    status, err = in_process(monkeypatch, capsys, "demo", "--out", tmp_path)
    assert status == 1 and f"{name} is there, and no demo has written it so" in err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


def test_the_demo_replaces_what_an_earlier_one_wrote(tmp_path):
    (tmp_path / "digits.keras").write_text("a demo's")
    demo.record(tmp_path)
    assert demo.writable(tmp_path) == tmp_path
    (tmp_path / "digits.keras").write_text("edited")
    with pytest.raises(ExportError, match="digits.keras is there"):
        demo.writable(tmp_path)


def test_demo_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = keras_vit("demo", "--out", tmp_path / "file" / "demo")
    assert done.returncode == 1
    assert "Nothing can be written in" in done.stderr


@pytest.mark.slow
def test_demo(tmp_path):
    """The README's first command, whole: it trains, exports three ways, proves them equal and draws the picture."""
    done = keras_vit("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("saved_model", "tflite", "onnx"):
        assert name in done.stdout
    for name in ("digits.keras", "digits.onnx", "digits.tflite", "digits/saved_model.pb"):
        assert (tmp_path / name).stat().st_size > 10_000
    with Image.open(tmp_path / "digits.png") as picture:
        assert picture.width > 800
    digit = zoo.load(tmp_path / "digits.keras")
    assert digit.labels == tuple("0123456789")


def test_options_with_several_values():
    typed = "export runs/1 --to onnx tflite --quantize int8 --endpoints features attention --out onnx"
    parsed = "export runs/1 --to onnx --to tflite --quantize int8 --endpoints features --endpoints attention --out onnx"
    assert cli.spread(typed.split()) == parsed.split()

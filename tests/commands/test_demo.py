"""`keras-vit demo`: what it shows is so, and it overwrites nothing of the user's."""

import re
import shlex
import subprocess
import sys

import pytest
from PIL import Image

from keras_vit import cli, export, zoo
from keras_vit.commands import demo
from keras_vit.errors import ExportError


@pytest.mark.parametrize("name", ["finetuned/notes.txt", "report/index.html", "digits", demo.DemoFolder.record])
def test_what_no_demo_wrote_stays(keras_vit, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    done = keras_vit("demo", "--out", tmp_path)
    refusal = "was not written by a demo|is not a folder that a demo made|is not the list of what a demo wrote"
    assert done.status == 1 and re.search(f"{name} ({refusal})", " ".join(done.err.split()))
    assert [file.read_text() for file in tmp_path.glob("**/*") if file.is_file()] == ["precious"]


def test_where_nothing_can_be_written(keras_vit, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = keras_vit("demo", "--out", tmp_path / "file" / "demo")
    assert done.status == 1
    assert "Nothing can be written in" in done.err


def pretend_demo(out, text):
    """As a demo that writes two files, and leaves the user's own beside its parts."""
    with demo.replace_parts(out):
        assert not (out / "report").exists() and not (out / "dist").exists()
        (out / "report").mkdir()
        (out / "report" / "index.html").write_text(text)
        if text == "interrupted":
            raise KeyboardInterrupt
        (out / "dist" / "saved_model").mkdir(parents=True)
        (out / "dist" / "saved_model" / "saved_model.pb").write_text(text)


def test_a_demo_replaces_what_an_earlier_one_wrote(tmp_path):
    pretend_demo(tmp_path, "first")
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        pretend_demo(tmp_path, "interrupted")
    assert not (tmp_path / "dist").exists()
    pretend_demo(tmp_path, "third")
    assert (tmp_path / "report" / "index.html").read_text() == "third"
    assert (tmp_path / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("change", ["edit", "add", "link"])
def test_a_demo_that_was_changed_stays(tmp_path, change):
    pretend_demo(tmp_path, "first")
    page = tmp_path / "report" / "index.html"
    if change == "edit":
        page.write_text("edited")
    elif change == "add":
        page.with_name("notes.txt").write_text("precious")
    else:
        page.rename(tmp_path / "elsewhere.html")
        page.symlink_to(tmp_path / "elsewhere.html")
    before = sorted((path, path.is_symlink()) for path in tmp_path.glob("**/*"))
    with pytest.raises(ExportError, match=r"(index\.html|notes\.txt) was not written by a demo, or was changed since"):
        pretend_demo(tmp_path, "second")
    assert sorted((path, path.is_symlink()) for path in tmp_path.glob("**/*")) == before


def test_a_demo_that_fails_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), demo.replace_parts(tmp_path / "new" / "demo"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()


def test_the_commands_that_are_shown_are_run(tmp_path, capsys):
    ran = []

    def parse(words):
        ran.append(words)
        cli.load_command(words[0]).make_context(words[0], words[1:])

    demo.run_commands(tmp_path / "my demo", parse)
    shown = re.findall(r"^\$ (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert [shlex.split(command) for command in shown] == [["keras-vit", *words] for words in ran]
    assert [words[0] for words in ran] == ["finetune", "pretrain", "export", "export", "inspect"]


def run_demo_in_process(out):
    command = [sys.executable, "-m", "keras_vit", "demo", "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_as_a_whole(tmp_path):
    """The README's first command; then a second one over its files."""
    out = tmp_path / "demo"
    done = run_demo_in_process(out)
    assert done.returncode == 0, done.stderr
    summary = done.stdout[done.stdout.index("Tested on 360 other digits") :]
    shares = {
        line[0]: [float(figure) for figure in re.findall(r"([\d.]+)%", line[1])]
        for line in re.findall(r"^ (fine-tuned|from random weights|fine-tuned, \w+ int8) +(.+)$", summary, re.MULTILINE)
    }
    assert len(shares) == 4
    accuracy, low, _ = shares["fine-tuned"]
    assert accuracy > 100 * demo.TARGET_ACCURACY and low > shares["from random weights"][2]
    assert all(abs(shares[f"fine-tuned, {form} int8"][0] - accuracy) <= 1 for form in ("onnx", "tflite"))
    for name in ("dist", "int8"):
        assert {report.format for report in export.verify(out / name)} >= {"onnx", "tflite"}
    assert zoo.load(out / "finetuned" / "last.weights.npz").labels == tuple("0123456789")
    page = (out / "report" / "index.html").read_text()
    assert page.count("data:image/") >= 5 and (out / "report" / "index.html").as_uri() in summary
    assert sorted(path.name for path in (out / "digits").iterdir()) == [f"{i}.png" for i in range(10)]
    with Image.open(out / "digits" / "7.png") as picture:
        assert picture.size == (8, 8)
    with demo.replace_parts(out):
        assert [path.name for path in out.iterdir()] == [demo.DemoFolder.record]

"""Names are data: neither markup, nor escape sequences, nor lines of their own, wherever they are shown."""

import contextlib
import io
import logging
import os
import pty
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from keras_vit import zoo
from keras_vit.commands import predict
from keras_vit.commands.progress import FitProgress
from keras_vit.console import Console, log
from keras_vit.errors import DataError, ImageError, printable
from keras_vit.evaluation import Predictions, draw_mistakes
from keras_vit.inference import Prediction

PLAIN = ("cat [brown]", "dog [/b]", "[/x].png", ":smile:", "größe 猫 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿", r"back\slash", "1,234 'x' https://a.b")
HOSTILE = {
    "x\x1b[31mRED\x1b]0;title\x07": r"x\x1b[31mRED\x1b]0;title\x07",
    "line\nkeras-vit: all fine\r": r"line\nkeras-vit: all fine\r",
    "a\u202egnp.exe": r"a\u202egnp.exe",
    "ma\udcf1ana": r"ma\udcf1ana",
    "\x9b31m\u2028": r"\x9b31m\u2028",
}


def shown(do):
    """What a colour terminal gets of a console, or of a logger."""
    file = io.StringIO()
    do(Console(file=file, force_terminal=True, color_system=None, width=200))
    return file.getvalue()


@pytest.mark.parametrize("name, expected", [*((name, name) for name in PLAIN), *HOSTILE.items()])
def test_names_are_shown_as_they_are(name, expected):
    assert printable(name) == expected
    assert shown(lambda console: console.print(name)) == expected + "\n"
    assert expected in str(ImageError(f"{name} cannot be read"))
    output = shown(lambda console: predict.print_classes([Prediction((name, "b"), (0.75, 0.25), name)], console))
    assert output.count(expected) == 2 and "75.0%" in output and len(output.splitlines()) == 3


@pytest.mark.slow
def test_csv_on_a_terminal_and_in_a_file(tmp_path):
    """With names of classes and of files that act, of files that are not UTF-8, and all predictions there."""
    zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=tuple(HOSTILE)).save(tmp_path / "m.keras")
    files = [b"a.png", b"=1+1.png", b"bad\xff.png", b"red\x1b[31m.png"]
    for name in files:
        image = PIL.Image.new("RGB", (16, 16))
        image.save(os.path.join(os.fsencode(tmp_path), name).decode(errors="surrogateescape"))
    names = [os.fsdecode(name) for name in files]
    command = [sys.executable, "-m", "keras_vit", "predict", *names, "--model", "m.keras"]
    ours, terminal = pty.openpty()
    with subprocess.Popen([*command, "--csv"], cwd=tmp_path, stdout=terminal, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # Linux' end of a terminal that nobody holds
            while data := os.read(ours, 1 << 16):
                shown += data
        os.close(ours)
        assert process.wait(60) == 0, process.stderr.read()
    lines, expected = shown.decode("ascii").splitlines(), ["a.png", "'=1+1.png", r"bad\udcff.png", r"red\x1b[31m.png"]
    assert all(line.isprintable() for line in lines)
    assert [line.partition(",")[0] for line in lines[1:]] == expected
    assert all(name in line for name in HOSTILE.values() for line in lines[1:])
    assert subprocess.run([*command, "--out", "out.csv"], cwd=tmp_path).returncode == 0
    assert (tmp_path / "out.csv").read_text("utf-8").splitlines() == lines


def test_logs(caplog):
    for name, expected in HOSTILE.items():
        with caplog.at_level(logging.WARNING, "keras_vit"):
            log.warning("%s cannot be read: %d", name, 3)
        assert caplog.messages[-1] == f"{expected} cannot be read: 3"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("model='https://me:PASS@h:8443/x.npz?sig=SIG'. Received", "model='https://h:8443/x.npz'. Received"),
        ("HTTP://PASS:@h/a b, https://h/x#SIG 3", "HTTP://h/a b, https://h/x 3"),
        ("http:/me:PASS@h/keras-vit-export.json is missing", "http:/h/keras-vit-export.json is missing"),
        ("https://me:PA/SS@h/x and https://me:PA?SS@h/x", "https://... and https://..."),
        ("s3://KEY:PASS@bucket/x", "s3://bucket/x"),
        *((plain, plain) for plain in ("hf://o/r@v1/x.npz: 5", "http://[::1]:9/x", "on https://h:9, C:/a#b?c")),
    ],
)
def test_addresses_are_shown_without_secrets(text, expected, caplog):
    assert str(ImageError(text)) == expected
    log.warning("%s", text)
    assert caplog.messages == [expected]


def test_metrics_are_data(capsys):
    bar = FitProgress(total=2, epochs=1, batch_size=1)
    bar.on_train_begin()
    bar.on_train_batch_end(0, {"[/b]": 0.5})
    bar.on_epoch_end(0, {"loss [red]": 0.5})
    bar.on_train_end()
    said = capsys.readouterr().out
    assert "loss [red]" in said and "0.500" in said


@pytest.mark.filterwarnings("ignore:Glyph")  # of letters that the font lacks
def test_mistakes_are_drawn_with_any_name(tmp_path):
    names = [*PLAIN, *HOSTILE, "$x^$", "$\\frac{a}$"]
    wrong = np.arange(len(names))
    images = tuple((np.zeros((4, 4, 3)), i, (i + 1) % len(names), 0.9) for i in wrong)
    found = Predictions(wrong, np.roll(wrong, 1), np.full(len(names), 0.9), images)
    draw_mistakes(found, names, tmp_path / "mistakes.png")
    assert os.path.getsize(tmp_path / "mistakes.png") > 10_000


def test_a_sentence_through_tensorflow_is_whole(tmp_path):
    """A newline in a file's name does not cut the error of a dataset."""
    assert str(DataError("a\nb cannot be read")) == r"a\nb cannot be read"

"""What must not be published: passwords, signatures and folders of this machine; and names that are not text."""

import json
import zipfile
from pathlib import Path

import keras
import onnx
import pytest

from keras_vit import export
from keras_vit.commands import export as command
from keras_vit.console import Console
from keras_vit.errors import ExportError
from keras_vit.export.description import append_description, remove_secrets
from keras_vit.export.report import Report
from keras_vit.models import VisionTransformer

TINY = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
SECRET = "https://alice:PASSWORD@host.org:8443/a%20b/m.keras?X-Amz-Signature=SIGNATURE&b=1#FRAGMENT"


@pytest.mark.parametrize(
    ("given", "published"),
    [
        (SECRET, "https://host.org:8443/a%20b/m.keras"),
        (f"from {SECRET} and hf://TOKEN@owner/repo", "from https://host.org:8443/a%20b/m.keras and hf://owner/repo"),
        ("gs://bucket/x.npz", "gs://bucket/x.npz"),
        ("https://host/x?", "https://host/x"),
        ("HTTPS://a:b@c:d@host/x", "HTTPS://host/x"),
        ("/home/alice/secret project/m.keras", "m.keras"),
        (Path("/home/alice/runs/1"), "1"),
        ("/home/alice/runs/1/", "1"),
        ("~/m.keras", "m.keras"),
        ("C:\\Users\\alice\\m.keras", "m.keras"),
        ("ViT-B/16:augreg", "ViT-B/16:augreg"),
        ("m\udcff.keras", "m\\udcff.keras"),
        ("R+ViT-Ti/16 at 50 %? #1", "R+ViT-Ti/16 at 50 %? #1"),
        ({"a": [SECRET, 5, None]}, {"a": ["https://host.org:8443/a%20b/m.keras", 5, None]}),
    ],
)
def test_metadata_tells_no_secret(given, published):
    assert remove_secrets(given) == published


def test_a_bundle_of_a_model_from_a_secret_address(tmp_path, monkeypatch, capsys):
    model = VisionTransformer(**TINY, num_classes=2, labels=("cat", "dog"))
    monkeypatch.setattr(command.zoo, "load", lambda name, image_size: model)
    for i, name in enumerate((SECRET, str(tmp_path / "alice" / "m.keras"))):
        (tmp_path / "alice").mkdir(exist_ok=True)
        (tmp_path / "alice/m.keras").touch()
        command.export_model(name, tmp_path / str(i), to=["onnx"])
        for file in (tmp_path / str(i)).iterdir():
            assert not any(x in file.read_bytes() for x in (b"PASSWORD", b"SIGNATURE", b"FRAGMENT", b"alice")), file
        source = json.loads((tmp_path / str(i) / "model.json").read_text())["source"]
        assert source == ("https://host.org:8443/a%20b/m.keras", "m.keras")[i]
    shown = capsys.readouterr().out
    assert "keras-vit verify" in shown and "PASSWORD" not in shown


def test_labels_of_a_tflite_file_have_a_line_each(tmp_path):
    labels = ["cat", "two\nlines", "\r", "page\x0c", "\u2028", "\x1b[31m", "dog [b]"]
    append_description(tmp_path / "x.tflite", {"labels": labels})
    with zipfile.ZipFile(tmp_path / "x.tflite") as archive:
        lines = archive.read("labels.txt").decode().splitlines()
        assert json.loads(archive.read("metadata.json"))["labels"] == labels
    assert len(lines) == len(labels) and lines[0] == "cat" and lines[-1] == "dog [b]"
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("labels", [("cat", "\udcff"), ("cat", 5), ("cat", None)])
@pytest.mark.parametrize("name", ("m.onnx", "m.tflite", "m"))
def test_labels_that_no_file_can_hold(labels, name, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.labels = labels
    with pytest.raises(ExportError, match="The name of class 1 must be text") as caught:
        export.convert(model, tmp_path / name)
    assert str(caught.value).isprintable() and not list(tmp_path.iterdir())


def test_odd_names_are_data_not_markup(tmp_path):
    console = Console(record=True, width=300)
    report = Report("onnx", "x", None, 1, 1, 1, 0.0, 0.0, 1.0, None, None, None, 4, (1, 3), None)
    console.print("[/x] a[brown] \x1b]0;title\x07\nfalse line")
    console.print(command.tabulate_reports([report], "[/b]d[red]\x1b[31m\n: every"))
    text = console.export_text()
    assert "[/x] a[brown] \\x1b]0;title\\x07\\nfalse line" in text and "[/b]d[red]\\x1b[31m\\n: every" in text


def test_the_onnx_file_of_labels_with_newlines(tmp_path):
    model = VisionTransformer(**TINY, num_classes=2, labels=("two\nlines", "\x1b[31m"))
    export.convert(model, tmp_path / "m.onnx", metadata={"source": SECRET})
    properties = {x.key: x.value for x in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(properties["labels"]) == ["two\nlines", "\x1b[31m"]
    assert properties["source"] == "https://host.org:8443/a%20b/m.keras"

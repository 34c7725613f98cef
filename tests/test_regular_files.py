"""Files that are opened only if they are regular, JSON of bounded size, and what is written whole, and where."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_vit import export, files, inspection, training, zoo
from keras_vit.commands import shared
from keras_vit.errors import ConfigError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, "ü"]}', "utf-8")
    return path


def test_a_regular_file_is_read(file):
    assert files.read_json(file, 100) == {"a": [1, "ü"]}
    with files.open_regular(file) as opened:
        assert opened.read() == file.read_bytes()


def test_links_are_followed_only_when_asked(file, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(file)
    with pytest.raises(OSError):
        files.read_json(link, 100)
    with pytest.raises(OSError):
        files.sha256_of_regular(link)
    assert files.read_json(link, 100, follow_links=True) == files.read_json(file, 100)
    assert files.sha256(link) == files.sha256_of_regular(file)


@pytest.mark.parametrize("follow_links", [True, False])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_file_is_neither_read_nor_waited_for(tmp_path, make, follow_links):
    make(tmp_path / "other")
    with pytest.raises(OSError):
        files.open_regular(tmp_path / "other", follow_links=follow_links)
    with pytest.raises(OSError):
        files.open_regular("/dev/zero", follow_links=follow_links)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", "ü".encode("utf-16")])
def test_damaged_json(file, content):
    file.write_bytes(content)
    with pytest.raises(ValueError):
        files.read_json(file, 100)


def test_json_that_is_too_long(file):
    file.write_bytes(b"[" + b" " * 98 + b"]")
    assert files.read_json(file, 100) == []
    with pytest.raises(ValueError, match="it has more than 99 bytes"):
        files.read_json(file, 99)


PLACES = ["gs://bucket/run", "s3://b/x.npz", "hdfs://host:9000/x", "https://user:secret@host/x", "file:///x"]


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("place", PLACES)
def test_an_address_is_no_place_to_write(tmp_path, monkeypatch, place, kind):
    monkeypatch.chdir(tmp_path)
    for write in (files.write_whole, files.make_folder):
        with pytest.raises(ConfigError, match=f"Received: {place[:4]}.*Mount the bucket") as caught, write(kind(place)):
            pass
        assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["./gs:/x", "a:b/c", "C:/x", "x/gs://y", "a b://c"])
def test_paths_are_no_addresses(place):
    assert files.local_path(place) == Path(place)


def test_a_home_is_where_it_is(tmp_path, monkeypatch):
    """A shell leaves --out=~/x as it is; no folder is named ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, num_classes=3)
    zoo.save(model, "~/model.npz")
    export.bundle(model, "~/bundle", formats=["onnx"])
    assert export.convert(model, "~/model.onnx").path == str(tmp_path / "model.onnx")
    inspection.report(model, [np.zeros((16, 16, 3), "uint8")], "~/pages/page.html")
    run = training.Run("~/runs/1")
    assert run.folder == run.store.folder.parent == shared.try_folder(Path("~/runs/1")) == tmp_path / "runs/1"
    assert {"bundle", "model.npz", "model.onnx", "pages"} <= set(os.listdir()) and not Path("./~").exists()
    assert export.verify("~/bundle")[0].top1_agreement == 1.0


@pytest.mark.parametrize("make", [os.symlink, os.link, lambda victim, path: os.mkfifo(path)])
def test_what_has_the_temporary_name_is_replaced_and_not_followed(file, tmp_path, make):
    make(file, tmp_path / "partial.new")
    with files.write_whole(tmp_path / "new", tmp_path / "partial.new") as path:
        assert path == tmp_path / "partial.new"
        path.write_text("new")
    assert (tmp_path / "new").read_text() == "new" and (tmp_path / "new").lstat().st_nlink == 1
    assert "ü" in file.read_text("utf-8") and len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_process_left_is_removed(tmp_path):
    """As soon as it cannot be another process that writes the same file just now."""
    code = "import os, sys; from keras_vit import files\nwith files.write_whole(sys.argv[1]): os.kill(os.getpid(), 9)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.npz")])
    old, new = tmp_path.iterdir()
    os.utime(old, (0, 0))
    (tmp_path / f".{'0' * 16}.b.npz").touch()
    os.utime(tmp_path / f".{'0' * 16}.b.npz", (0, 0))
    with files.write_whole(tmp_path / "a.npz") as path:
        path.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", new.name, f".{'0' * 16}.b.npz"}

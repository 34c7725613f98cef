"""Where exports go: what no export wrote stays, whatever fails, and a killed export loses nothing."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from keras_vit.errors import ExportError
from keras_vit.export.staging import listing, placing
from keras_vit.export.staging.stage import HIDDEN, stage
from keras_vit.files import sha256_of_regular

OLD = {"README.md": "old card", "model.json": "old", "model.tflite": "old", "saved_model/1/saved_model.pb": "old"}
NEW = {"README.md": "new card", "model.json": "new", "model.onnx": "new"}
MINE = {"thesis.docx": "mine", "src/app.js": "mine", ".git/HEAD": "mine", "saved_model/notes.txt": "mine"}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    """{name: text} of every file below the folder but manifests."""
    return {name: (folder / name).read_text() for name in listing.files_in(folder) if listing.MANIFEST not in name}


def export_folder(path, files, names=None, tell=None):
    with stage(path, files if names is None else names, is_folder=True, tell=tell) as staging:
        write(staging, files)


def append(path, key, text):
    with open(path, "a") as file:
        file.write(f"{key} {text}")


def export_file(path, text, data=None):
    """A sealed file, and one with external data of that content."""
    with stage(path, (path.name,), is_folder=False) as staging:
        names = [] if data is None else [f"{path.stem}-{data}.onnx.data"]
        write(staging.parent, {path.name: text, **dict.fromkeys(names, data)})
        listing.seal(staging, append, names)


def test_a_former_bundle_is_replaced_and_nothing_else(tmp_path):
    lines = []
    write(tmp_path, MINE)
    export_folder(tmp_path, OLD)
    export_folder(tmp_path, NEW, tell=lines.append)
    assert contents(tmp_path) == {**MINE, **NEW}
    assert len(lines) == 1 and lines[0].endswith("model.tflite, saved_model/1/saved_model.pb")
    assert not (tmp_path / "saved_model/1").exists()
    assert sorted(listing.read_manifest(tmp_path)) == sorted(NEW)


@pytest.mark.parametrize(
    ("before", "named"),
    [
        ({"model.json": "{}", **MINE}, "model.json"),
        ({"model.onnx": "torch's", **MINE}, "model.onnx"),
        ({"README.md/notes.txt": "mine"}, "README.md"),
        ({"saved_model": "a file"}, "saved_model"),
        ({listing.MANIFEST: "{}"}, listing.MANIFEST),
        ({listing.MANIFEST: "[" * 100_000}, listing.MANIFEST),
    ],
)
def test_what_no_export_wrote_stays_and_is_named(before, named, tmp_path):
    write(tmp_path, before)
    kept = {name: (tmp_path / name).read_text() for name in before}
    with pytest.raises(ExportError, match=named):
        export_folder(tmp_path, {**NEW, "saved_model/1/saved_model.pb": "new"})
    assert {name: (tmp_path / name).read_text() for name in listing.files_in(tmp_path)} == kept


@pytest.mark.parametrize("edited", ("README.md", "model.tflite"))
def test_an_edited_file_is_the_users(edited, tmp_path):
    export_folder(tmp_path, OLD)
    (tmp_path / edited).write_text("edited")
    with pytest.raises(ExportError, match=f"{edited} was changed"):
        export_folder(tmp_path, NEW)
    assert contents(tmp_path) == {**OLD, edited: "edited"}


def test_a_file_that_comes_while_the_export_works_stays(tmp_path):
    with pytest.raises(ExportError, match="model.json"), stage(tmp_path / "dist", (), is_folder=True) as staging:
        write(staging, NEW)
        write(tmp_path / "dist", {"model.json": "mine"})
    assert contents(tmp_path) == {"dist/model.json": "mine"}


def test_links_in_the_way_are_not_followed(tmp_path):
    write(tmp_path, {"mine/README.md": "mine"})
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/README.md").symlink_to("../mine/README.md")
    with pytest.raises(ExportError, match="README.md"):
        export_folder(tmp_path / "dist", NEW)
    (tmp_path / "dist/README.md").unlink()
    (tmp_path / "dist" / HIDDEN).symlink_to("../mine")
    with pytest.raises(ExportError, match="failed"):
        export_folder(tmp_path / "dist", NEW)
    assert (tmp_path / "mine/README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ("../thesis.docx", "/etc/passwd", "thesis.docx", ".git/HEAD", "assets/../thesis.docx"))
def test_a_foreign_manifest_removes_nothing(name, tmp_path):
    write(tmp_path, {"thesis.docx": "mine", "dist/thesis.docx": "mine", "dist/.git/HEAD": "mine"})
    digest = sha256_of_regular(tmp_path / "thesis.docx")
    listed = {"made_by": listing.MAKER, "format": listing.FORMAT, "files": {name: digest}}
    write(tmp_path, {f"dist/{listing.MANIFEST}": json.dumps(listed)})
    before = contents(tmp_path)
    with pytest.raises(ExportError, match="which no export writes"):
        export_folder(tmp_path / "dist", NEW)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("part", ("old", "new"))
def test_a_foreign_journal_touches_nothing(part, tmp_path):
    write(tmp_path, {"thesis.docx": "mine", f"dist/{HIDDEN}/old/README.md": "foreign", "dist/README.md": "mine"})
    digest = sha256_of_regular(tmp_path / "thesis.docx")
    for name, sentence in (("../thesis.docx", "damaged"), ("README.md", "was changed")):
        journal = {"old": {}, "new": {}, part: {name: digest if part == "new" and ".." in name else "0" * 64}}
        write(tmp_path, {f"dist/{HIDDEN}/{placing.JOURNAL}": json.dumps(journal)})
        with pytest.raises(ExportError, match=sentence):
            export_folder(tmp_path / "dist", NEW)
    assert (tmp_path / "thesis.docx").read_text() == (tmp_path / "dist/README.md").read_text() == "mine"


def test_a_foreign_hidden_folder_loses_nothing(tmp_path):
    """One that holds a thesis, and one whose old files lie behind a link."""
    hidden, dist = tmp_path / "dist" / HIDDEN, tmp_path / "dist"
    write(tmp_path, {"user/README.md": "mine"})
    write(hidden, {"thesis.docx": "mine"})
    with pytest.raises(ExportError, match="thesis.docx is in the folder in which an export works"):
        export_folder(dist, NEW)
    (hidden / "thesis.docx").rename(tmp_path / "thesis.docx")
    (hidden / "old").symlink_to(tmp_path / "user")
    write(hidden, {placing.JOURNAL: json.dumps({"old": {"README.md": "0" * 64}, "new": {}})})
    with pytest.raises(ExportError, match="old is not a folder that an export made"):
        export_folder(dist, NEW)
    assert (tmp_path / "user/README.md").read_text() == (tmp_path / "thesis.docx").read_text() == "mine"


def test_single_files(tmp_path):
    path = tmp_path / "vit.onnx"
    write(tmp_path, {"vit-notes.onnx.data": "mine", "vit-000000000000.onnx.data": "mine"})
    export_file(path, "one", data="1" * 12)
    export_file(path, "two", data="2" * 12)
    assert sorted(os.listdir(tmp_path)) == [
        "vit-000000000000.onnx.data",
        "vit-222222222222.onnx.data",
        "vit-notes.onnx.data",
        "vit.onnx",
    ]
    assert path.read_text().startswith("two")
    with open(path, "ab") as file:
        file.write(b"edited")
    with pytest.raises(ExportError, match="vit.onnx was not written by an export, or was changed"):
        export_file(path, "three")
    path.unlink()
    path.symlink_to(tmp_path / "vit-notes.onnx.data")
    with pytest.raises(ExportError):
        export_file(path, "three")
    assert (tmp_path / "vit-notes.onnx.data").read_text() == "mine"


def test_a_sealed_file_of_its_own_export_is_replaced_by_a_bundle(tmp_path):
    export_file(tmp_path / "model.onnx", "one")
    export_folder(tmp_path, NEW)
    assert contents(tmp_path) == NEW


def test_here(tmp_path, monkeypatch):
    """`--out .`: the folder stays the one that the shell is in."""
    write(tmp_path, MINE)
    monkeypatch.chdir(tmp_path)
    for files in (OLD, NEW):
        export_folder(Path("."), files)
    assert contents(Path(".")) == contents(tmp_path) == {**MINE, **NEW}


def test_a_link_to_a_folder_stays_one(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "dist").symlink_to("disk")
    for files in (OLD, NEW):
        export_folder(tmp_path / "dist", files)
    assert (tmp_path / "dist").is_symlink() and contents(tmp_path / "disk") == NEW


def test_nothing_beside_the_folder_is_touched(tmp_path, monkeypatch):
    """As a mount point, or a folder whose parent cannot be written: only names inside it are made or removed."""
    home = tmp_path / "dist"
    export_folder(home, OLD)
    touched = []
    for name in ("replace", "rename", "mkdir", "unlink", "rmdir", "link"):
        real = getattr(os, name)

        def watched(path, *args, real=real, **kwargs):
            touched.append(path)
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, name, watched)
    export_folder(home, NEW)
    made = [Path(path) for path in touched if isinstance(path, str | Path) and Path(path).is_absolute()]
    assert len(made) > 8 and all(home in path.parents for path in made if path != home)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount")
def test_a_mount_point_that_fills_up(tmp_path):
    home = tmp_path / "volume"
    home.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)]
    if subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        for files in (OLD, NEW):
            export_folder(home, files)
        with pytest.raises(ExportError, match="No space left"):
            export_folder(home, {**NEW, "model.onnx": "x" * 2_000_000})
        assert contents(home) == NEW
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_no_hard_links(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise OSError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    export_folder(tmp_path, OLD)
    real, count = os.replace, []

    def failing(source, target):
        count.append(target)
        if len(count) == 3:
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(ExportError, match="Input/output error"):
        export_folder(tmp_path, NEW)
    assert contents(tmp_path) == OLD and HIDDEN not in os.listdir(tmp_path)


def test_two_exports_at_once(tmp_path):
    with stage(tmp_path / "dist", (), is_folder=True) as staging:
        write(staging, NEW)
        with pytest.raises(ExportError, match="Another export"):
            export_folder(tmp_path / "dist", OLD)
        assert contents(staging) == NEW
    assert contents(tmp_path / "dist") == NEW


@pytest.mark.parametrize("path", ("file", "file/dist", "x" * 300))
def test_places_where_nothing_can_be(path, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExportError):
        export_folder(tmp_path / path, NEW)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", (ZeroDivisionError, KeyboardInterrupt))
def test_a_failed_export_leaves_no_folders(error, tmp_path):
    with pytest.raises(error), stage(tmp_path / "a/b", (), is_folder=True):
        raise error
    assert os.listdir(tmp_path) == []


KILLED = """
    import os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import test_placing as t

    os.fsync = lambda file: None  # a killed process leaves what it wrote
    CALLS = ("replace", "link", "unlink", "mkdir", "rmdir", "fsync", "open")

    def die_at(n):
        left = [n]
        for name in CALLS:
            def call(*args, real=getattr(os, name), **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)
            setattr(os, name, call)

    def killed(n, work):
        pid = os.fork()
        if pid == 0:
            die_at(n)
            work()
            os._exit(0)
        return os.waitpid(pid, 0)[1] == signal.SIGKILL

    def give_up(path, is_folder):
        try:
            with t.stage(path, (), is_folder=is_folder):
                raise InterruptedError
        except t.ExportError:
            pass

    def folder(home):
        states, n = set(), 0
        t.write(home, t.MINE)
        t.export_folder(home, t.OLD)
        while killed(n, lambda: t.export_folder(home, t.NEW)):
            found = t.contents(home)
            assert all(found[name] == text for name, text in t.MINE.items()), (n, found)
            assert all(found[name] in ("old card", "new card") for name in ["README.md"]), (n, found)
            killed(n // 2, lambda: give_up(home, True))  # an undoing that is killed, too
            give_up(home, True)
            found = t.contents(home)
            assert found in ({{**t.MINE, **t.OLD}}, {{**t.MINE, **t.NEW}}), (n, found)
            assert t.HIDDEN not in os.listdir(home), n
            states.add(found["README.md"])
            t.export_folder(home, t.OLD)
            n += 1
        assert t.contents(home) == {{**t.MINE, **t.NEW}}
        return n, states

    def file(home):
        states, n, path = set(), 0, home / "vit.onnx"
        t.export_file(path, "one", data="1" * 12)
        while killed(n, lambda: t.export_file(path, "two", data="2" * 12)):
            def whole():
                text = path.read_text()
                digit = {{"one": "1", "two": "2"}}[text[:3]]
                assert (home / f"vit-{{digit * 12}}.onnx.data").read_text() == digit * 12, n
                assert t.listing.read_seal(path) is not None, n
                return text[:3]
            whole()
            give_up(path, False)
            states.add(whole())
            assert len(os.listdir(home)) == 2, (n, os.listdir(home))
            t.export_file(path, "one", data="1" * 12)
            n += 1
        return n, states

    for name, work in (("folder", folder), ("file", file)):
        home = Path({home!r}) / name
        home.mkdir()
        n, states = work(home)
        assert n > 15 and len(states) == 2, (n, states)
        print(name, n)
"""


def test_an_export_killed_at_any_step_leaves_the_former_one_or_the_new_one(tmp_path):
    """SIGKILL before each call that changes the disk, of a whole export and of the undoing after it."""
    script = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parent), home=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[::2] == ["folder", "file"]

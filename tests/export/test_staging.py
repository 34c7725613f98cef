"""Where exports go: what no export wrote stays, whatever fails, and the next export mends what a kill left."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from keras_vit.errors import ExportError
from keras_vit.export.staging import FORMAT, HIDDEN, MAKER, MANIFEST, ExportFolder, seal, stage
from keras_vit.export.verification import require_intact
from keras_vit.files import sha256_of_regular
from keras_vit.owned import files_in

OLD = {"README.md": "old card", "model.json": "old", "model.tflite": "old", "saved_model/1/saved_model.pb": "old"}
NEW = {"README.md": "new card", "model.json": "new", "model.onnx": "new"}
MINE = {"thesis.docx": "mine", "src/app.js": "mine", ".git/HEAD": "mine", "saved_model/notes.txt": "mine"}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    """{name: text} of every file below the folder but manifests."""
    return {name: (folder / name).read_text() for name in files_in(folder) if MANIFEST not in name}


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
        seal(staging, append)


def test_a_former_bundle_is_replaced_and_nothing_else(tmp_path):
    lines = []
    write(tmp_path, MINE)
    export_folder(tmp_path, OLD)
    export_folder(tmp_path, NEW, tell=lines.append)
    assert contents(tmp_path) == {**MINE, **NEW}
    assert len(lines) == 1 and lines[0].endswith("model.tflite, saved_model/1/saved_model.pb")
    assert not (tmp_path / "saved_model/1").exists()
    assert sorted(ExportFolder(tmp_path).digests()) == sorted(NEW)


def foreign(name, digest="0" * 64):
    return json.dumps({"made_by": MAKER, "format": FORMAT, "files": {name: digest}})


def test_what_no_export_wrote_stays_and_is_named(tmp_path):
    """Files in the way, and manifests that list what no export writes, to have it removed."""
    write(tmp_path, {"thesis.docx": "mine"})
    thesis = sha256_of_regular(tmp_path / "thesis.docx")
    outside = ("../../thesis.docx", "/etc/passwd", "thesis.docx", ".git/HEAD", "saved_model/1/../../thesis.docx")
    rows = [
        ("model.json", {"model.json": "{}", **MINE}),
        ("model.onnx", {"model.onnx": "torch's", **MINE}),
        ("README.md", {"README.md/notes.txt": "mine"}),
        ("saved_model", {"saved_model": "a file"}),
        (MANIFEST, {MANIFEST: "{}"}),
        (MANIFEST, {MANIFEST: "[" * 100_000}),
        ("thesis.docx is in the working folder of exports", {f"{HIDDEN}/thesis.docx": "mine"}),
        *((MANIFEST, {MANIFEST: foreign(name, thesis), **MINE}) for name in outside),
        ("README.md", {MANIFEST: foreign("README.md"), "README.md": "mine"}),
    ]
    for i, (named, before) in enumerate(rows):
        home = tmp_path / f"{i}/dist"
        write(home, before)
        with pytest.raises(ExportError, match=named):
            export_folder(home, {**NEW, "saved_model/1/saved_model.pb": "new"})
        assert {name: (home / name).read_text() for name in files_in(home)} == before, (named, before)
    assert (tmp_path / "thesis.docx").read_text() == "mine"


def test_an_edited_file_is_the_users(tmp_path):
    for edited in ("README.md", "model.tflite"):
        home = tmp_path / edited
        export_folder(home, OLD)
        (home / edited).write_text("edited")
        with pytest.raises(ExportError, match=f"{edited} was not written by an export, or was changed since"):
            export_folder(home, NEW)
        assert contents(home) == {**OLD, edited: "edited"}


def test_a_file_that_comes_while_the_export_works_stays(tmp_path):
    with pytest.raises(ExportError, match="model.json"), stage(tmp_path / "dist", (), is_folder=True) as staging:
        write(staging, NEW)
        write(tmp_path / "dist", {"model.json": "mine"})
    assert contents(tmp_path) == {"dist/model.json": "mine"}


def test_a_file_that_no_export_writes_is_refused(tmp_path):
    with pytest.raises(ExportError, match="needs the file assets/vocabulary beside it"):
        export_folder(tmp_path / "dist", {**NEW, "assets/vocabulary": "x"})
    assert os.listdir(tmp_path) == []


def test_links_in_the_way_are_not_followed(tmp_path):
    mine, dist = tmp_path / "mine", tmp_path / "dist"
    write(mine, {"README.md": "mine", "lock": "mine"})
    export_folder(dist, OLD)
    for name, target in (
        ("README.md", mine / "README.md"),
        (MANIFEST, mine / "README.md"),
        (f"partial.{MANIFEST}", mine / "README.md"),
        (HIDDEN, mine),
        (f"{HIDDEN}/old", mine),
        (f"{HIDDEN}/new", mine),
        (f"{HIDDEN}/lock", mine / "lock"),
    ):
        kept = (dist / name).read_bytes() if (dist / name).exists() else None
        (dist / name).unlink(missing_ok=True)
        (dist / name).parent.mkdir(exist_ok=True)
        (dist / name).symlink_to(target)
        if name.startswith("partial."):  # this name is the export's own: the link goes
            export_folder(dist, OLD)
        else:
            with pytest.raises(ExportError, match=r"README\.md|export\.json|\.keras-vit-export|symbolic links"):
                export_folder(dist, NEW)
            (dist / name).unlink()
        if kept is not None:
            (dist / name).write_bytes(kept)
        assert contents(mine) == {"README.md": "mine", "lock": "mine"}, name
    export_folder(dist, NEW)
    assert contents(dist) == NEW and HIDDEN not in os.listdir(dist)


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
    with pytest.raises(ExportError, match=r"vit-0{12}\.onnx\.data was not written by an export"):
        export_file(path, "three", data="0" * 12)
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


def test_here_and_a_link_to_a_folder(tmp_path, monkeypatch):
    """`--out .`: the folder stays the one that the shell is in; a link stays one."""
    write(tmp_path / "disk", MINE)
    (tmp_path / "dist").symlink_to("disk")
    monkeypatch.chdir(tmp_path / "disk")
    for path, files in ((Path("."), OLD), (tmp_path / "dist", NEW)):
        export_folder(path, files)
        assert contents(Path(".")) == contents(tmp_path / "disk") == {**MINE, **files}
    assert (tmp_path / "dist").is_symlink()


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


def refuse_once(patch, at):
    """Makes the call number `at` that puts a file in its place, or removes one, raise an OSError."""
    count = []

    def watch(real):
        def call(path, *others, **options):
            if f"{HIDDEN}/" not in str(path) or f"{HIDDEN}/new" in str(path):
                count.append(path)
                if len(count) == at:
                    raise OSError(5, "Input/output error")
            return real(path, *others, **options)

        return call

    for name in ("replace", "unlink"):
        patch.setattr(os, name, watch(getattr(os, name)))


def refuse_links(*paths):
    raise OSError("no hard links here")


def read_all(folder):
    return {name: (folder / name).read_bytes() for name in files_in(folder)}


@pytest.mark.parametrize("linked", (True, False))
def test_an_error_between_two_renames_leaves_what_stood_before(linked, tmp_path, monkeypatch):
    """Also where there are no hard links."""
    export_folder(tmp_path / "dist", OLD)
    export_file(tmp_path / "vit.onnx", "one", data="1" * 12)
    for work, least in (
        (lambda: export_folder(tmp_path / "dist", NEW), 8),
        (lambda: export_file(tmp_path / "vit.onnx", "two", data="2" * 12), 3),
    ):
        before, failed = read_all(tmp_path), True
        at = 0
        while failed:
            at += 1
            with monkeypatch.context() as patch:
                refuse_once(patch, at)
                if not linked:
                    patch.setattr(os, "link", refuse_links)
                try:
                    work()
                    failed = False
                except ExportError as error:
                    assert "Input/output error" in str(error) and "unchanged" in str(error), at
                    assert read_all(tmp_path) == before, at
        assert at > least and read_all(tmp_path) != before


def test_what_cannot_be_put_back_is_said_and_mended(tmp_path, monkeypatch):
    export_folder(tmp_path, OLD)
    real, count = os.replace, []

    def failing(*paths):
        count.append(paths)
        if len(count) > 2:
            raise OSError(5, "Input/output error")
        real(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(ExportError, match="could not be put back: Input/output error. Write there again"):
            export_folder(tmp_path, NEW)
    with pytest.raises(ExportError, match="was cut off"):
        require_intact(tmp_path)
    export_folder(tmp_path, NEW)
    assert contents(tmp_path) == NEW


def test_two_exports_at_once(tmp_path):
    with stage(tmp_path / "dist", (), is_folder=True) as staging:
        write(staging, NEW)
        with pytest.raises(ExportError, match="Another export"):
            export_folder(tmp_path / "dist", OLD)
        assert contents(staging) == NEW
    assert contents(tmp_path / "dist") == NEW and HIDDEN not in os.listdir(tmp_path / "dist")


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
    import test_staging as t
    from keras_vit.export.staging import read_seal

    os.fsync = lambda file: None  # a killed process leaves what it wrote
    CALLS = ("replace", "link", "unlink", "mkdir", "rmdir", "fsync", "open")
    OLD, NEW = ({{**files, "examples.npz": text}} for files, text in ((t.OLD, "old"), (t.NEW, "new")))

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

    def is_whole(home):
        try:
            return bool(t.require_intact(home))
        except t.ExportError:
            return False

    def folder(home):
        states, n = [], 0
        t.write(home, t.MINE)
        t.export_folder(home, OLD)
        while killed(n, lambda: t.export_folder(home, NEW)):
            found = t.contents(home)
            assert all(found[name] == text for name, text in t.MINE.items()), (n, found)
            for name in ("README.md", "model.json", "examples.npz"):
                assert found[name] in (OLD[name], NEW[name]), (n, name, found)
            if is_whole(home):
                bundle = {{name: text for name, text in found.items() if name in {{**OLD, **NEW}}}}
                assert bundle in (OLD, NEW), (n, bundle)
                states.append(bundle["README.md"])
            else:
                states.append("refused")
            killed(n // 2, lambda: t.export_folder(home, OLD))  # the mending is killed, too
            mended = (OLD, NEW)[n % 2]
            t.export_folder(home, mended)
            assert is_whole(home) and t.contents(home) == {{**t.MINE, **mended}}, n
            assert not [name for name in os.listdir(home) if name in (t.HIDDEN, "partial." + t.MANIFEST)], n
            t.export_folder(home, OLD)
            n += 1
        assert t.contents(home) == {{**t.MINE, **NEW}}
        return n, states

    def file(home):
        states, n, path = [], 0, home / "vit.onnx"
        t.export_file(path, "one", data="1" * 12)
        while killed(n, lambda: t.export_file(path, "two", data="2" * 12)):
            def whole():
                text = path.read_text()
                digit = {{"one": "1", "two": "2"}}[text[:3]]
                assert (home / f"vit-{{digit * 12}}.onnx.data").read_text() == digit * 12, n
                assert read_seal(path) is not None, n
                return text[:3]
            states.append(whole())
            killed(n // 2, lambda: t.export_file(path, "two", data="2" * 12))
            whole()
            t.export_file(path, "one", data="1" * 12)
            assert len(os.listdir(home)) == 2 and whole() == "one", (n, os.listdir(home))
            n += 1
        return n, states

    for name, work, seen in (("folder", folder, ["old card", "refused", "new card"]), ("file", file, ["one", "two"])):
        home = Path({home!r}) / name
        home.mkdir()
        n, states = work(home)
        assert n > 15 and list(dict.fromkeys(states)) == seen, (n, states)
        print(name, n)
"""


@pytest.mark.slow
def test_an_export_killed_at_any_step_is_complete_or_refused_and_the_next_one_mends_it(tmp_path):
    """SIGKILL before each call that changes the disk; a single file is always the old one or the new one."""
    script = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parent), home=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[::2] == ["folder", "file"]

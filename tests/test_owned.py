"""A folder with a record replaces what was written there and nothing else; records are read with fields checked."""

import json
import os
import re
import shutil
import signal

import pytest

from keras_vit.errors import ConfigError, RecordError
from keras_vit.files import read_record
from keras_vit.owned import OwnFolder, lock


class Notes(OwnFolder):
    record, names, writer, error = (
        "kept/notes.json",
        re.compile(r"(sub/)?\w+\.txt|\.\./victim\.txt"),
        "a note taker",
        ConfigError,
    )


def write(notes, name, text):
    with notes.writing(name) as path:
        path.write_text(text)


def test_own_files_are_replaced_and_foreign_and_edited_ones_refused(tmp_path):
    notes = Notes(tmp_path)
    for text in ("one", "two"):
        notes.require_own(["a.txt", "b.txt"])
        write(notes, "a.txt", text)
    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"b\.txt was not written by a note taker"):
        notes.require_own(["a.txt", "b.txt"])
    (tmp_path / "b.txt").unlink()
    (tmp_path / "a.txt").write_text("edited")
    with pytest.raises(ConfigError, match=r"a\.txt was not written .* changed"):
        notes.require_own(["a.txt", "b.txt"])
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").symlink_to("elsewhere")
    with pytest.raises(ConfigError, match=r"a\.txt"):
        notes.require_own(["a.txt"])


def test_links_are_not_followed(tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    notes = Notes(tmp_path / "folder")
    write(notes, "a.txt", "one")
    (notes.path / "partial.a.txt").symlink_to(victim)
    (notes.path / "kept/partial.notes.json").symlink_to(victim)
    write(notes, "a.txt", "two")
    (notes.path / "sub").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="sub is not a folder"):
        notes.require_own(["sub/victim.txt"])
    assert victim.read_text() == "mine" and (notes.path / "a.txt").read_text() == "two"


@pytest.mark.parametrize(
    "files",
    ({"../victim.txt": "0" * 64}, {"thesis.docx": "0" * 64}, {"a.txt": "0"}, {"a.txt": 5}, [], None, "[" * 10**5),
)
def test_a_foreign_record_is_refused(files, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/notes.json").write_text(files if isinstance(files, str) else json.dumps({"files": files}))
    with pytest.raises(ConfigError, match="not the list of what a note taker wrote"):
        Notes(tmp_path).require_own([])


def killed(work, at):
    """Whether a child process that does some work was killed, before the call number `at` that changes the disk."""
    pid = os.fork()
    if pid == 0:
        left = [at]

        def watch(real):
            def call(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in ("replace", "link", "unlink", "mkdir", "rmdir", "fsync", "open"):
            setattr(os, name, watch(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.slow
def test_what_a_kill_leaves_is_known(tmp_path):
    """Before each call that changes the disk, of writing a file and of taking the files of a folder."""

    def take(number):
        staging = tmp_path / f"staging{number}"
        shutil.rmtree(staging, ignore_errors=True)
        (staging / "new/sub").mkdir(parents=True)
        (staging / f"new/{number}.txt").write_text(str(number))
        (staging / "new/sub/both.txt").write_text(str(number))
        notes.take(staging)

    notes, at = Notes(tmp_path / "notes"), 0
    take(1)
    while killed(lambda: (take(2), write(notes, "more.txt", "more")), at):
        take(3)
        assert (notes.path / "sub/both.txt").read_text() == "3" and sorted(notes.digests()) == ["3.txt", "sub/both.txt"]
        assert not any(name.is_dir() for name in (notes.path / "sub").iterdir())
        take(1)
        assert not (notes.path / "3.txt").exists() and not (notes.path / "more.txt").exists()
        at += 1
    assert at > 15


def test_one_process_holds_a_lock(tmp_path):
    path, busy = tmp_path / "lock", ConfigError("Another process works here.")
    with lock(path, busy):
        with pytest.raises(ConfigError, match="Another"), lock(path, busy):
            pass
    assert os.listdir(tmp_path) == []


KINDS = {
    "count": int,
    "share": (None, float),
    "names": [str],
    "files": {str: [int]},
    "way": ("a", "b"),
    "inner": {"x": int, "y?": str},
    "even": lambda value: value in (2, 4),
}
RIGHT = {
    "count": 1,
    "share": 0.5,
    "names": ["x"],
    "files": {"x": [1]},
    "way": "a",
    "inner": {"x": 1},
    "even": 2,
    "z": 1,
}


def test_a_record_is_read_with_every_field_checked(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RIGHT))
    assert read_record(path, KINDS, what="a record") == RIGHT
    wrong = [("count", True), ("count", 1.0), ("share", "x"), ("share", 10**400), ("names", [1]), ("names", {})]
    wrong += [("files", {"x": [None]}), ("files", []), ("way", "c"), ("inner", {}), ("inner", {"x": 1, "y": 2})]
    for name, value in [*wrong, ("even", 3), ("even", None)]:
        path.write_text(json.dumps({**RIGHT, name: value}))
        with pytest.raises(RecordError, match=rf"is not a record: its field '{name}"):
            read_record(path, KINDS, what="a record")


def test_a_damaged_record_is_one_error(tmp_path):
    path = tmp_path / "record.json"
    for content in (
        b"",
        b"[]",
        b"[" * 10**5,
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": %s}' % (b"1" * 5000),
        b"\xff",
        b"x" * 101,
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"record.json is not a record: .+\. Look\."):
            read_record(path, {}, what="a record", error=ConfigError, advice="Look.", most_bytes=10**6)
    path.write_bytes(b'{"a": 1}' + b" " * 100)
    with pytest.raises(RecordError, match="more than 100 bytes"):
        read_record(path, {}, what="a record", most_bytes=100)
    path.unlink()
    with pytest.raises(RecordError, match="No such file"):
        read_record(path, {}, what="a record")

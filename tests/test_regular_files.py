"""Files that are opened only if they are regular, and JSON of bounded size."""

import os

import pytest

from keras_vit import files


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

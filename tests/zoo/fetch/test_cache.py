"""The cache: damage, links, foreign files, no network, full disks."""

import contextlib
import errno
import os

import filelock
import pytest
from file_server import DATA, OTHER, SIZE, fetches, flip_bit, forget, refuses, send_file

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import cache as kept
from keras_vit.zoo.fetch import download
from keras_vit.zoo.fetch.web import Remote
from keras_vit.zoo.names.rows import PublicCheckpoint


def test_queries_are_told_apart(server):
    one, two = (download.fetch(f"{server.url}?version={number}") for number in (1, 2))
    assert one != two and len(server.requests) == 2


def test_offline(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    place = kept.cached_path(server.url)
    with pytest.raises(DownloadError, match="is not in the cache, and KERAS_VIT_OFFLINE") as caught:
        download.fetch(server.url)
    assert str(place) in str(caught.value) and server.url in str(caught.value)
    place.parent.mkdir(parents=True)
    place.write_bytes(DATA)  # as the sentence says
    assert fetches(server.url) and not server.requests
    place.write_bytes(flip_bit())
    with pytest.raises(DownloadError, match="is damaged in the cache"):
        download.fetch(server.url)


def test_damage_in_the_cache_is_mended(server):
    path = download.fetch(server.url)
    with open(path, "r+b") as file:
        file.seek(SIZE // 2)
        file.write(bytes([DATA[SIZE // 2] ^ 1]))
    times = path.stat()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fetches(server.url) and len(server.requests) == 2
    path.write_bytes(DATA[:1000])
    assert fetches(server.url) and len(server.requests) == 3


def test_touched_and_moved_files_are_read_again(server, cache, tmp_path, monkeypatch):
    path = download.fetch(server.url)
    os.utime(path)
    assert fetches(server.url)
    cache.rename(tmp_path / "moved")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "moved"))
    assert fetches(server.url) and len(server.requests) == 1


def test_other_file_under_a_known_name(server):
    download.fetch(server.url).unlink()
    server.data = OTHER
    assert refuses(server.url, "sha256 that it had when it was fetched before, .* changed on purpose, delete")
    forget(server.url)
    assert fetches(server.url, OTHER)


NOTES = ("", "{", "[]", "null", '{"stamp": [1]}', '{"sha256": []}', '{"sha256": "../x", "stamp": [1]}', 9999 * "[")
BEGUN = Remote(SIZE, '"v1"', {})


@pytest.mark.parametrize("note", NOTES)
def test_broken_notes_in_the_cache(server, note):
    path = download.fetch(server.url)
    path.with_name("file.npz.sha256.json").write_text(note)
    assert fetches(server.url) and len(server.requests) == 1


def test_a_beginning_that_is_too_long(server):
    server.faults = [send_file(sums=())]
    path = download.fetch(server.url)
    forget(server.url)
    download.name_partial(path, BEGUN).write_bytes(OTHER * 2)
    assert fetches(server.url)


def beside_cached(place, ending):
    return download.name_partial(place, BEGUN) if ending == ".part" else place.with_name(place.name + ending)


ENDINGS = ("", ".part", ".sha256.json", ".lock")


@pytest.mark.parametrize("ending", ENDINGS)
def test_links_in_the_cache_are_not_followed(server, tmp_path, ending):
    """Somebody else who may write in the cache does not make this user write anywhere else."""
    victim, place = tmp_path / "victim", kept.cached_path(server.url)
    victim.write_text("precious")
    place.parent.mkdir(parents=True)
    beside_cached(place, ending).symlink_to(victim)
    if ending == ".lock":
        assert refuses(server.url, "cannot be read or written")
    else:
        server.faults = [send_file(send=SIZE // 2), send_file()]
        assert fetches(server.url) and not place.is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_the_cache(server, ending, make):
    place = kept.cached_path(server.url)
    place.parent.mkdir(parents=True)
    make(beside_cached(place, ending))
    with contextlib.suppress(DownloadError):
        assert download.fetch(server.url).read_bytes() == DATA


def test_links_to_folders_in_the_cache_are_not_followed(server, tmp_path):
    folder = kept.cached_path(server.url).parent
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)
    assert refuses(server.url, "is in the way: expected a folder, not a link or file")
    assert not (tmp_path / "file.npz.part").exists() and not server.requests


def test_a_link_in_place_of_a_file_while_offline(server, tmp_path, monkeypatch):
    place = kept.cached_path(server.url)
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere.npz")
    (tmp_path / "elsewhere.npz").write_bytes(DATA)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(DownloadError, match="is not in the cache, and KERAS_VIT_OFFLINE"):
        download.fetch(server.url)


def test_cache_that_cannot_be_written(server, cache):
    cache.write_text("a file in its place")
    with pytest.raises(DownloadError, match="cannot be read or written: .* set KERAS_VIT_CACHE"):
        download.fetch(server.url)


def test_full_disk(server, monkeypatch):
    def open_full(path, mode, opened=download.open_regular):
        file = opened(path, mode)

        class Full:
            def __getattr__(self, name):
                return getattr(file, name)

            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, chunk):
                if file.tell() + len(chunk) > SIZE // 2:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return file.write(chunk)

        return Full()

    server.faults = [send_file(pause=0.001)]
    with monkeypatch.context() as patch:
        patch.setattr(download, "open_regular", open_full)
        assert refuses(server.url, "No space left on device. Free some space")
    assert fetches(server.url)
    assert server.ranges()[-1].startswith("bytes=")


def test_space_is_freed_only_where_there_is_none():
    """Not in a container whose user may not write in the home folder."""
    for number, advice in ((errno.ENOSPC, "Free some space, or"), (errno.EACCES, "denied. Make it writable, or")):
        with pytest.raises(DownloadError, match=advice), kept.describe_cache_errors("x.npz"):
            raise OSError(number, os.strerror(number))


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise NotImplementedError

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with kept.lock_file(tmp_path / "x.npz"):
        pass


@pytest.mark.parametrize("source", ["exact", "listed", "computed", None])
def test_no_file_is_larger_than_the_limit(monkeypatch, source):
    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", "1000")
    row = PublicCheckpoint("https://h/x.npz", bytes=source and 4000, bytes_source=source)
    assert download.size_bounds(row)[1] == 1000

"""Connections that break: the right file, or a clear error."""

import hashlib
import json
import random
import time
import traceback

import pytest
from file_server import DATA, OTHER, SIZE, fetches, flip_bit, nothing_under, refuses, send_file, send_status

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import cache, download

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


def test_fetch_once(server):
    assert fetches(server.url) and fetches(server.url)
    assert len(server.requests) == 1
    files = {path.name for path in cache.cached_path(server.url).parent.iterdir()}
    assert files == {"file.npz", "file.npz.sha256.json", "file.npz.lock"}
    record = json.loads(cache.cached_path(server.url).with_name("file.npz.sha256.json").read_text())
    assert record["sha256"] == hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("tenth", range(10))
def test_cut_once_at_every_tenth(server, tenth):
    cut = tenth * SIZE // 10
    server.faults = [send_file(send=cut), send_file()]
    assert fetches(server.url)
    assert server.ranges() == [None, None, f"bytes={cut}-"] if cut else [None, None]


@pytest.mark.parametrize("sums", [(), ("md5",)])
def test_cut_at_each_connection(server, sums):
    server.faults = [send_file(send=SIZE // 10, sums=sums)]
    assert fetches(server.url)
    assert [asked for asked in server.ranges() if asked] == [f"bytes={i * SIZE // 10}-" for i in range(1, 10)]


@pytest.mark.parametrize("etag", [None, 'W/"v1"', "v1"])
def test_pieces_of_two_versions_are_not_joined(server, etag):
    """RFC 9110, 8.8.1 and 14: nothing but a strong validator tells that two pieces are of one file."""

    def change(handler):
        handler.server.data = OTHER
        send_file(sums=(), etag=etag)(handler)

    server.faults = [send_file(send=SIZE // 2, sums=(), etag=etag, headers=[("Last-Modified", DATE)]), change]
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, None]


def test_cut_always_at_the_same_byte_without_ranges(server):
    server.faults = [send_file(send=SIZE // 2, ranges=False)]
    assert refuses(server.url, "answered 200 when asked for the rest")
    server.faults = [send_file(ranges=False)]
    assert fetches(server.url)


@pytest.mark.parametrize("tenth", range(0, 10, 3))
def test_cut_for_good_then_resumed_by_a_later_call(server, tenth):
    cut = tenth * SIZE // 10
    server.faults = [send_file(send=cut), *[send_status(503)] * 10, send_file()]
    assert refuses(server.url, "503")
    server.faults = [send_file()]
    assert fetches(server.url)
    assert server.ranges()[-1] == (f"bytes={cut}-" if cut else None)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_trouble_then_the_file(server, status):
    server.faults = [send_status(status, headers=[("Retry-After", "3600")]), send_status(status), send_file()]
    assert fetches(server.url)


def test_trouble_without_end(server):
    server.faults = [send_status(500)]
    assert refuses(server.url, "answered 500")
    assert len(server.requests) == download.FAILURES


def test_nobody_answers(server, caplog):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match="could not be fetched: Connection refused. Try again") as caught:
        download.fetch(url)
    assert caplog.messages == [f"{url}: Connection refused. Trying again for some seconds."]
    assert "urllib3" not in "".join(traceback.format_exception(caught.value))
    for remedy in ("KERAS_VIT_MIRROR", "KERAS_VIT_OFFLINE=1", f"put it at {cache.cached_path(url)}."):
        assert remedy in str(caught.value)


def test_stall_in_the_body(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_TIMEOUT", "0.5")
    server.faults = [send_file(send=1000, stall=3), send_file()]
    assert fetches(server.url)
    assert server.ranges() == [None, None, "bytes=1000-"]


@pytest.mark.slow
def test_stall_before_the_answer(server, monkeypatch):
    def silent(handler):
        time.sleep(1)

    monkeypatch.setenv("KERAS_VIT_TIMEOUT", "0.1")
    server.faults = [silent, send_file()]
    assert fetches(server.url)
    server.faults = [silent]
    assert refuses(f"{server.url}2", "could not be fetched")


def test_file_changes_between_pieces(server):
    def change(handler):
        handler.server.data = OTHER
        send_file(etag='"v2"')(handler)

    server.faults = [send_file(send=SIZE // 2), change]
    assert fetches(server.url, OTHER)


def test_file_changes_under_a_server_that_ignores_if_range(server):
    def careless(handler):
        handler.server.data = OTHER
        del handler.headers["If-Range"]
        send_file(etag='"v2"')(handler)

    server.faults = [send_file(send=SIZE // 2), send_file(), careless]
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, None, f"bytes={SIZE // 2}-", None]


@pytest.mark.parametrize("seed", range(25))
def test_any_faults_in_any_order(server, seed):
    """Whatever happens, the file is right or absent; once the trouble is over, it is right."""
    chance = random.Random(seed)
    menu = (
        lambda: send_file(send=chance.randrange(SIZE)),
        lambda: send_file(send=chance.randrange(SIZE), ranges=False),
        lambda: send_file(data=flip_bit(chance.randrange(SIZE)), send=chance.randrange(SIZE)),
        lambda: send_file(data=flip_bit(chance.randrange(SIZE))),
        lambda: send_file(data=DATA[: chance.randrange(SIZE)]),
        lambda: send_file(length=chance.randrange(-5000, 5000)),
        lambda: send_file(etag=chance.choice([None, '"v1"', '"v2"', 'W/"v1"'])),
        lambda: send_file(sums=chance.choice([("md5",), ("crc32c",)]), send=chance.randrange(SIZE)),
        lambda: send_status(chance.choice([404, 403, 416, 500, 503])),
    )
    server.faults = [chance.choice(menu)() for _ in range(chance.randint(1, 8))]
    for _ in range(3):
        try:
            assert fetches(server.url)
        except DownloadError:
            assert nothing_under(server.url)
    server.faults = [send_file()]
    assert fetches(server.url)

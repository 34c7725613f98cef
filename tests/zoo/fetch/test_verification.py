"""What comes is checked before it takes its name."""

import hashlib

import pytest
from file_server import DATA, GOOGLE, OTHER, SIZE, fetches, flip_bit, forget, refuses, send_file

from keras_vit.zoo.fetch import download
from keras_vit.zoo.names.rows import PublicCheckpoint


@pytest.mark.parametrize("sums", [("md5",), ("crc32c",), ("crc32c", "md5")])
@pytest.mark.parametrize("place", [0, 1, SIZE // 2, SIZE - 1])
def test_flipped_byte(server, sums, place):
    server.faults = [send_file(data=flip_bit(place), sums=sums)]
    assert refuses(server.url, rf"does not have the ({'|'.join(sums)}) that the server announced")
    assert len(server.requests) == 1
    server.faults = [send_file(sums=sums)]
    assert fetches(server.url)


def test_flipped_byte_in_the_first_piece(server):
    server.faults = [send_file(data=flip_bit(7), send=SIZE // 3), send_file()]
    assert refuses(server.url, "does not have the md5 that the server announced")
    assert server.ranges() == [None, None, f"bytes={SIZE // 3}-"]
    assert fetches(server.url) and server.ranges()[-1] is None


def test_expected_bytes(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", server.origin)
    for source, expected, says in (
        ("exact", SIZE + 1, "expected at least 400,001"),
        ("exact", SIZE - 1, "expected at most 399,999"),
        ("listed", 1.1 * SIZE, "at least"),
        ("listed", 0.9 * SIZE, "at most"),
        ("computed", 1.1 * SIZE, "at least"),
    ):
        assert refuses(PublicCheckpoint(url=GOOGLE, bytes=int(expected), bytes_source=source), says)
    for source, expected in (("exact", SIZE), ("listed", 1.01 * SIZE), ("computed", 0.5 * SIZE)):
        forget(GOOGLE)
        assert (
            download.fetch(PublicCheckpoint(url=GOOGLE, bytes=int(expected), bytes_source=source)).read_bytes() == DATA
        )


def test_published_sha256(server):
    right, wrong = (hashlib.sha256(data).hexdigest() for data in (DATA, OTHER))
    assert refuses(PublicCheckpoint(url=server.url, sha256=wrong), "does not have the published sha256")
    assert download.fetch(PublicCheckpoint(url=server.url, sha256=right)).read_bytes() == DATA


def test_size_cap(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", "1000")
    assert refuses(server.url, "expected at most 1,000")
    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", "many")
    assert refuses(server.url, "must be a positive number of at most .* Received: 'many'")


@pytest.mark.parametrize(
    ("data", "sum_"),
    [(b"123456789", "e3069283"), (bytes(32), "8a9136aa"), (b"\xff" * 32, "62a8ab43"), (bytes(range(32)), "46dd794e")],
)
def test_crc32c_of_the_rfc(data, sum_, tmp_path):
    """RFC 3720, B.4, and in the order of bytes in which servers write it."""
    (tmp_path / "file").write_bytes(data)
    found = download.compute_checksums(tmp_path / "file", ("crc32c", "sha256"))
    assert found["crc32c"].hex() == sum_
    assert found["sha256"].hex() == hashlib.sha256(data).hexdigest()

"""Replies that lie, or say too little, or are not the file."""

import contextlib

import pytest
from file_server import (
    DATA,
    ETAG,
    LENGTH,
    OTHER,
    SIZE,
    fetches,
    refuses,
    send_file,
    send_headers,
    send_status,
)

from keras_vit.zoo.fetch import cache


def test_length_too_large(server):
    server.faults = [send_file(length=1000)]
    assert refuses(server.url, "could not be fetched: .*(416|closed)")
    assert len(server.requests) < 10


def test_length_too_small(server):
    server.faults = [send_file(length=-1000)]
    assert refuses(server.url, "does not have the md5")
    server.faults = [send_file(data=b"")]
    assert refuses(server.url, "has 0 bytes; expected at least 1")


@pytest.mark.parametrize("length", [None, "many", "1000, 1000"])
def test_neither_length_nor_checksum(server, length):
    def endless(handler):
        handler.send_response(200)
        if length:
            handler.send_header("Content-Length", length)
        handler.end_headers()
        handler.wfile.write(DATA[:1000])
        handler.close_connection = True

    server.faults = [endless]
    assert refuses(server.url, "without a length or a checksum")


@pytest.mark.parametrize("send", [SIZE, SIZE // 2])
def test_chunked(server, send):
    def chunked(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (send, DATA[:send]) + (b"0\r\n\r\n" if send == SIZE else b""))
        handler.close_connection = True

    server.faults = [chunked]
    assert fetches(server.url) if send == SIZE else refuses(server.url, "200,000 bytes came and are kept")


def test_not_found(server):
    server.faults = [send_status(404)]
    assert refuses(server.url, "answered 404 Not Found; expected the file. Check the name")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [404, 500])
def test_the_words_of_a_status_are_escaped(server, status):
    server.faults = [send_headers(LENGTH, status=status)]
    assert refuses(server.url, rf"answered {status} Fine\\x1b\[31m\\x9b")


def test_web_page_instead_of_the_file(server):
    server.faults = [send_status(200, b"<html>sign in</html>", headers=[("Content-Type", "text/html; charset=utf-8")])]
    assert refuses(server.url, "returned a web page")


def test_encoded_body(server):
    server.faults = [send_file(headers=[("Content-Encoding", "gzip")])]
    assert refuses(server.url, "came encoded as gzip")


@pytest.mark.parametrize("limit", ["1000", "1000000"])
def test_more_than_was_said(server, monkeypatch, limit):
    """What came of a server that does not stop is not kept."""

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("ETag", '"v1"')
        handler.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(100):
                handler.wfile.write(b"%x\r\n%s\r\n" % (SIZE, DATA))

    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", limit)
    server.faults = [endless]
    assert refuses(server.url, f"sent more than {int(limit):,} bytes")
    assert not list(cache.cached_path(server.url).parent.glob("*.part*"))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([("Content-Length", "\xb2")], "without a length"),
        ([("Content-Length", "9" * 5000)], "without a length"),
        ([("Content-Length", "-1")], "without a length"),
        ([LENGTH, ("Content-Encoding", "GZip")], "came encoded as gzip"),
        ([LENGTH, ("Content-Encoding", "identity, br")], "came encoded as identity, br"),
        ([("Transfer-Encoding", "gzip, chunked")], "came encoded as gzip, chunked"),
        ([("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], "came encoded as chunked, chunked"),
        ([LENGTH, ("Content-Encoding", "chunked")], "came encoded as chunked"),
        ([LENGTH, ("Transfer-Encoding", "deflate")], "came encoded as deflate"),
        ([LENGTH, ("Content-Type", "Text/HTML; charset=utf-8")], "returned a web page"),
        ([LENGTH, ("Content-Type", "application/xhtml+xml")], "returned a web page"),
        ([LENGTH, ("x-goog-hash", "md5=\x1b[31m")], r"announced, \\x1b\[31m"),
        ([LENGTH, ("x-goog-hash", "crc32c")], "announced"),
    ],
)
def test_headers_that_cannot_be_used(server, headers, says):
    server.faults = [send_headers(*headers)]
    assert refuses(server.url, says)


@pytest.mark.parametrize("span", [f"bytes {'9' * 5000}-9/9", f"bytes 200000-399999/{'9' * 5000}", "bytes \xb2-1/1"])
def test_spans_that_cannot_be_used(server, span):
    server.faults = [
        send_file(send=SIZE // 2),
        send_file(),
        send_headers(ETAG, LENGTH, ("Content-Range", span), status=206),
        send_file(),
    ]
    assert fetches(server.url)


def test_an_encoded_piece(server):
    piece = ("Content-Range", f"bytes {SIZE // 2}-{SIZE - 1}/{SIZE}"), ("Content-Encoding", "gzip")
    server.faults = [send_file(send=SIZE // 2), send_file(), send_headers(ETAG, LENGTH, *piece, status=206)]
    assert refuses(server.url, "came encoded as gzip")


@pytest.mark.parametrize("span", ["bytes 0-399999/400000", "bytes 300000-399999/400000", "nonsense", None])
def test_wrong_piece(server, span):
    def piece(handler):
        handler.send_response(206)
        for name, value in (("Content-Range", span), ("ETag", '"v1"'), ("Content-Length", "200000")):
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(OTHER[:200_000])

    server.faults = [send_file(send=SIZE // 2, sums=()), send_file(sums=()), piece, send_file(sums=())]
    assert fetches(server.url)
    server.faults = [piece]
    assert refuses(f"{server.url}2", "answered 206")

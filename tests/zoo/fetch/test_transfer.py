"""Fetching against real servers on this machine that cut, stall, lie and change: the right file, or a clear error."""

import base64
import contextlib
import errno
import hashlib
import http.server
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback

import pytest

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import addresses, download, integrity, networks, partial, progress, session, transfer
from keras_vit.zoo.names.rows import PublicCheckpoint

SIZE = 400_000
DATA = random.Random(0).randbytes(SIZE)
OTHER = random.Random(1).randbytes(SIZE)
GOOGLE = "https://storage.googleapis.com/vit_models/imagenet21k%2Bimagenet2012/file.npz"
DATE = "Sat, 21 Nov 2026 12:00:00 GMT"
FETCH = "import sys; from keras_vit.zoo.fetch.download import fetch; print(fetch(sys.argv[1]))"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.data` by `server.faults`: one for each request in turn, the last for all that follow."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        with server.counting:
            server.requests.append((self.path, dict(self.headers)))
            fault = server.faults[min(len(server.requests), len(server.faults)) - 1]
        fault(self)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("", 0), Handler)
        self.counting = threading.Lock()
        self.requests, self.faults, self.data = [], [whole()], DATA
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        """Clients here hang up in the middle; that is no news."""

    @property
    def origin(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def url(self):
        return f"{self.origin}/weights/file.npz"

    def ranges(self):
        return [headers.get("Range") for _, headers in self.requests]


def whole(
    *,
    send=None,
    data=None,
    sums=("md5",),
    etag='"v1"',
    ranges=True,
    length=0,
    stall=0.0,
    pause=0.0,
    headers=(),
):
    """An answer with the file, or with `data`.

    Args:
        send: bytes sent before the connection is closed (all).
        sums: checksums in x-goog-hash, of the server's true file.
        etag, ranges: whether versions and Range are known to it.
        length: what Content-Length is too large by.
        stall: seconds to wait after `send` bytes, before the rest.
        pause: seconds between pieces of a hundredth.
        headers: further ones.
    """

    def answer(handler):
        true = handler.server.data
        body = true if data is None else data
        asked = handler.headers.get("Range") if ranges and handler.headers.get("If-Range") in (None, etag) else None
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if asked and start >= len(body):
            return refuse(416)(handler)
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        handler.send_header("Content-Length", str(len(body) - start + length))
        if sums:
            handler.send_header("x-goog-hash", ",".join(f"{name}={sum_of(name, true)}" for name in sums))
        for name, value in (("ETag", etag), *headers):
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        with contextlib.suppress(OSError):
            deliver(handler, body[start:], send, stall, pause)
        handler.close_connection = True

    return answer


def deliver(handler, body, send, stall, pause):
    stop = len(body) if send is None else send
    step = len(body) // 100 + 1 if pause else stop or 1
    for place in range(0, stop, step):
        handler.wfile.write(body[place : min(place + step, stop)])
        handler.wfile.flush()
        time.sleep(pause)
    if stall:
        time.sleep(stall)
        handler.wfile.write(body[stop:])


def sum_of(name, data):
    digest = integrity.start_digest(name)
    digest.update(data)
    return base64.b64encode(digest.digest()).decode()


def refuse(status, body=b"no", headers=()):
    def answer(handler):
        handler.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def flipped(place=SIZE // 2, data=DATA):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.fixture
def server():
    with Server() as running:
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("MIRROR", "OFFLINE", "TIMEOUT", "MAX_BYTES"):
        monkeypatch.delenv(f"KERAS_VIT_{name}", raising=False)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(transfer, "BACKOFF", 0.01)
    return tmp_path / "cache"


def forget(url):
    """Empties the folder of a file in the cache."""
    for path in addresses.cached_path(url).parent.iterdir():
        path.unlink()


def nothing_under(url):
    return not addresses.cached_path(url).exists()


def fetches(url, data=DATA):
    path = download.fetch(url)
    return path.read_bytes() == data and path == addresses.cached_path(url)


def refuses(url, says):
    with pytest.raises(DownloadError, match=says) as caught:
        download.fetch(url)
    assert nothing_under(caught.value and getattr(url, "url", url))
    return True


def test_fetch_once(server, cache):
    assert fetches(server.url) and fetches(server.url)
    assert len(server.requests) == 1
    files = {path.name for path in addresses.cached_path(server.url).parent.iterdir()}
    assert files == {"file.npz", "file.npz.sha256.json", "file.npz.lock"}
    record = json.loads(addresses.cached_path(server.url).with_name("file.npz.sha256.json").read_text())
    assert record["sha256"] == hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("tenth", range(10))
def test_cut_once_at_every_tenth(server, tenth):
    cut = tenth * SIZE // 10
    server.faults = [whole(send=cut), whole()]
    assert fetches(server.url)
    assert server.ranges() == [None, f"bytes={cut}-" if cut else None]


@pytest.mark.parametrize("sums, etag", [((), '"v1"'), (("md5",), '"v1"'), (("md5",), None), (("md5",), 'W/"v1"')])
def test_cut_at_each_connection(server, sums, etag):
    server.faults = [whole(send=SIZE // 10, sums=sums, etag=etag)]
    assert fetches(server.url)
    assert len(server.requests) == 10


@pytest.mark.parametrize("etag", [None, 'W/"v1"', "v1"])
def test_pieces_of_two_versions_are_not_joined(server, etag):
    """RFC 9110, 8.8.1 and 14: nothing but a strong validator, or a checksum, tells that two pieces are of one file."""

    def change(handler):
        handler.server.data = OTHER
        whole(sums=(), etag=etag)(handler)

    server.faults = [whole(send=SIZE // 2, sums=(), etag=etag, headers=[("Last-Modified", DATE)]), change]
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, None]


def test_cut_always_at_the_same_byte_without_ranges(server):
    server.faults = [whole(send=SIZE // 2, ranges=False)]
    assert refuses(server.url, r"200,000 of 400,000 bytes came")
    server.faults = [whole(ranges=False)]
    assert fetches(server.url)


@pytest.mark.parametrize("tenth", range(0, 10, 3))
def test_cut_for_good_then_resumed_by_a_later_call(server, tenth):
    cut = tenth * SIZE // 10
    server.faults = [whole(send=cut), *[refuse(503)] * 10, whole()]
    assert refuses(server.url, "503")
    server.faults = [whole()]
    assert fetches(server.url)
    assert server.ranges()[-1] == (f"bytes={cut}-" if cut else None)


@pytest.mark.parametrize("sums", [("md5",), ("crc32c",), ("crc32c", "md5")])
@pytest.mark.parametrize("place", [0, 1, SIZE // 2, SIZE - 1])
def test_flipped_byte(server, sums, place):
    server.faults = [whole(data=flipped(place), sums=sums)]
    assert refuses(server.url, rf"have the ({'|'.join(sums)}) \S+; the server announced")
    assert len(server.requests) == 2
    server.faults = [whole(sums=sums)]
    assert fetches(server.url)


def test_flipped_byte_once(server):
    server.faults = [whole(data=flipped()), whole()]
    assert fetches(server.url)


def test_flipped_byte_in_the_first_piece(server):
    server.faults = [whole(data=flipped(7), send=SIZE // 3), whole()]
    assert fetches(server.url)
    assert server.ranges() == [None, f"bytes={SIZE // 3}-", None]


def test_md5_of_an_object_store_in_the_etag(server):
    quoted = f'"{hashlib.md5(DATA).hexdigest()}"'
    server.faults = [whole(data=flipped(), sums=(), etag=quoted, headers=[("x-amz-request-id", "1")])]
    assert refuses(server.url, "have the md5")
    server.faults = [whole(data=OTHER, sums=(), etag=quoted)]  # elsewhere, such an ETag may be anything
    assert fetches(server.url, OTHER)


def test_length_too_large(server):
    server.faults = [whole(length=1000)]
    assert refuses(server.url, "has no byte 400,000 of 401,000 bytes")
    assert len(server.requests) < 10


def test_length_too_small(server):
    server.faults = [whole(length=-1000)]
    assert refuses(server.url, "have the md5")
    server.faults = [whole(data=b"")]
    assert refuses(server.url, "has 0 bytes; expected at least 1")


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
    assert refuses(PublicCheckpoint(url=server.url, sha256=wrong), "the published one is")
    assert download.fetch(PublicCheckpoint(url=server.url, sha256=right)).read_bytes() == DATA


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
    assert fetches(server.url) if send == SIZE else refuses(server.url, "unknown number of bytes")


def test_not_found(server):
    server.faults = [refuse(404)]
    assert refuses(server.url, "answered 404 Not Found; expected the file. Check the name")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_trouble_then_the_file(server, status):
    server.faults = [refuse(status, headers=[("Retry-After", "3600")]), refuse(status), whole()]
    assert fetches(server.url)


def test_trouble_without_end(server):
    server.faults = [refuse(500)]
    assert refuses(server.url, "answered 500")
    assert len(server.requests) == transfer.FAILURES


def test_nobody_answers(server, caplog):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(
        DownloadError, match="could not be fetched: 0 of .* then Connection refused. Try again"
    ) as caught:
        download.fetch(url)
    assert caplog.messages == [f"{url}: Connection refused. Trying again for some seconds."]
    assert "urllib3" not in "".join(traceback.format_exception(caught.value))


def test_stall_in_the_body(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_TIMEOUT", "0.5")
    server.faults = [whole(send=1000, stall=3), whole()]
    assert fetches(server.url)
    assert server.ranges() == [None, "bytes=1000-"]


def test_stall_before_the_answer(server, monkeypatch):
    def silent(handler):
        time.sleep(1)

    monkeypatch.setenv("KERAS_VIT_TIMEOUT", "0.1")
    server.faults = [silent, whole()]
    assert fetches(server.url)
    server.faults = [silent]
    assert refuses(f"{server.url}2", "could not be fetched")


def test_file_changes_between_pieces(server):
    def change(handler):
        handler.server.data = OTHER
        whole(etag='"v2"')(handler)

    server.faults = [whole(send=SIZE // 2), change]
    assert fetches(server.url, OTHER)


def test_file_changes_under_a_server_that_ignores_if_range(server):
    def careless(handler):
        handler.server.data = OTHER
        del handler.headers["If-Range"]
        whole(etag='"v2"')(handler)

    server.faults = [whole(send=SIZE // 2), careless]
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, f"bytes={SIZE // 2}-", None]


@pytest.mark.parametrize("span", ["bytes 0-399999/400000", "bytes 300000-399999/400000", "nonsense", None])
def test_wrong_piece(server, span):
    def piece(handler):
        handler.send_response(206)
        for name, value in (("Content-Range", span), ("ETag", '"v1"'), ("Content-Length", "200000")):
            if value:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(OTHER[:200_000])

    server.faults = [whole(send=SIZE // 2, sums=()), piece, whole(sums=())]
    assert fetches(server.url)
    server.faults = [piece]
    assert refuses(f"{server.url}2", "answered 206")


@pytest.mark.parametrize("seed", range(25))
def test_any_faults_in_any_order(server, seed):
    """Whatever happens, the file is right or absent; once the trouble is over, it is right."""
    chance = random.Random(seed)
    menu = (
        lambda: whole(send=chance.randrange(SIZE)),
        lambda: whole(send=chance.randrange(SIZE), ranges=False),
        lambda: whole(data=flipped(chance.randrange(SIZE)), send=chance.randrange(SIZE)),
        lambda: whole(data=flipped(chance.randrange(SIZE))),
        lambda: whole(data=DATA[: chance.randrange(SIZE)]),
        lambda: whole(length=chance.randrange(-5000, 5000)),
        lambda: whole(etag=chance.choice([None, '"v1"', '"v2"', 'W/"v1"'])),
        lambda: whole(sums=chance.choice([("md5",), ("crc32c",)]), send=chance.randrange(SIZE)),
        lambda: refuse(chance.choice([404, 403, 416, 500, 503])),
    )
    server.faults = [chance.choice(menu)() for _ in range(chance.randint(1, 8))]
    for _ in range(3):
        try:
            assert fetches(server.url)
        except DownloadError:
            assert nothing_under(server.url)
    server.faults = [whole()]
    assert fetches(server.url)


def test_web_page_instead_of_the_file(server):
    server.faults = [refuse(200, b"<html>sign in</html>", headers=[("Content-Type", "text/html; charset=utf-8")])]
    assert refuses(server.url, "returned a web page")


def test_encoded_body(server):
    server.faults = [whole(headers=[("Content-Encoding", "gzip")])]
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
    assert not list(addresses.cached_path(server.url).parent.glob("*.part*"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for files.example, signed by nobody."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=DNS:files.example"
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    subprocess.run([*command.split(), "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + pathlib.Path(f"{path}.crt").read_bytes())
    return path


@pytest.mark.parametrize(
    ("host", "trusted", "says"),
    [
        ("files.example", True, None),
        ("other.example", True, "certificate verify failed: Hostname mismatch"),
        ("files.example", False, "certificate verify failed: self.signed"),
        ("127.0.0.1", True, "certificate verify failed"),  # on this machine the environment is not asked
    ],
)
def test_certificates(server, certificate, monkeypatch, host, trusted, says):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: look_up(host.replace(host, "127.0.0.1"), *rest))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate)) if trusted else None
    url = f"https://{host}:{server.server_port}/file.npz"
    assert refuses(url, says) if says else fetches(url)
    assert len(server.requests) == (not says)


def test_a_bundle_of_certificates_that_is_not_there(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/absent/bundle.pem")
    with pytest.raises(DownloadError, match="cannot be requested: .*TLS CA certificate bundle.* /absent/bundle.pem"):
        download.fetch("https://files.invalid/file.npz")


def headed(*headers, status=200, body=DATA):
    """An answer with these headers alone."""

    def answer(handler):
        handler.send_response_only(status, "Fine\x1b[31m\x9b")
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return answer


ETAG, LENGTH = ("ETag", '"v1"'), ("Content-Length", str(SIZE))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([("Content-Length", "\xb2")], "without a length"),
        ([("Content-Length", "9" * 5000)], "without a length"),
        ([("Content-Length", "-1")], "without a length"),
        ([LENGTH, ("Content-Encoding", "GZip")], "came encoded as gzip"),
        ([LENGTH, ("Content-Encoding", "identity, br")], "came encoded as br"),
        ([("Transfer-Encoding", "gzip, chunked")], "came encoded as gzip, chunked"),
        ([("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], "came encoded as chunked, chunked"),
        ([LENGTH, ("Content-Encoding", "chunked")], "came encoded as chunked"),
        ([LENGTH, ("Transfer-Encoding", "deflate")], "came encoded as deflate"),
        ([LENGTH, ("Content-Type", "Text/HTML; charset=utf-8")], "returned a web page"),
        ([LENGTH, ("Content-Type", "application/xhtml+xml")], "returned a web page"),
        ([LENGTH, ("x-goog-hash", "md5=\x1b[31m")], r"announced \\x1b\[31m"),
        ([LENGTH, ("x-goog-hash", "crc32c")], "announced"),
    ],
)
def test_headers_that_cannot_be_used(server, headers, says):
    server.faults = [headed(*headers)]
    assert refuses(server.url, says)


@pytest.mark.parametrize("span", [f"bytes {'9' * 5000}-9/9", f"bytes 200000-399999/{'9' * 5000}", "bytes \xb2-1/1"])
def test_spans_that_cannot_be_used(server, span):
    server.faults = [whole(send=SIZE // 2), headed(ETAG, LENGTH, ("Content-Range", span), status=206), whole()]
    assert fetches(server.url)


ELSEWHERE = {
    "redirects to an address that cannot be read": (
        "http://[::1",
        "http://h:x/",
        "//\xff/",
        "ftp://h/x",
        r"https://h\@g/",
    ),
    "cannot be read": ("https://2130706433/", "http://0/x", "file:///x", "https://0x7f.1/"),
    "is not fetched: expected https": ("http://192.0.2.1/x", "http://127.0.0.1.nip.io/x", "http://10.0.0.1/"),
    "on a private network": ("https://10.0.0.1/", "https://192.168.1.1/", "https://100.64.0.1/", "https://[fd00::1]/"),
    "on the local link": ("https://169.254.169.254/", "https://[fe80::1]/", "https://[::ffff:169.254.1.1]/"),
    "redirects without end": ("/again",),
}


@pytest.mark.parametrize(("says", "target"), [(says, target) for says, all_ in ELSEWHERE.items() for target in all_])
def test_redirects_that_are_not_followed(server, says, target):
    server.faults = [refuse(302, headers=[("Location", target)])]
    assert refuses(server.url, says)


HERE = ("127.0.0.1", "localhost", "sub.localhost", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "127.9.9.9")


@pytest.mark.parametrize("host", HERE)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_redirect_from_elsewhere_to_this_machine(server, host, scheme, monkeypatch):
    """The server stands for one on the internet, at a loopback address of its own."""
    network = networks.network_of_ip
    monkeypatch.setattr(networks, "network_of_ip", lambda ip: networks.INTERNET if ip == "127.0.0.5" else network(ip))
    monkeypatch.setenv("KERAS_VIT_MIRROR", server.origin.replace("127.0.0.1", "127.0.0.5"))
    target = f"{scheme}://{host}:{server.server_port}/admin"
    server.faults = [refuse(302, headers=[("Location", target)]), whole()]
    assert refuses(GOOGLE, "which is on this machine|expected https")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("found", "public"), [("127.0.0.6", ()), ("127.0.0.1", ("127.0.0.1",))])
def test_no_redirect_to_a_name_of_this_machine(server, found, public, monkeypatch):
    """Where a name leads is seen when the connection stands, this machine's public address included."""
    look_up, network = socket.getaddrinfo, networks.network_of_ip
    names = {"cdn.example": found, "mirror.example": "127.0.0.5"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: look_up(names.get(host, host), *rest))
    monkeypatch.setattr(
        networks, "network_of_ip", lambda ip: networks.INTERNET if ip in ("127.0.0.5", *public) else network(ip)
    )
    monkeypatch.setattr(session, "require_safe", lambda url: None)
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"http://mirror.example:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "*")
    server.faults = [refuse(302, headers=[("Location", f"http://cdn.example:{server.server_port}/x")]), whole()]
    assert refuses(GOOGLE, "leads to cdn.example, which is on this machine")
    assert len(server.requests) == 1


def test_size_cap(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", "1000")
    assert refuses(server.url, "expected at most 1,000")
    monkeypatch.setenv("KERAS_VIT_MAX_BYTES", "many")
    assert refuses(server.url, "must be a positive number of at most .* Received: 'many'")


NUMBER, SERVER = "must be a positive number", "must be an address such as https://host"
ODD = ("http://[::1", "mirror", "ftp://mirror", "https://h/?key=SECRET", r"https://a\@b", "https://me:SECRET@h:x")
SETTINGS = {
    "KERAS_VIT_TIMEOUT": (NUMBER, "inf", "1e300", "nan", "-1", "0", "soon", "1e9"),
    "KERAS_VIT_MAX_BYTES": (NUMBER, "inf", "1e300", "nan", "-1"),
    "KERAS_VIT_CACHE": ("must be a folder", "~nobody_of_that_name"),
    "KERAS_VIT_MIRROR": (SERVER, *ODD),
    "HF_ENDPOINT": (SERVER, *ODD),
}


@pytest.mark.parametrize(
    ("name", "says", "value"), [(name, says, value) for name, (says, *values) in SETTINGS.items() for value in values]
)
def test_settings_that_cannot_be_used(name, says, value, monkeypatch):
    monkeypatch.setenv(name, value)
    url = "hf://owner/repo" if name == "HF_ENDPOINT" else GOOGLE
    with pytest.raises(DownloadError, match=f"{name} {says}") as caught:
        download.fetch(url)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/x.npz", "ftp://example.org/x.npz", "file:///etc/passwd", "x.npz", "https://example.org/"]
    + [f"http://{host}/x.npz" for host in ("127.0.0.1.example", "0", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0")]
    + [f"http://{host}/x.npz" for host in ("10.0.0.1", "sub.localhost", "127.0.0.1@example.org", "127.example")],
)
def test_unsafe_addresses(url):
    with pytest.raises(DownloadError, match="xpected https|names no file"):
        download.fetch(url)


def test_redirects(server):
    server.faults = [refuse(302, headers=[("Location", "/elsewhere")]), whole()]
    assert fetches(server.url)
    server.faults = [refuse(302, headers=[("Location", "http://192.0.2.1/file.npz")])]
    assert refuses(f"{server.url}2", "192.0.2.1/file.npz is not fetched: expected https")


@pytest.mark.parametrize("path", ["/a/../b.npz", "/%2e%2e/b.npz", "/a%2f..%2fb.npz", "/a%00b", "/", "/a//b", "/b./c.."])
def test_addresses_that_lead_out_of_the_cache(server, path):
    with pytest.raises(DownloadError, match="names no file|not an address that all programs read alike"):
        download.fetch(server.origin + path)
    assert not server.requests


# To be put before and behind the host and port of a server: what one reader takes for the host, another does not.
TWO_WAYS = [
    ("https://", r"\@storage.googleapis.com/vit_models/x.npz"),
    ("http://", r"\@storage.googleapis.com/vit_models/x.npz"),
    ("http://", "%5c@storage.googleapis.com/x.npz"),
    ("http://", "\t@storage.googleapis.com/x.npz"),
    ("http://", "#@storage.googleapis.com/x.npz"),
    ("http://", "?@storage.googleapis.com/x.npz"),
    ("http://", ";@storage.googleapis.com/x.npz"),
    ("http://storage.googleapis.com@", "@storage.googleapis.com/x.npz"),
    ("http://storage.googleapis.com /@", "/x.npz"),
    ("http:///", "/x.npz"),
    ("http:\\\\", "/x.npz"),
    ("http://[", "]/x.npz"),
    ("http://storage.googleapis.com\uff03@", "/x.npz"),
    ("\nhttp://", "/x.npz"),
    ("http://", "/x.npz\n"),
    ("http://", "/x\u202e.npz"),
    ("http://", "/%E2%80%AE.npz"),
    ("http://", "/\ud800.npz"),
    ("http://", "/x\x00.npz"),
    ("http://", "/%ff.npz"),
]


@pytest.mark.parametrize(("before", "behind"), TWO_WAYS)
def test_addresses_that_are_read_in_two_ways(server, before, behind):
    with pytest.raises(DownloadError, match="not an address that all programs read alike|names no file|expected https"):
        download.fetch(before + server.origin.removeprefix("http://") + behind)
    assert not server.requests


def test_queries_are_told_apart(server):
    one, two = (download.fetch(f"{server.url}?version={number}") for number in (1, 2))
    assert one != two and len(server.requests) == 2


def test_mirror(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.origin}/copy/")
    path = download.fetch(GOOGLE.replace("%2B", "+"))
    assert path.read_bytes() == DATA
    assert server.requests[0][0] == "/copy/vit_models/imagenet21k%2Bimagenet2012/file.npz"
    assert path.parts[-4:-1] == ("copy", "vit_models", "imagenet21k+imagenet2012")
    monkeypatch.delenv("KERAS_VIT_MIRROR")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert refuses(GOOGLE, "is not in the cache")  # what a mirror gave is not Google's
    assert addresses.cached_path(GOOGLE).parent.match("storage.googleapis.com/vit_models/imagenet21k+imagenet2012")


def test_proxy_and_plain_mirror(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.origin)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("KERAS_VIT_MIRROR", "http://mirror.invalid")
    assert download.fetch(GOOGLE).read_bytes() == DATA
    assert server.requests[0][0].startswith("http://mirror.invalid/vit_models/")


def test_hub(server, monkeypatch):
    linked = hashlib.sha256(DATA).hexdigest()
    away = refuse(302, headers=[("Location", "/blob"), ("X-Linked-Etag", f'"{linked}"')])
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setenv("HF_TOKEN", "secret")
    server.faults = [away, whole(data=OTHER, sums=()), away, whole(data=OTHER, sums=()), away, whole(sums=())]
    with pytest.raises(DownloadError, match="sha256"):
        download.fetch("hf://owner/repo")
    assert download.fetch("hf://owner/repo").read_bytes() == DATA
    assert server.requests[0][0] == "/owner/repo/resolve/main/model.safetensors"
    assert server.requests[0][1]["Authorization"] == "Bearer secret"
    server.faults = [whole()]
    monkeypatch.setenv("HF_ENDPOINT", "https://huggingface.co")
    download.fetch(server.url)
    assert "Authorization" not in server.requests[-1][1]


@pytest.fixture
def other():
    with Server() as running:
        yield running
        running.shutdown()


@pytest.mark.parametrize("target", ["{}/x", "http://me:pw@{host}/x", "http://localhost:{port}/x"])
def test_the_token_stays_with_the_hub(server, other, monkeypatch, target):
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    target = target.format(other.origin, host=other.origin.removeprefix("http://"), port=other.server_port)
    server.faults = [refuse(302, headers=[("Location", "/again")]), refuse(307, headers=[("Location", target)])]
    other.faults = [refuse(302, headers=[("Location", f"{server.origin}/back")])]
    with pytest.raises(DownloadError, match="redirects without end"):
        download.fetch("hf://owner/repo/file.npz")
    found = [headers.get("Authorization") for _, headers in server.requests]
    assert found == ["Bearer hf_secret"] * 2 + [None] * (len(found) - 2) and other.requests
    assert not [headers for _, headers in other.requests if "Authorization" in headers]


def test_netrc_is_not_read(server, other, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(networks, "network_of_host", lambda host: None)  # as if it were elsewhere, with its environment
    monkeypatch.setattr(session, "require_safe", lambda url: None)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    server.faults = [refuse(302, headers=[("Location", f"{other.url}")])]
    assert download.fetch("hf://owner/repo/file.npz").read_bytes() == DATA
    assert not [headers for _, headers in server.requests + other.requests if "Authorization" in headers]


def test_a_password_stays_with_its_server(server, other):
    """Also through redirects of its own."""
    server.faults = [refuse(302, headers=[("Location", "/x")]), refuse(302, headers=[("Location", other.url)])]
    assert fetches(server.url.replace("http://", "http://me:p%40w@"))
    basic = "Basic " + base64.b64encode(b"me:p@w").decode()
    assert [headers.get("Authorization") for _, headers in server.requests] == [basic] * 2
    assert "Authorization" not in other.requests[0][1]


@pytest.mark.parametrize("hub", ["http://hub.example", "https://storage.googleapis.com"])
def test_the_token_is_not_sent_in_the_clear_or_to_a_mirror(server, monkeypatch, hub):
    """Where the Hub and the mirror are the same http host, or the mirror stands for the Hub."""
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("KERAS_VIT_MIRROR", hub if hub.startswith("http:") else server.origin)
    monkeypatch.setenv("HTTP_PROXY", server.origin)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert download.fetch("hf://owner/repo/file.npz").read_bytes() == DATA
    assert "Authorization" not in server.requests[0][1]


@pytest.mark.parametrize(
    "token", ["hf_s\u00e9cret", "hf_secret\r\nX: y", "hf secret", "hf_\x00secret", "hf_\U0001f600secret"]
)
def test_tokens_that_no_header_can_hold(server, monkeypatch, token):
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setattr(os, "environ", {**os.environ, "HF_TOKEN": token})
    with pytest.raises(DownloadError, match="HF_TOKEN contains spaces or characters") as caught:
        download.fetch("hf://owner/repo")
    assert "secret" not in "".join(traceback.format_exception(caught.value)) and not server.requests


@pytest.mark.parametrize(
    "token, sent", [("hf_secret\n", "Bearer hf_secret"), (" hf_secret ", "Bearer hf_secret"), ("\n", None)]
)
def test_tokens_of_files_end_in_a_line_break(server, monkeypatch, token, sent):
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setenv("HF_TOKEN", token)
    download.fetch("hf://owner/repo")
    assert server.requests[0][1].get("Authorization") == sent


def test_offline(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    place = addresses.cached_path(server.url)
    with pytest.raises(DownloadError, match="is not in the cache, and KERAS_VIT_OFFLINE") as caught:
        download.fetch(server.url)
    assert str(place) in str(caught.value) and server.url in str(caught.value)
    place.parent.mkdir(parents=True)
    place.write_bytes(DATA)  # as the sentence says
    assert fetches(server.url) and not server.requests
    place.write_bytes(flipped())
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
    assert refuses(server.url, "the recorded one is .* changed on purpose, delete")
    forget(server.url)
    assert fetches(server.url, OTHER)


NOTES = [
    "",
    "{",
    "[]",
    "null",
    '{"stamp": 1}',
    '{"url": 1}',
    '{"sha256": []}',
    '{"sha256": "../x", "stamp": 1}',
    9999 * "[",
]
REMOTE = {"url": "x", "total": SIZE, "version": '"v1"', "checksums": {}}
WRONG = [
    {"total": "1"},
    {"total": 1e99},
    {"total": True},
    {"version": 1},
    {"version": '"\r\nX: y"'},
    {"url": None},
    {"x": 1},
]
WRONG += [{"checksums": wrong} for wrong in (None, [], {"md4": "x"}, {"md5": 1}, {"md5": {}})]
NOTES += [json.dumps({**REMOTE, **wrong}) for wrong in WRONG]


@pytest.mark.parametrize("note", NOTES)
def test_broken_notes_in_the_cache(server, note):
    path = download.fetch(server.url)
    path.with_name("file.npz.sha256.json").write_text(note)
    assert fetches(server.url)
    forget(server.url)
    path.with_name("file.npz.part").write_bytes(OTHER * 2)
    path.with_name("file.npz.part.json").write_text(note)
    assert fetches(server.url)


ENDINGS = ("", ".part", ".part.json", ".sha256.json", ".lock")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_in_the_cache_are_not_followed(server, tmp_path, ending, link):
    """Somebody else who may write in the cache does not make this user write anywhere else."""
    victim, place = tmp_path / "victim", addresses.cached_path(server.url)
    victim.write_text("precious")
    place.parent.mkdir(parents=True)
    link(victim, beside(place, ending))
    if ending == ".part":  # as if it were begun: the rest would go into the other file
        remote = {"url": server.url, "total": SIZE, "version": '"v1"', "checksums": {"md5": sum_of("md5", DATA)}}
        beside(place, ".part.json").write_text(json.dumps(remote))
    if ending == ".lock":
        assert refuses(server.url, "is in the way: expected a file of its own")
    elif (ending, link) == ("", os.link):
        assert download.fetch(server.url).read_text() == "precious"  # a file that somebody put there
    else:
        server.faults = [whole(send=SIZE // 2), whole()]
        assert fetches(server.url) and not place.is_symlink()
    assert victim.read_text() == "precious"


def beside(path, ending):
    return path.with_name(path.name + ending)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_the_cache(server, ending, make):
    place = addresses.cached_path(server.url)
    place.parent.mkdir(parents=True)
    make(beside(place, ending))
    with contextlib.suppress(DownloadError):
        assert download.fetch(server.url).read_bytes() == DATA


def test_links_to_folders_in_the_cache_are_not_followed(server, tmp_path):
    folder = addresses.cached_path(server.url).parent
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)
    assert refuses(server.url, "is in the way: expected a folder, not a link or file")
    assert not (tmp_path / "file.npz.part").exists() and not server.requests


def test_a_link_in_place_of_a_file_while_offline(server, tmp_path, monkeypatch):
    place = addresses.cached_path(server.url)
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere.npz")
    (tmp_path / "elsewhere.npz").write_bytes(DATA)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(DownloadError, match="is a link in the cache, which is not followed, and KERAS_VIT_OFFLINE"):
        download.fetch(server.url)


def test_cache_that_cannot_be_written(server, cache):
    cache.write_text("a file in its place")
    with pytest.raises(DownloadError, match="cannot be read or written: .* Set KERAS_VIT_CACHE"):
        download.fetch(server.url)


def test_full_disk(server, monkeypatch):
    def full(file, chunk, path, write=partial.write_chunk):
        if file.tell() + len(chunk) > SIZE // 2:
            raise partial.no_space(path, os.strerror(errno.ENOSPC))
        write(file, chunk, path)

    server.faults = [whole(pause=0.001)]
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "write_chunk", full)
        assert refuses(server.url, "No space left on device. Free some space")
    assert fetches(server.url)
    assert server.ranges()[1].startswith("bytes=")


def test_too_little_space_is_known_beforehand(server, monkeypatch):
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    assert refuses(server.url, "400,000 bytes are to come, 1,000 are free")


def started(url, **options):
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_file_size_limit_of_a_process(server):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))

    _, errors = started(server.url, preexec_fn=limit).communicate(timeout=20)
    assert "DownloadError" in errors and "File too large" in errors
    assert nothing_under(server.url)
    assert fetches(server.url)


def test_killed_in_mid_fetch_then_resumed(server):
    server.faults = [whole(pause=0.02), whole()]
    part = addresses.cached_path(server.url).with_name("file.npz.part")
    process = started(server.url)
    while not (part.exists() and part.stat().st_size > SIZE // 4):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert nothing_under(server.url)
    assert fetches(server.url)
    assert int(server.ranges()[1].removeprefix("bytes=").removesuffix("-")) > SIZE // 4


def test_killed_without_a_way_to_tell_the_pieces(server):
    server.faults = [whole(pause=0.02, sums=(), etag=None), whole(sums=(), etag=None)]
    part = addresses.cached_path(server.url).with_name("file.npz.part")
    process = started(server.url)
    while not (part.exists() and part.stat().st_size > SIZE // 4):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.kill()
    process.wait()
    server.data = OTHER
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, None]


def test_two_processes_fetch_once(server):
    server.faults = [whole(pause=0.01)]
    processes = [started(server.url) for _ in range(2)]
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [output for output, _ in outputs] == [f"{addresses.cached_path(server.url)}\n"] * 2, outputs
    assert len(server.requests) == 1 and fetches(server.url)


def test_eight_threads_fetch_once(server):
    server.faults = [whole(pause=0.001)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetches(server.url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8 and len(server.requests) == 1


def test_progress_on_a_terminal(server, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert fetches(server.url)
    assert "file.npz" in capsys.readouterr().err
    forget(server.url)
    download.fetch(server.url, progress=False)
    assert capsys.readouterr().err == ""


def test_names_in_the_bar_are_data(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress_bar("[bold]x[brown]\x1b]0;title\x07.npz", wanted=True) as bar:
        bar(1, 2)
    assert "[bold]x[brown]\\x1b]0;title\\x07.npz" in capsys.readouterr().err


def test_secrets_stay_out_of_sentences_and_files(server, cache, caplog):
    url = server.url.replace("http://", "http://me:hunter2@") + "?signature=hunter2"
    for last in (refuse(404), refuse(401), refuse(503), refuse(302, headers=[("Location", "http://[::1?hunter2")])):
        server.faults = [whole(send=1000), last]
        with pytest.raises(DownloadError) as caught:
            download.fetch(url)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + caplog.text
        server.requests.clear()
    for path in cache.rglob("*"):
        assert "hunter2" not in str(path) and (path.is_dir() or b"hunter2" not in path.read_bytes())


@pytest.mark.parametrize(
    ("data", "sum_"),
    [(b"123456789", "e3069283"), (bytes(32), "8a9136aa"), (b"\xff" * 32, "62a8ab43"), (bytes(range(32)), "46dd794e")],
)
def test_crc32c_of_the_rfc(data, sum_, tmp_path):
    """RFC 3720, B.4, and in the order of bytes in which servers write it."""
    (tmp_path / "file").write_bytes(data)
    found = integrity.compute_checksums(tmp_path / "file", ("crc32c", "sha256"))
    assert integrity.to_hexadecimal(found["crc32c"]) == sum_
    assert integrity.to_hexadecimal(found["sha256"]) == hashlib.sha256(data).hexdigest()

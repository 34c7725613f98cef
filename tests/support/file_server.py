"""A server of files that cuts, stalls, lies and changes, and what fetching from it is expected to do."""

import base64
import contextlib
import hashlib
import http.server
import random
import subprocess
import sys
import threading
import time

import google_crc32c
import pytest

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import cache, download

SIZE = 400_000
DATA = random.Random(0).randbytes(SIZE)
OTHER = random.Random(1).randbytes(SIZE)
GOOGLE = "https://storage.googleapis.com/vit_models/imagenet21k%2Bimagenet2012/file.npz"
FETCH = "import sys; from keras_vit.zoo.fetch.download import fetch; print(fetch(sys.argv[1]))"
ETAG, LENGTH = ("ETag", '"v1"'), ("Content-Length", str(SIZE))


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.data` by `server.faults`: one for each request in turn, the last for all that follow."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        with server.counting:
            server.requests.append((self.path, dict(self.headers)))
            fault = server.faults[min(len(server.requests), len(server.faults)) - 1]
        fault(self)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("", 0), Handler)
        self.counting = threading.Lock()
        self.requests, self.faults, self.data = [], [send_file()], DATA
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


def send_file(
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
            return send_status(416)(handler)
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
    digest = google_crc32c.Checksum(data) if name == "crc32c" else hashlib.new(name, data)
    return base64.b64encode(digest.digest()).decode()


def send_status(status, body=b"no", headers=()):
    def answer(handler):
        handler.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


def show_repository(folder, commit="c" * 40, headers=(), lie=None):
    """An answer with a file of a folder, as the Hugging Face Hub gives it.

    Args:
        lie: a SHA-256 to state of each file, as of a large one; by default a hash as of a small one.
    """

    def answer(handler):
        path = folder / handler.path.partition("/resolve/main/")[2]
        if not path.is_file():
            return send_status(404, headers=[("X-Error-Code", "EntryNotFound")], body=b"")(handler)
        body = path.read_bytes()
        handler.send_response(200)
        etag = lie or hashlib.sha1(body).hexdigest()
        stated = (("ETag", f'"{etag}"'), ("X-Repo-Commit", commit), ("Content-Length", str(len(body))))
        for name, value in (*stated, *headers):
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)

    return answer


def redirect(target, status=302):
    return send_status(status, headers=[("Location", target)])


def send_headers(*headers, status=200, body=DATA):
    """An answer with these headers alone."""

    def answer(handler):
        handler.send_response_only(status, "Fine\x1b[31m\x9b")
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return answer


def flip_bit(place=SIZE // 2, data=DATA):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def forget(url):
    """Empties the folder of a file in the cache."""
    for path in cache.cached_path(url).parent.iterdir():
        path.unlink()


def nothing_under(url):
    return not cache.cached_path(url).exists()


def fetches(url, data=DATA):
    path = download.fetch(url)
    return path.read_bytes() == data and path == cache.cached_path(url)


def refuses(url, says):
    with pytest.raises(DownloadError, match=says) as caught:
        download.fetch(url)
    assert nothing_under(caught.value and getattr(url, "url", url))
    return True


def start_process(url, **options):
    """A process that fetches `url` and prints its path."""
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )

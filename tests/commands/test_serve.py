"""`keras-vit serve`: files of one folder, to this machine alone."""

import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from keras_vit.commands.serve import HEADERS, open_server
from keras_vit.errors import ExportError


@pytest.fixture
def dist(tmp_path):
    web = tmp_path / "dist/web"
    (web / "runtime").mkdir(parents=True)
    for name in ("index.html", "page.js", "model.json", "runtime/ort.mjs", "runtime/ort.wasm", "model.onnx"):
        (web / name).write_text(name)
    (tmp_path / "dist/predict.py").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (web / "link").symlink_to(tmp_path / "secret")
    (web / "out").symlink_to(tmp_path)
    return tmp_path / "dist"


@contextlib.contextmanager
def serving(folder):
    with open_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address
        finally:
            server.shutdown()
            thread.join()


def ask(address, path, host=None, method="GET"):
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.putrequest(method, path, skip_host=host is not None)
    if host:
        connection.putheader("Host", host)
    connection.endheaders()
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read().decode()


def test_the_page_and_its_types(dist):
    with serving(dist) as address:
        assert address[0] == "127.0.0.1"
        assert ask(address, "/")[::2] == (200, "index.html")
        types = {"page.js": "text/javascript", "runtime/ort.mjs": "text/javascript"}
        types |= {"runtime/ort.wasm": "application/wasm", "model.onnx": "application/octet-stream"}
        for name, kind in types.items():
            status, headers, text = ask(address, f"/{name}?v=1")
            assert (status, text) == (200, name) and headers["Content-Type"].startswith(kind)
            assert HEADERS.items() <= dict(headers).items()
        assert ask(address, "/page.js", method="HEAD")[::2] == (200, "")
        assert ask(address, "/page.js", method="POST")[0] == 501
        assert ask(address, "/page.js", host=f"localhost:{address[1]}")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/../predict.py", "/..%2fpredict.py", "/%2e%2e/predict.py", "//etc/passwd", "/link", "/out/secret", "/runtime/"]
    + ["/runtime", "/out/", "/none", "/page.js/", "/\\..\\predict.py", "/%00", "/runtime/../../predict.py"]
    + [pytest.param("/" + "a" * 300, id="a name longer than any")],
)
def test_nothing_else_is_served(dist, path):
    with serving(dist) as address:
        status, _, text = ask(address, path)
    assert status == 404 and "secret" not in text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1:1", "127.0.0.1.evil.example:{}", ""]
    + [pytest.param("localhost:" + "9" * 5000, id="a port of 5,000 digits")],
)
def test_other_names_of_this_address_are_refused(dist, host):
    """A site whose name is made to stand for 127.0.0.1 would read the page's files as its own."""
    with serving(dist) as address:
        status, _, text = ask(address, "/", host=host.format(address[1]))
    assert status == 421 and "index" not in text


def test_a_browser_that_goes_away_is_no_error(dist, capfd):
    """It resets the connection: before it asks, and in the middle of a model larger than what sockets hold."""
    os.truncate(dist / "web/model.onnx", 1 << 26)
    with serving(dist) as address:
        for request in (b"", f"GET /model.onnx HTTP/1.1\r\nHost: localhost:{address[1]}\r\n\r\n".encode()):
            with socket.create_connection(address) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at close
                client.sendall(request)
                assert not request or client.recv(9) == b"HTTP/1.0 "
        assert ask(address, "/")[0] == 200  # after those: all of them have a thread now
        for thread in threading.enumerate():
            if "process_request" in thread.name:
                thread.join(30)
    assert capfd.readouterr().err == ""


def test_the_page_itself_or_its_bundle(dist):
    with serving(dist / "web") as address:
        assert ask(address, "/")[0] == 200
    for folder, cause in ((dist / "web/runtime", "it has no page"), (dist / "none", "there is no such folder")):
        with pytest.raises(ExportError, match=cause):
            open_server(folder, 0)


def test_a_taken_port_is_named(dist):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ExportError, match=f"Port {port} .*--port"):
            open_server(dist, port)


def test_the_command_prints_its_address_and_ends_with_a_sentence(dist):
    command = [sys.executable, "-m", "keras_vit", "serve", str(dist), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            address = line.split()[1]
            assert address.startswith("http://127.0.0.1:")
            host, port = address.removeprefix("http://").rstrip("/").split(":")
            assert ask((host, int(port)), "/")[0] == 200
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "no longer served" in out and error == "" and process.returncode == 0

"""Where a fetch may lead: certificates, redirects, mirrors and proxies."""

import pathlib
import shutil
import socket
import ssl
import subprocess

import pytest
from file_server import DATA, GOOGLE, fetches, redirect, refuses, send_file

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import cache, download


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


def make_secure(server, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)


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
    make_secure(server, certificate)
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


ELSEWHERE = {
    "redirects to an address that cannot be read": (
        "http://[::1",
        "http://h:x/",
        "//\xff/",
        "ftp://h/x",
        r"https://h\@g/",
    ),
    "cannot be read": ("file:///x",),
    "is not fetched: expected https": (
        "http://192.0.2.1/x",
        "http://127.0.0.1.nip.io/x",
        "http://10.0.0.1/",
        "http://0/x",
    ),
    "too many redirects": ("/again",),
}


@pytest.mark.parametrize(("says", "target"), [(says, target) for says, all_ in ELSEWHERE.items() for target in all_])
def test_redirects_that_are_not_followed(server, says, target):
    server.faults = [redirect(target)]
    assert refuses(server.url, says)


def test_https_does_not_lead_to_http(server, other, certificate, monkeypatch):
    """Not even on one machine: what was asked for in secret is not then sent in the clear."""
    make_secure(server, certificate)
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: look_up(host.replace(host, "127.0.0.1"), *rest))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    server.faults = [redirect(other.url)]
    assert refuses(f"https://files.example:{server.server_port}/file.npz", "is not fetched: expected https")
    assert len(server.requests) == 1 and not other.requests


@pytest.mark.parametrize("host", ["localhost", "127.9.9.9"])
def test_a_mirror_does_not_lead_to_another_host_in_the_clear(server, host, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", server.origin)
    server.faults = [redirect(f"http://{host}:{server.server_port}/admin"), send_file()]
    assert refuses(GOOGLE, "is not fetched: expected https")
    assert len(server.requests) == 1


def test_redirects(server):
    server.faults = [redirect("/elsewhere"), send_file()]
    assert fetches(server.url)
    server.faults = [redirect("http://192.0.2.1/file.npz")]
    assert refuses(f"{server.url}2", "192.0.2.1/file.npz is not fetched: expected https")


def test_mirror(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.origin}/copy/")
    path = download.fetch(GOOGLE.replace("%2B", "+"))
    assert path.read_bytes() == DATA
    assert server.requests[0][0] == "/copy/vit_models/imagenet21k%2Bimagenet2012/file.npz"
    assert path.parts[-4:-1] == ("copy", "vit_models", "imagenet21k+imagenet2012")
    monkeypatch.delenv("KERAS_VIT_MIRROR")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert refuses(GOOGLE, "is not in the cache")  # what a mirror gave is not Google's
    assert cache.cached_path(GOOGLE).parent.match("storage.googleapis.com/vit_models/imagenet21k+imagenet2012")


def test_proxy_and_plain_mirror(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.origin)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("KERAS_VIT_MIRROR", "http://mirror.invalid")
    assert download.fetch(GOOGLE).read_bytes() == DATA
    assert server.requests[0][0].startswith("http://mirror.invalid/vit_models/")

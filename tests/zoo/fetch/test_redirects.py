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
    server.faults = [redirect(target)]
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
    server.faults = [redirect(target), send_file()]
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
    server.faults = [
        redirect(f"http://cdn.example:{server.server_port}/x"),
        send_file(),
    ]
    assert refuses(GOOGLE, "leads to cdn.example, which is on this machine")
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

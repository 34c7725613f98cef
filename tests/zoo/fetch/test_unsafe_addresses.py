"""Addresses and settings that are refused before anything is sent."""

import pytest
from file_server import GOOGLE

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import download

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

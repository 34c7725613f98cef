"""Addresses and settings: refused before anything is sent, or kept in a place of their own."""

import pathlib
import re
import urllib.parse

import pytest
from file_server import GOOGLE

from keras_vit.errors import DownloadError, UnknownNameError
from keras_vit.zoo.fetch import cache, download, places
from keras_vit.zoo.fetch.places import read_url

NUMBER, SERVER = "must be a positive number", "must be an address such as https://host"
ODD = ("http://[::1", "mirror", "ftp://mirror", "https://h/?key=SECRET", r"https://a\@b", "https://me:SECRET@h:x")
SETTINGS = {
    "KERAS_VIT_TIMEOUT": (NUMBER, "inf", "1e300", "nan", "-1", "0", "soon", "1e9"),
    "KERAS_VIT_MAX_BYTES": (NUMBER, "inf", "1e300", "nan", "-1"),
    "KERAS_VIT_CACHE": ("must be a folder", "~nobody_of_that_name"),
    "KERAS_VIT_MIRROR": (SERVER, *ODD),
    "HF_ENDPOINT": (SERVER, *ODD),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cannot_be_used(name, monkeypatch):
    says, *values = SETTINGS[name]
    for value in values:
        monkeypatch.setenv(name, value)
        with pytest.raises(DownloadError, match=f"{name} {says}") as caught:
            download.fetch("hf://owner/repo" if name == "HF_ENDPOINT" else GOOGLE)
        assert "SECRET" not in str(caught.value)


PLAIN = ("http://example.org/x.npz", "http://10.0.0.1/x.npz", "http://127.0.0.1.example/x.npz", "http://0/x.npz")
OTHER = ("ftp://example.org/x.npz", "file:///etc/passwd", "x.npz", "https://example.org/", "http://127.0.0.1@h/x.npz")


@pytest.mark.parametrize("url", PLAIN + OTHER)
def test_addresses_that_are_not_asked(url):
    with pytest.raises(DownloadError, match="xpected (an address such as )?https"):
        download.fetch(url)


PATHS = ("/a/../b.npz", "/%2e%2e/b.npz", "/a%2f..%2fb.npz", "/a%00b", "/", "/a//b", "/b./c..", "/a%5cb", "/%ff.npz")


def test_addresses_that_lead_out_of_the_cache(server):
    for path in PATHS:
        with pytest.raises(DownloadError, match="names no file|an ambiguous or unsupported address"):
            download.fetch(server.origin + path)
    for url in ("gs://../x", "gs://b/%2e%2E/x", "gs://b/..%2fx", r"gs://b/..\\x", "gs://b/a/./x"):
        with pytest.raises(DownloadError, match="names no file|an ambiguous or unsupported address"):
            cache.cached_path(url)
    assert not server.requests


HUB = ("hf://../x", "hf://o/..", "hf://o/r/../../x", "hf://o/r@../x", "hf://o/r/%2e%2e/x", "hf://o/r/a%5cx", "hf://x")


@pytest.mark.parametrize("url", HUB)
def test_files_that_no_repository_has(url):
    with pytest.raises(UnknownNameError, match="is not of the form hf://owner/repo"):
        download.fetch(url)


# To be put before and behind the host and port of a server: what one reader takes for the host, another does not.
TWO_WAYS = [
    ("https://", r"\@storage.googleapis.com/vit_models/x.npz"),
    ("http://", r"\@storage.googleapis.com/vit_models/x.npz"),
    ("http://", "\t@storage.googleapis.com/x.npz"),
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
    ("http://", "/\ud800.npz"),
    ("http://", "/x\x00.npz"),
]


@pytest.mark.parametrize(("before", "behind"), TWO_WAYS)
def test_addresses_that_are_read_in_two_ways(server, before, behind):
    with pytest.raises(DownloadError, match="an ambiguous or unsupported address|names no file|expected https"):
        download.fetch(before + server.origin.removeprefix("http://") + behind)
    assert not server.requests


def test_hosts_that_are_read_in_two_ways():
    for host in (
        "",
        "h g",
        "me:\u00e9@h",
        "\u24d6oogle.com",
        "h\u3002g",
        "h:99999",
        "h:0",
        "h<",
        "a@b@c",
        "[::1",
        "h%2e",
    ):
        with pytest.raises(DownloadError, match="an ambiguous or unsupported address"):
            read_url(f"https://{host}/folder/file.npz")


def test_how_to_write_another_letter_of_a_path():
    with pytest.raises(DownloadError, match=re.escape(f"ä in a path is written {urllib.parse.quote('ä')}")):
        read_url("https://host/bär.jpg")


def test_places_are_told_apart():
    for text, place in (
        ("https://h/a.npz", "h/a.npz"),
        ("https://H/a%2e%41.npz", "h/a.A.npz"),
        ("https://h:8443/a.npz", "h+8443/a.npz"),
        ("https://h_8443/a.npz", "h_8443/a.npz"),
        ("http://h/a.npz", "http+h/a.npz"),
        ("https://[::1]:80/a.npz", "--1+80/a.npz"),
        ("https://me:secret@h/a.npz#part", "h/a.npz"),
        ("https://h/a.npz?b", "h/3e23e8160039-a.npz"),
    ):
        assert cache.cached_path(text) == places.cache_dir() / place


def test_passwords_of_odd_addresses_are_not_shown():
    for text in ("https://me:se?cret@h", "https://me:se cret@h", "https://me:secret@h\\", "me:secret@h"):
        with pytest.raises(DownloadError, match="What was given is an ambiguous") as caught:
            read_url(text)
        assert "cret" not in str(caught.value)


def test_a_page_of_the_hub_is_its_file():
    for way in ("resolve", "blob"):
        assert (
            places.hub_form(f"https://huggingface.co/o/r/{way}/main/a/b.npz?download=true") == "hf://o/r@main/a/b.npz"
        )
    assert places.whole_address("https://huggingface.co/o/r/blob/main/a%2Bb.npz") == "hf://o/r@main/a+b.npz"
    assert places.hub_form("https://example.org/o/r/resolve/main/x") == "https://example.org/o/r/resolve/main/x"
    assert not pathlib.Path(places.hub_cache()).exists()

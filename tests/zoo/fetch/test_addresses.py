"""Addresses: each is refused, or read alike by all that read it, and kept in a place of its own."""

import contextlib
import random
import types
import urllib.parse

import pytest
import requests
import urllib3

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import addresses, settings
from keras_vit.zoo.fetch.urls import public_form

NAMES = ".. . h. -h h- a..b h:abc h: h:99999 h:0 h< h| @ me@ a@b@c h%2eevil h,g h;g"
WIDE = "\u24d6oogle.com h\u3002g \u017ftorage h\uff03g h\u200bg \u212a"
NUMBERS = "0x7f.1 0x7f000001 127.1 2130706433 0177.0.0.1 1.2.3.4.5 256.1.1.1 1.1.1.0x1"
SIXES = "[::1 ::1 [::1%25lo] [v1.x] [1.2.3.4] [::1]g [[::1]]"
HOSTS = ["", "h g", "me:\u00e9@h", 64 * "a", "h" + 200 * ".hh"]


@pytest.mark.parametrize("host", [*HOSTS, *f"{NAMES} {WIDE} {NUMBERS} {SIXES}".split()])
def test_hosts_that_are_read_in_two_ways(host):
    with pytest.raises(DownloadError, match="not an address that all programs read alike"):
        addresses.cached_path(f"https://{host}/folder/file.npz")


PIECES = "/ / / // \\ a.npz b%2Fc %2e .. . % %41 %C3%A9 %2b + ? # ; \u00e9 \x7f ~ @ : = & %0a %5c \u202e".split()


@pytest.mark.parametrize(
    "host", ["H.example", "127.0.0.1", "[::1]", "me:p%40w@h", "h:443", "h:8080", "[::FFFF:1.2.3.4]:1"]
)
def test_an_address_is_read_as_it_is_sent(host):
    """What is accepted, `urllib` and `urllib3` read as it is kept; and it lies in the folder of its host alone."""
    chance, accepted = random.Random(host), 0
    for _ in range(500):
        text = f"https://{host}/" + "".join(chance.choices([*PIECES, " "], k=chance.randint(1, 6)))
        with contextlib.suppress(DownloadError):
            place, url = addresses.cached_path(text), addresses.requested_url(text)
            accepted += 1
            split, parsed = urllib.parse.urlsplit(url.text), urllib3.util.parse_url(url.text)
            assert (split.hostname, split.port or 443, split.path) == (url.host.strip("[]"), url.port or 443, url.path)
            assert (parsed.host, parsed.port or 443, parsed.path) == (url.host, url.port or 443, url.path)
            folder = place.relative_to(settings.cache_dir()).parts[0]
            assert folder.partition("+")[0] == url.host.replace(":", "-") and ".." not in place.parts
    assert accepted > 50


@pytest.mark.parametrize(
    "sent", ["https://g/a.npz", "http://h/a.npz", "https://h:8443/a.npz", "https://h/../a.npz", None]
)
def test_an_address_that_would_be_sent_elsewhere(sent, monkeypatch):
    monkeypatch.setattr(requests.Request, "prepare", lambda request: types.SimpleNamespace(url=sent))
    with pytest.raises(DownloadError, match="not an address that all programs read alike"):
        addresses.cached_path("https://h/a.npz")


def test_places_are_told_apart():
    root = settings.cache_dir()
    for text, place in (
        ("https://h/a.npz", "h/a.npz"),
        ("https://H:443/a%2e%41.npz", "h/a.A.npz"),
        ("https://h:8443/a.npz", "h+8443/a.npz"),
        ("https://h_8443/a.npz", "h_8443/a.npz"),
        ("http://h/a.npz", "http+h/a.npz"),
        ("https://[::1]:80/a.npz", "[--1]+80/a.npz"),
        ("https://me:secret@h/a.npz#part", "h/a.npz"),
        ("https://h/a.npz?b", "h/3e23e8160039-a.npz"),
    ):
        assert addresses.cached_path(text) == root / place


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@h:x/a", "https://..."),
        ("https://me:se?cret@h", "https://..."),
        ("https://h x/a?secret", "https://h x/a"),
        ("me:secret@h", "..."),
        ("http://me:secret@H:80/a?secret#secret", "http://h/a"),
        ("hf://owner/repo", "hf://owner/repo"),
        ("https://h/\x1b[31m\n", r"https://h/\x1b[31m\n"),
    ],
)
def test_what_is_shown_of_an_address(text, shown):
    assert public_form(text) == shown


@pytest.mark.parametrize("path", ["/", "/a//b", "/%00", "/a/?signature=secret"])
def test_sentences_show_no_password(path):
    with pytest.raises(DownloadError, match="https://h/.* names no file") as caught:
        addresses.cached_path(f"https://me:secret@h{path}")
    assert "secret" not in str(caught.value) + repr(addresses.requested_url("https://me:secret@h/a?secret"))


@pytest.mark.parametrize(
    "url",
    [
        "hf://../x",
        "hf://o/..",
        "hf://o/r/../../x",
        "hf://o/r@../x",
        "hf://o/r/%2e%2e/x",
        "hf://o/r/a%2f..%2fx",
        "hf://o/r/a%5cx",
    ]
    + ["gs://../x", "gs://b/%2e%2E/x", "gs://b/..%2fx", r"gs://b/..\\x", "gs://b/a/./x"],
)
def test_no_traversal_of_the_hub_or_of_buckets(url):
    with pytest.raises(DownloadError, match="not an address that all programs read alike|names no file"):
        addresses.cached_path(url)

"""Passwords go where they belong, and appear nowhere."""

import base64
import traceback

import pytest
from file_server import fetches, redirect, send_file, send_status

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import download


def test_netrc_is_not_read(server, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr("keras_vit.zoo.fetch.web.is_loopback", lambda url: False)  # as elsewhere, with its environment
    monkeypatch.setattr("keras_vit.zoo.fetch.web.require_safe", lambda url, first: None)
    monkeypatch.setenv("NO_PROXY", "*")
    assert fetches(server.url)
    assert not [headers for _, headers in server.requests if "Authorization" in headers]


def test_a_password_stays_with_its_server(server, other):
    """Also through redirects of its own."""
    server.faults = [redirect("/x"), redirect(other.url)]
    assert fetches(server.url.replace("http://", "http://me:p%40w@"))
    basic = "Basic " + base64.b64encode(b"me:p@w").decode()
    assert [headers.get("Authorization") for _, headers in server.requests] == [basic] * 2
    assert "Authorization" not in other.requests[0][1]


def test_secrets_stay_out_of_messages_and_files(server, cache, caplog):
    url = server.url.replace("http://", "http://me:hunter2@") + "?signature=hunter2"
    for last in (send_status(404), send_status(401), send_status(503), redirect("http://[::1?hunter2")):
        server.faults = [send_file(send=1000), last]
        with pytest.raises(DownloadError) as caught:
            download.fetch(url)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + caplog.text
        server.requests.clear()
    for path in cache.rglob("*"):
        assert "hunter2" not in str(path) and (path.is_dir() or b"hunter2" not in path.read_bytes())

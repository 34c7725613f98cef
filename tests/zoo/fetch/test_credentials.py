"""Tokens and passwords go where they belong, and appear nowhere."""

import base64
import hashlib
import os
import traceback

import pytest
from file_server import DATA, OTHER, fetches, redirect, send_file, send_status

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import download, session


def test_hub(server, monkeypatch):
    linked = hashlib.sha256(DATA).hexdigest()
    away = send_status(302, headers=[("Location", "/blob"), ("X-Linked-Etag", f'"{linked}"')])
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setenv("HF_TOKEN", "secret")
    server.faults = [
        away,
        send_file(data=OTHER, sums=()),
        away,
        send_file(data=OTHER, sums=()),
        away,
        send_file(sums=()),
    ]
    with pytest.raises(DownloadError, match="sha256"):
        download.fetch("hf://owner/repo")
    assert download.fetch("hf://owner/repo").read_bytes() == DATA
    assert server.requests[0][0] == "/owner/repo/resolve/main/model.safetensors"
    assert server.requests[0][1]["Authorization"] == "Bearer secret"
    server.faults = [send_file()]
    monkeypatch.setenv("HF_ENDPOINT", "https://huggingface.co")
    download.fetch(server.url)
    assert "Authorization" not in server.requests[-1][1]


@pytest.mark.parametrize("target", ["{}/x", "http://me:pw@{host}/x"])
def test_the_token_stays_with_the_hub(server, other, monkeypatch, target):
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    target = target.format(other.origin, host=other.origin.removeprefix("http://"))
    server.faults = [
        redirect("/again"),
        redirect(target, 307),
    ]
    other.faults = [redirect(f"{server.origin}/back")]
    with pytest.raises(DownloadError, match="redirects without end"):
        download.fetch("hf://owner/repo/file.npz")
    found = [headers.get("Authorization") for _, headers in server.requests]
    assert found == ["Bearer hf_secret"] * 2 + [None] * (len(found) - 2) and other.requests
    assert not [headers for _, headers in other.requests if "Authorization" in headers]


def test_netrc_is_not_read(server, other, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(session, "is_loopback", lambda url: False)  # as if it were elsewhere, with its environment
    monkeypatch.setattr(session, "require_safe", lambda url, before: None)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    server.faults = [redirect(other.url)]
    assert download.fetch("hf://owner/repo/file.npz").read_bytes() == DATA
    assert not [headers for _, headers in server.requests + other.requests if "Authorization" in headers]


def test_a_password_stays_with_its_server(server, other):
    """Also through redirects of its own."""
    server.faults = [
        redirect("/x"),
        redirect(other.url),
    ]
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


def test_secrets_stay_out_of_sentences_and_files(server, cache, caplog):
    url = server.url.replace("http://", "http://me:hunter2@") + "?signature=hunter2"
    for last in (
        send_status(404),
        send_status(401),
        send_status(503),
        redirect("http://[::1?hunter2"),
    ):
        server.faults = [send_file(send=1000), last]
        with pytest.raises(DownloadError) as caught:
            download.fetch(url)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + caplog.text
        server.requests.clear()
    for path in cache.rglob("*"):
        assert "hunter2" not in str(path) and (path.is_dir() or b"hunter2" not in path.read_bytes())

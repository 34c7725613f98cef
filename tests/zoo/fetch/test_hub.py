"""Files of the Hugging Face Hub, from a server on this machine that answers as the Hub does."""

import hashlib
import traceback

import huggingface_hub
import pytest
from file_server import DATA, OTHER, send_status, show_repository
from huggingface_hub.errors import LocalEntryNotFoundError

from keras_vit.errors import DownloadError
from keras_vit.zoo.fetch import download, places
from keras_vit.zoo.fetch.download import NotFoundError
from keras_vit.zoo.names.registry import resolve


@pytest.fixture
def repository(server, tmp_path, monkeypatch):
    """The folder of hf://owner/repo."""
    monkeypatch.setenv("HF_ENDPOINT", server.origin)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "model.safetensors").write_bytes(DATA)
    server.faults = [show_repository(tmp_path / "repository")]
    return tmp_path / "repository"


def test_a_file_is_fetched_once(server, repository, monkeypatch):
    path = download.fetch("hf://owner/repo")
    assert path.read_bytes() == DATA and path.is_relative_to(places.hub_cache())
    assert server.requests[0][0] == "/owner/repo/resolve/main/model.safetensors"
    asked = len(server.requests)
    (repository / "model.safetensors").write_bytes(OTHER)
    for name in ("hf://owner/repo", f"{server.origin}/owner/repo/resolve/main/model.safetensors"):
        assert download.fetch(name) == path and download.find_fetched(name) == path
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert download.fetch("hf://owner/repo").read_bytes() == DATA and len(server.requests) == asked


def test_a_file_that_is_not_the_one_stated(server, repository):
    """Large files are stated by their SHA-256."""
    server.faults = [show_repository(repository, lie=hashlib.sha256(OTHER).hexdigest())]
    with pytest.raises(DownloadError, match="does not have the sha256 that the Hub states"):
        download.fetch("hf://owner/repo")
    assert download.find_fetched("hf://owner/repo") is None
    assert not [path for path in places.hub_cache().rglob("*") if path.is_file() and path.read_bytes() == DATA]
    server.faults = [show_repository(repository, lie=hashlib.sha256(DATA).hexdigest())]
    assert download.fetch("hf://owner/repo").read_bytes() == DATA


def test_refusals(server, repository, monkeypatch):
    with pytest.raises(NotFoundError, match="hf://owner/repo@main/no.npz is not there: the repository has no such"):
        download.fetch("hf://owner/repo@main/no.npz")
    for code, says in (("RepoNotFound", "not there, or not public.*HF_TOKEN"), ("GatedRepo", "licence .* HF_TOKEN")):
        server.faults = [send_status(403 if code == "GatedRepo" else 404, headers=[("X-Error-Code", code)])]
        with pytest.raises(DownloadError, match=says):
            download.fetch("hf://owner/repo")
    with pytest.raises(DownloadError, match="has 400,000 bytes; at most 1,000"), monkeypatch.context() as patch:
        server.faults = [show_repository(repository)]
        patch.setenv("KERAS_VIT_MAX_BYTES", "1000")
        download.fetch("hf://owner/repo")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(DownloadError, match="is not in the Hub's cache, .*hub, and KERAS_VIT_OFFLINE .*hf download"):
        download.fetch("hf://owner/repo")


def test_nobody_answers(server, repository, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_TIMEOUT", "0.5")
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match="hf://owner/repo@main/model.safetensors could not be fetched: .*refused"):
        download.fetch("hf://owner/repo")


def test_a_connection_that_breaks_is_no_missing_file(repository, monkeypatch):
    def break_off(*args, **options):
        raise LocalEntryNotFoundError("Check your connection.") from ConnectionResetError(
            104, "Connection reset by peer"
        )

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", break_off)
    with pytest.raises(DownloadError, match="could not be fetched: Connection reset by peer. Try again") as caught:
        download.fetch("hf://owner/repo")
    assert not isinstance(caught.value, NotFoundError)


def test_companions_are_fetched_beside_a_model_that_is_there(server, repository):
    """transformers fetches the model alone; what the repository lacks is asked for once."""
    path = download.fetch("hf://owner/repo")
    (repository / "config.json").write_text("{}")
    absent = [("X-Error-Code", "EntryNotFound"), ("X-Repo-Commit", "c" * 40)]
    shown = show_repository(repository)
    server.faults = [lambda h: (send_status(404, headers=absent, body=b"") if "prepro" in h.path else shown)(h)]
    for _ in range(2):
        assert download.fetch_with_companions(resolve("hf://owner/repo")) == path
        assert path.with_name("config.json").read_text() == "{}"
        asked, server.requests[:] = len(server.requests), []
    assert not asked


def test_companions_are_of_the_models_own_commit(server, repository):
    """Though config.json was fetched before, of an older one."""
    (repository / "config.json").write_text("[1]")
    download.fetch("hf://owner/repo/config.json")
    (repository / "config.json").write_text("[2]")
    server.faults = [show_repository(repository, commit="d" * 40)]
    path = download.fetch_with_companions(resolve("hf://owner/repo"))
    assert path.parent.name == "d" * 40 and path.with_name("config.json").read_text() == "[2]"


def test_a_model_that_is_there_needs_no_server(server, repository):
    path = download.fetch("hf://owner/repo")
    server.faults = [send_status(403)]
    assert download.fetch_with_companions(resolve("hf://owner/repo")) == path


def test_the_token_goes_to_the_hub_alone(server, other, repository, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    away = send_status(
        302,
        headers=[
            ("Location", f"{other.origin}/resolve/main/model.safetensors"),
            ("ETag", '"v1"'),
            ("X-Repo-Commit", "c" * 40),
            ("X-Linked-Size", str(len(DATA))),
        ],
    )
    server.faults, other.faults = [away], [show_repository(repository)]
    assert download.fetch("hf://owner/repo").read_bytes() == DATA
    assert {headers.get("authorization", headers.get("Authorization")) for _, headers in server.requests} == {
        "Bearer hf_secret"
    }
    assert other.requests and not [h for _, h in other.requests if {"authorization", "Authorization"} & h.keys()]


@pytest.mark.parametrize("token", ["hf_s\u00e9cret", "hf secret", "hf_\U0001f600secret"])
def test_tokens_that_no_header_can_hold(server, repository, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(DownloadError, match="HF_TOKEN contains spaces or characters") as caught:
        download.fetch("hf://owner/repo")
    assert "secret" not in "".join(traceback.format_exception(caught.value)) and not server.requests

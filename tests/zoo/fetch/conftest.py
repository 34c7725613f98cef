"""Fixtures of fetching: servers on this machine, and a cache of each test's own."""

import pytest
from file_server import Server

from keras_vit.zoo.fetch import download


def serve():
    with Server() as running:
        yield running
        running.shutdown()


server = pytest.fixture(serve, name="server")
other = pytest.fixture(serve, name="other")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("MIRROR", "OFFLINE", "TIMEOUT", "MAX_BYTES"):
        monkeypatch.delenv(f"KERAS_VIT_{name}", raising=False)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(download, "BACKOFF", 0.01)
    return tmp_path / "cache"

"""`zoo.push` against a server that keeps what it is sent, as the Hugging Face Hub does."""

import base64
import http.server
import json
import threading

import huggingface_hub
import pytest

from keras_vit import zoo
from keras_vit.errors import UploadError

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "onnx/model.onnx": b"graph", ".env": b"secret"}
CARD = "---\nlicense: apache-2.0\n---\n\n# model\n"


class Hub(http.server.ThreadingHTTPServer):
    """Repositories, {name: {path: bytes}}; `fails` is the status with which a commit is answered, if any."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.tokens, self.fails = {}, set(), None


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, found, status=200):
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read(self):
        self.server.tokens.add(self.headers["Authorization"])
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        self.read()
        self.answer({"id": "owner/name", "sha": "c" * 40, "siblings": []})

    def do_DELETE(self):
        asked = json.loads(self.read())
        self.server.repositories.pop(f"{asked.get('organization') or 'owner'}/{asked['name']}", None)
        self.answer({})

    def do_POST(self):
        body, hub = self.read(), self.server
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'owner'}/{asked['name']}"
            if name in hub.repositories:
                return self.answer({"error": "exists", "url": f"/{name}"}, 409)
            hub.repositories[name] = {}
            return self.answer({"url": f"/{name}", "name": name})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            return self.answer(
                {"files": [{"path": x["path"], "uploadMode": "regular", "shouldIgnore": False} for x in asked]}
            )
        if "/commit/" in self.path:
            if hub.fails:
                return self.answer({"error": "no"}, hub.fails)
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    hub.repositories["owner/name"][line["value"]["path"]] = content
            return self.answer({"commitUrl": "/owner/name/commit/c", "commitOid": "c" * 40, "success": True})
        return self.answer({}, 404)


@pytest.fixture
def hub(monkeypatch):
    with Hub() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        monkeypatch.delenv("KERAS_VIT_OFFLINE", raising=False)
        yield running
        running.shutdown()


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "README.md").write_text(CARD)
    return tmp_path


def test_a_folder_arrives_as_it_is_but_for_hidden_files(hub, folder):
    assert zoo.push(folder, "owner/name").endswith("/owner/name")
    shown = {name: content for name, content in FILES.items() if not name.startswith(".")}
    assert hub.repositories == {"owner/name": {**shown, "README.md": CARD.encode()}}
    assert "Bearer hf_mine" in hub.tokens


def test_what_exists_is_left_alone(hub, folder):
    hub.repositories["owner/name"] = {"README.md": b"theirs"}
    with pytest.raises(UploadError, match="owner/name exists already, and is not changed"):
        zoo.push(folder, "owner/name")
    assert hub.repositories == {"owner/name": {"README.md": b"theirs"}}


@pytest.mark.parametrize("status", [400, 403])
def test_a_failed_upload_leaves_no_repository(hub, folder, status):
    hub.fails = status
    with pytest.raises(UploadError, match=f"could not be uploaded: the Hub answered {status}.*was removed"):
        zoo.push(folder, "owner/name")
    assert hub.repositories == {}


def test_a_repository_that_stays_is_named(hub, folder, monkeypatch):
    def fail(*args, **options):
        raise ConnectionError("down")

    hub.fails = 400
    monkeypatch.setattr(huggingface_hub.HfApi, "delete_repo", fail)
    with pytest.raises(
        UploadError, match="answered 400. owner/name could not be removed: delete it on the Hub by hand"
    ):
        zoo.push(folder, "owner/name")


REFUSED = {
    "no token": (CARD, "owner/name", {"HF_TOKEN": ""}, "needs a token that may write"),
    "offline": (CARD, "owner/name", {"KERAS_VIT_OFFLINE": "1"}, "forbids the network"),
    "bad card": ("---\nlicense: [\n---\n", "owner/name", {}, "README.md has no valid YAML"),
    "plain http": (CARD, "owner/name", {"HF_ENDPOINT": "http://hub.example"}, "HF_ENDPOINT must be an https address"),
    "no owner": (CARD, "name", {}, "is called owner/name. Received: 'name'"),
    "no licence": ("# model\n", "owner/name", {}, "states no licence"),
    "other": ("---\nlicense: other\n---\n", "owner/name", {}, "put its text into .*LICENSE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_made(hub, folder, monkeypatch, case):
    card, name, environment, says = REFUSED[case]
    (folder / "README.md").write_text(card)
    monkeypatch.setenv("HF_HOME", str(folder / "none"))
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(UploadError, match=says):
        zoo.push(folder, name)
    assert hub.repositories == {} and not hub.tokens


def test_no_folder_of_a_model(hub, tmp_path):
    with pytest.raises(UploadError, match="has no README.md. Expected a folder that zoo.save"):
        zoo.push(tmp_path, "owner/name")

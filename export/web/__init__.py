"""The page of a bundle, web/: the model in a browser, on the user's own device.

Here are the files that a browser loads: the page's own, onnxruntime-web of one version, and the digests of both.
Imports nothing heavy: `verify` reads it too. `page` writes a page.
"""

import base64
import hashlib
import html
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = "web"  # of a bundle
# Every name that the page's files may have in a bundle.
PATTERN = (
    rf"{FOLDER}/(index\.html|page\.(js|css)|model\.(json|onnx)|"
    r"examples/\d\.(png|jpg|f32)|runtime/(ort[a-z.-]+\.(mjs|wasm)|LICENSE|ThirdPartyNotices\.txt))"
)

WEB_LAYOUTS = ("transformers",)
LAYOUT = "transformers"  # of a bundle: the model in the layout that transformers.js opens, see `transformers_js`
LAYOUT_FILES: dict[str, Literal["dynamic"] | None] = {"onnx/model.onnx": None, "onnx/model_quantized.onnx": "dynamic"}
# Every name that the layout's files may have in a bundle.
LAYOUT_PATTERN = rf"{LAYOUT}/(config\.json|preprocessor_config\.json|onnx/model(_quantized)?\.onnx)"

VERSION = "1.30.0"
NETWORK = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
VENDORED = "./runtime/"  # of the page
LICENCES = ("LICENSE", "ThirdPartyNotices.txt")  # from the Python package onnxruntime; npm's has no such files
HERE = Path(__file__).parent
TEXTS = ("index.html", "page.js", "page.css")


@dataclass(frozen=True)
class RuntimeFile:
    """A file of the runtime: its name, length in bytes and SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str

    @property
    def address(self) -> str:
        """The file's address on the content network."""
        return NETWORK + self.name

    @property
    def integrity(self) -> str:
        """The digest with which a browser compares the file (W3C, Subresource Integrity)."""
        return "sha256-" + base64.b64encode(bytes.fromhex(self.sha256)).decode()


# The script, and the WebAssembly that it starts.
RUNTIME = (
    RuntimeFile("ort.wasm.bundle.min.mjs", 73054, "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90"),
    RuntimeFile(
        "ort-wasm-simd-threaded.wasm", 14239897, "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"
    ),
)


def fetch_runtime() -> list[Path]:
    """Fetches the runtime's files at the first call, or raises DownloadError; returns their paths in the cache."""
    from keras_vit.zoo.fetch.download import fetch
    from keras_vit.zoo.names.rows import PublicCheckpoint

    return [fetch(PublicCheckpoint(x.address, bytes=x.bytes, bytes_source="exact", sha256=x.sha256)) for x in RUNTIME]


def copy_runtime(folder: Path) -> None:
    """Copies the runtime's files and their licences into the new folder; raises the errors of `fetch_runtime`."""
    import onnxruntime

    folder.mkdir()
    licences = [Path(onnxruntime.__file__).with_name(name) for name in LICENCES]
    for path in [*fetch_runtime(), *licences]:
        shutil.copyfile(path, folder / path.name)


def describe_runtime(vendor: bool) -> dict[str, Any]:
    """The addresses of the script and the WebAssembly in the page, with bytes and integrity."""
    place = VENDORED if vendor else NETWORK
    script, binary = RUNTIME
    return {
        "script": place + script.name,
        "script_integrity": script.integrity,
        "binary": place + binary.name,
        "integrity": binary.integrity,
        "bytes": binary.bytes,
    }


def write_policy(imports, vendor):
    """The Content-Security-Policy: allows the page's own files, and the runtime's if they are elsewhere."""
    digest = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
    files = [] if vendor else [file.address for file in RUNTIME]
    places = " ".join(["'self'", *files])
    rules = {
        "default-src": "'none'",
        "script-src": f"{places} 'sha256-{digest}' 'wasm-unsafe-eval'",
        "connect-src": places,
        "img-src": "'self' data:",
        "style-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{rule} {value}" for rule, value in rules.items())


def page_texts(name, vendor):
    """{name: text} of the page's own files, for a model of this name.

    The import map gives the script for the name "ort", and the digest that it must have.
    """
    texts = {file: (HERE / file).read_text("utf-8") for file in TEXTS}
    script, integrity = (describe_runtime(vendor)[name] for name in ("script", "script_integrity"))
    imports = json.dumps({"imports": {"ort": script}, "integrity": {script: integrity}})
    page = texts["index.html"].replace("{imports}", imports).replace("{policy}", write_policy(imports, vendor))
    texts["index.html"] = page.replace("{title}", html.escape(name))
    return texts


def list_foreign_files(name, files):
    """Lists those of {file: SHA-256} that a browser would run, and this version would not write for a model `name`."""
    vendored = f"{FOLDER}/{Path(VENDORED).name}/"
    vendor = any(file.startswith(vendored) for file in files)
    known = {f"{vendored}{file.name}": file.sha256 for file in RUNTIME}
    texts = page_texts(name, vendor)
    known |= {f"{FOLDER}/{file}": hashlib.sha256(text.encode()).hexdigest() for file, text in texts.items()}
    runs = (f"{vendored}ort", *(f"{FOLDER}/{file}" for file in TEXTS))
    return [file for file, digest in files.items() if file.startswith(runs) and known.get(file) != digest]

"""The page's own files: one HTML, one script, one style sheet, and what the page may fetch and run.

Imports nothing heavy: `verify` reads it too.
"""

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import NamedTuple

from keras_vit.export.formats import Quantize
from keras_vit.export.web import FOLDER
from keras_vit.export.web.runtime import RUNTIME, VENDORED, describe_runtime

HERE = Path(__file__).parent
TEXTS = ("index.html", "page.js", "page.css")
PARTS = ("script", "binary")


class PageModel(NamedTuple):
    """A model of the page: what it runs on, its file, and how it is quantized."""

    backend: str
    file: str
    quantize: Quantize | None


# In the order of preference; the page takes the first that its browser runs rightly. Every page has the last.
MODELS = (
    PageModel("webgpu", "model-float16.onnx", "mixed_float16"),  # where the feature shader-f16 is
    PageModel("wasm", "model.onnx", "dynamic"),
)
BACKENDS = tuple(row.backend for row in MODELS)


def page_texts(name, vendor):
    """{name: text} of the page's own files, for a model of that name."""
    texts = {file: (HERE / file).read_text("utf-8") for file in TEXTS}
    imports = write_imports(vendor)
    page = texts["index.html"].replace("{imports}", imports).replace("{policy}", write_policy(imports, vendor))
    texts["index.html"] = page.replace("{title}", html.escape(name))
    return texts


def write_imports(vendor):
    """The import map: which script a name stands for, and the digest that it must have."""
    rows = describe_runtime(BACKENDS, vendor)
    imports = {f"ort-{backend}": row["script"] for backend, row in rows.items()}
    return json.dumps({"imports": imports, "integrity": {r["script"]: r["script_integrity"] for r in rows.values()}})


def write_policy(imports, vendor):
    """The Content-Security-Policy: the page's own files, and the runtime's where they lie elsewhere."""
    digest = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
    files = [] if vendor else [row[part] for row in describe_runtime(BACKENDS, vendor).values() for part in PARTS]
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


def list_foreign_files(name, files):
    """The files of a bundle's page that a browser would run and that this version does not write.

    Args:
        name: of the model.
        files: {name: SHA-256} of the bundle's files, with "/".
    """
    vendored = f"{FOLDER}/{Path(VENDORED).name}/"
    vendor = any(file.startswith(vendored) for file in files)
    known = {f"{vendored}{file.name}": file.sha256 for rows in RUNTIME.values() for file in rows}
    texts = page_texts(name, vendor)
    known |= {f"{FOLDER}/{file}": hashlib.sha256(text.encode()).hexdigest() for file, text in texts.items()}
    runs = (f"{vendored}ort", *(f"{FOLDER}/{file}" for file in TEXTS))
    return [file for file, digest in files.items() if file.startswith(runs) and known.get(file) != digest]

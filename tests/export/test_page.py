"""The page of a bundle: what is in it, what it may fetch and run, and what is refused."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import export, inspection, zoo
from keras_vit.commands.export import export_model
from keras_vit.errors import ConfigError, DownloadError, ExportError, ParityError
from keras_vit.export import web
from keras_vit.export.web import page
from keras_vit.images.pillow import read_image
from keras_vit.models import ResNet, VisionTransformer
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.zoo.fetch.cache import cached_path

TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}


def tiny(labels=("cat", "dog", "hen")):
    model = VisionTransformer(**TINY, num_classes=3, labels=labels, preprocessing=Preprocessing((32, 32), crop=0.9))
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(0).normal(0, 0.2, weight.shape))
    return model


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    out, lines, model = tmp_path_factory.mktemp("page") / "dist", [], tiny(labels=None)
    export.bundle(model, out, formats=["onnx"], web=True, progress=lines.append)
    return model, out, lines


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found:
            self.texts.setdefault(self.found[-1][0], data)


def test_what_a_page_has(dist):
    model, out, lines = dist
    names = sorted(path.relative_to(out).as_posix() for path in (out / "web").rglob("*") if path.is_file())
    pictures = [f"web/examples/{i}.{ending}" for i, ending in enumerate(("png", "png", "png", "jpg"))]
    inputs = [f"web/examples/{i}.f32" for i in range(4)]
    own = [
        "web/index.html",
        "web/model.json",
        "web/model.onnx",
        "web/page.css",
        "web/page.js",
    ]
    assert names == sorted([*pictures, *inputs, *own])
    assert all(re.fullmatch(web.PATTERN, name) for name in names)
    assert any("no labels" in line for line in lines)
    notes = []
    export.verify(out, progress=notes.append)
    assert notes == []


def test_the_pages_own_files_are_few_and_short():
    lines = [line for name in web.TEXTS for line in (web.HERE / name).read_text("utf-8").splitlines()]
    assert len(lines) < 400 and max(map(len, lines)) <= 120


def test_examples_are_the_models(dist):
    model, out, _ = dist
    about = json.loads((out / "web/model.json").read_text("utf-8"))
    sizes = set()
    for entry in about["examples"]:
        pixels = read_image(out / "web/examples" / entry["file"])
        sizes.add(pixels.shape)
        x = np.asarray(model.preprocessing(pixels[None]))
        stored = np.fromfile(out / "web/examples" / entry["input"], "<f4").reshape(x.shape)
        np.testing.assert_allclose(stored, x, atol=1e-6)
        np.testing.assert_allclose(np.asarray(model(x))[0], entry["logits"], atol=1e-4)
    assert sizes == {(32, 32, 3), (301, 224, 3), (223, 330, 3)}  # the last lies on its side


def test_a_page_shows_the_pictures_that_it_is_given(tmp_path):
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (40 + 9 * i, 50, 3), "uint8") for i in range(5)]
    export.bundle(tiny(), tmp_path / "dist", formats=["onnx"], web=True, pictures=pictures)
    about = json.loads((tmp_path / "dist/web/model.json").read_text("utf-8"))
    shown = [read_image(tmp_path / "dist/web/examples" / entry["file"]) for entry in about["examples"]]
    assert len(shown) == 4
    for given, found in zip(pictures[:3], shown[:3], strict=True):
        np.testing.assert_array_equal(found, given)
    assert shown[3].shape == pictures[3].shape  # the JPEG lies on its side


def test_only_what_the_page_names_is_fetched_and_run(dist):
    _, out, _ = dist
    elements = Elements((out / "web/index.html").read_text("utf-8"))
    policy = next(a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "unsafe-inline" not in policy and "unsafe-eval'" in policy
    assert "'unsafe-eval'" not in policy
    digest = base64.b64encode(hashlib.sha256(elements.texts["script"].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in rules["script-src"]
    imports = json.loads(elements.texts["script"])
    about = json.loads((out / "web/model.json").read_text("utf-8"))
    runtime = about["runtime"]
    assert imports["imports"] == {"ort": runtime["script"]} and f"@{web.VERSION}/" in runtime["script"]
    for place in (runtime["script"], runtime["binary"]):
        assert place.startswith("https://") and place in rules["script-src"] and place in rules["connect-src"]
    for digest in (imports["integrity"][runtime["script"]], runtime["integrity"]):
        assert len(base64.b64decode(digest.removeprefix("sha256-"))) == 32
    assert not [a for tag, a in elements.found if any(name.startswith("on") or name == "style" for name in a)]


def test_names_are_not_markup():
    text = web.page_texts('<img src=x onerror="alert(1)"> {policy}', vendor=True)["index.html"]
    assert "<img" not in text and "{policy}" in text and text.count("Content-Security-Policy") == 1


@pytest.fixture
def small_runtime(monkeypatch, tmp_path):
    """A runtime of two small files, which the cache has."""
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    contents = {"ort.small.mjs": b"export {}", "ort.small.wasm": b"\0asm"}
    rows = [web.RuntimeFile(name, len(x), hashlib.sha256(x).hexdigest()) for name, x in contents.items()]
    monkeypatch.setattr(web, "RUNTIME", tuple(rows))
    for row in rows:
        cached_path(row.address).parent.mkdir(parents=True, exist_ok=True)
        cached_path(row.address).write_bytes(contents[row.name])
    return rows


@pytest.mark.slow
def test_a_vendored_page_needs_no_network(small_runtime, tmp_path):
    out = tmp_path / "dist"
    export.bundle(tiny(), out, formats=["onnx"], web=True, vendor=True)
    assert (out / "web/runtime/ort.small.wasm").read_bytes() == b"\0asm"
    for name in web.TEXTS:
        assert "https:" not in (out / "web" / name).read_text("utf-8")
    notes = []
    export.verify(out, progress=notes.append)
    assert notes == []


def test_a_copied_runtime_has_its_licence_beside_it(small_runtime, tmp_path):
    folder = tmp_path / "runtime"
    web.copy_runtime(folder)
    assert (folder / "LICENSE").read_text().startswith("MIT License\n\nCopyright (c) Microsoft Corporation")
    assert "Emscripten authors" in (folder / "ThirdPartyNotices.txt").read_text("utf-8")
    listed = {f"web/runtime/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert len(listed) == 4 and all(re.fullmatch(web.PATTERN, name) for name in listed)
    assert web.list_foreign_files("a model", listed) == []


def test_a_runtime_that_is_not_to_be_had_leaves_nothing(small_runtime, tmp_path):
    cached_path(small_runtime[0].address).write_bytes(b"export {x}")
    with pytest.raises(DownloadError, match="KERAS_VIT_OFFLINE"):
        export.bundle(tiny(), tmp_path / "dist", formats=["onnx"], web=True, vendor=True)
    assert not (tmp_path / "dist").exists()


def test_a_strangers_page_is_named(dist, tmp_path):
    _, out, _ = dist
    listed = json.loads((out / "keras-vit-export.json").read_text())["files"]
    assert web.list_foreign_files(dist[0].name, listed) == []
    listed |= {"web/page.js": "0" * 64, "web/runtime/ort.mjs": "0" * 64}
    foreign = web.list_foreign_files(dist[0].name, listed)
    assert {"web/page.js", "web/runtime/ort.mjs"} <= set(foreign)


@pytest.mark.slow
def test_a_model_that_int8_ruins_has_a_page_in_float32(tmp_path, monkeypatch):
    write = page.write_proved

    def write_and_compare(model, form, path, quantize, *further, **options):
        report = write(model, form, path, quantize, *further, **options)
        if quantize is not None:
            raise ParityError("differs")
        return report

    monkeypatch.setattr(page, "write_proved", write_and_compare)
    lines, out = [], tmp_path / "dist"
    export.bundle(tiny(), out, formats=["onnx"], web=True, progress=lines.append)
    assert any("the page has it in float32" in line and "differs" in line for line in lines)
    assert json.loads((out / "web/model.json").read_text("utf-8"))["model"]["quantize"] is None
    export.verify(out)


def test_models_that_no_page_can_feed(tmp_path):
    unknown = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(3)])
    with pytest.raises(ExportError, match="preprocessing is unknown"):
        export.bundle(unknown, tmp_path / "dist", formats=["onnx"], web=True)
    four = VisionTransformer(
        **TINY, num_channels=4, num_classes=3, preprocessing=Preprocessing((32, 32), mean=(0.5,) * 4, std=(0.5,) * 4)
    )
    with pytest.raises(ExportError, match="1 or 3"):
        export.bundle(four, tmp_path / "dist", formats=["onnx"], web=True)
    vectors = VisionTransformer(**TINY, num_classes=0, preprocessing=Preprocessing((32, 32)))
    with pytest.raises(ExportError, match="has no classes. Give references="):
        export.bundle(vectors, tmp_path / "dist", formats=["onnx"], web=True)
    x = keras.Input(batch_shape=(4, 32, 32, 3))
    fixed = keras.Model(x, tiny()(x))
    fixed.preprocessing = Preprocessing((32, 32))
    with pytest.raises(ExportError, match="one picture at a time, but the model's batch is fixed at 4"):
        export.bundle(fixed, tmp_path / "dist", formats=["onnx"], web=True)
    with pytest.raises(ExportError, match="pictures are uint8 images .* Received: float64, shape .8, 8, 3."):
        export.bundle(tiny(), tmp_path / "dist", formats=["onnx"], web=True, pictures=[np.zeros((8, 8, 3))])
    with pytest.raises(ExportError, match="no page"):
        export.bundle(tiny(), tmp_path / "dist", formats=["onnx"], vendor=True)
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
def test_a_model_that_no_browser_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "LARGEST", 10_000)
    with pytest.raises(ExportError, match="a browser holds 2 GB"):
        export.bundle(tiny(), tmp_path / "dist", formats=["onnx"], web=True)
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
def test_a_resnet_has_a_page_without_attention(tmp_path):
    model = ResNet(depths=(1,), width_factor=0.5, num_classes=3, labels=("a", "b", "c"), image_size=32)
    model.preprocessing = Preprocessing((32, 32))
    export.bundle(model, tmp_path / "dist", formats=["onnx"], web=True)
    assert json.loads((tmp_path / "dist/web/model.json").read_text())["grid"] is None


def test_no_pictures_are_those_of_the_bundle():
    assert len(page.choose_pictures([], np.zeros((2, 32, 32, 3)), Preprocessing((32, 32)))) == 4


@pytest.mark.slow
def test_class_vectors_make_a_classifier_with_a_page(tmp_path):
    """As `zoo.zero_shot` does; a page of vectors needs something to compare with."""
    towers = zoo.load("ViT-Test/4", weights=None, num_classes=0)
    zoo.save(towers, tmp_path / "towers.keras")
    pets = {"class_vectors": np.random.default_rng(0).normal(size=(2, 64)), "labels": ["cat", "dog"], "scale": 10.0}
    np.savez(tmp_path / "pets.npz", **pets)
    asked = {"to": ["onnx"], "web": True}
    out = tmp_path / "dist"
    export_model(str(tmp_path / "towers.keras"), out, class_vectors=tmp_path / "pets.npz", **asked)
    about = json.loads((out / "web/model.json").read_text("utf-8"))
    classifier = zoo.zero_shot(towers, **pets)
    x = np.fromfile(out / "web/examples/0.f32", "<f4").reshape(1, 32, 32, 3)
    assert about["labels"] == ["cat", "dog"] and "references" not in about
    np.testing.assert_allclose(about["examples"][0]["logits"], np.asarray(classifier(x))[0], atol=1e-4)
    np.savez(tmp_path / "vectors.npz", vectors=np.ones((2, 64)))  # as `keras-vit embed` writes
    for options, sentence in (
        (asked, "give it --examples"),
        ({**asked, "class_vectors": tmp_path / "vectors.npz"}, "has no class vectors. Make a file"),
        ({**asked, "examples": tmp_path / "none.npz"}, "has no class vectors. Make a file"),
        ({"to": ["onnx"], "examples": tmp_path}, "Add --web"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            export_model(str(tmp_path / "towers.keras"), tmp_path / "other", **options)
    whole = (tmp_path / "pets.npz").read_bytes()
    for number, content in enumerate((whole[:-50], b"", whole.replace(b"scale", b"scala"))):
        (tmp_path / f"{number}.npz").write_bytes(content)
        with pytest.raises(ConfigError, match="has no class vectors. Make a file"):
            export_model(
                str(tmp_path / "towers.keras"), tmp_path / "other", class_vectors=tmp_path / f"{number}.npz", **asked
            )
    with pytest.raises(ExportError, match="2 names and vectors of the shape"):
        export.bundle(towers, tmp_path / "other", ["onnx"], web=True, references=(["cat", "dog"], np.ones((2, 9))))
    assert not (tmp_path / "other").exists()


LARGE = """
const data = new Uint8ClampedArray(4 * 4000 * 3000).map((_, i) => (i % 16000 < 8000 && i % 4 % 3 ? 0 : 255));
const rules = { image_size: [2, 2], crop: null, interpolation: "bilinear", mean: [0], std: [1] };
console.log(JSON.stringify([...preprocess({ data, width: 4000, height: 3000 }, rules, 1).input]));
"""


def test_a_large_photo_becomes_grey_in_little_memory():
    """12 million pixels, the left half red and the right half white; V8 may use 64 MB besides the pixels."""
    node = shutil.which("node") or pytest.skip("Node.js is not installed")
    script = (web.HERE / "page.js").read_text().partition("/** The pixels of a file")[0] + LARGE
    printed = subprocess.run([node, "--max-old-space-size=64", "-e", script], capture_output=True, check=True).stdout
    red = np.asarray(Image.new("RGB", (1, 1), "red").convert("L")).item()
    np.testing.assert_allclose(json.loads(printed), np.array([red, 255, red, 255]) / 255, atol=1e-6)


ROLL_OUT = """
const [data, dims, ...further] = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify([...rollOut({ data, dims }, ...further, 0, 0)]));
"""


@pytest.mark.parametrize("token", [True, False])
def test_attention_is_rolled_out_from_what_the_head_reads(token):
    """Of a class token, 2 registers and 6 patches, as `inspection.rollout` does."""
    node = shutil.which("node") or pytest.skip("Node.js is not installed")
    weights = np.random.default_rng(0).dirichlet(np.ones(9), (3, 1, 2, 9))  # (blocks, n, heads, tokens, tokens)
    script = (web.HERE / "page.js").read_text().partition("async function fetchBytes")[0] + ROLL_OUT
    given = json.dumps([weights.ravel().tolist(), [1, 3, 2, 9, 9], 6, token])
    printed = subprocess.run([node, "-e", script], input=given.encode(), capture_output=True, check=True).stdout
    expected = inspection.rollout(weights, (2, 3), token, registers=2)[0]
    np.testing.assert_allclose(json.loads(printed), expected.ravel() / expected.max(), atol=1e-6)

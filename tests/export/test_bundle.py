"""The bundle: whole, usable without this package, provable again, and honest when it was changed."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format
from markdown_it import MarkdownIt
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.commands.export import export_model
from keras_vit.errors import ConfigError, ExportError, ParityError
from keras_vit.export import predict_script
from keras_vit.export.card import list_model_facts, write_card
from keras_vit.export.description import describe_model
from keras_vit.export.staging import MANIFEST, ExportFolder
from keras_vit.models import ResNet, VisionTransformer
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.owned import files_in

TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}
LABELS = ("cat", "dog", "hen")
FILES = ["README.md", "examples.npz", MANIFEST, "model.json", "model.onnx", "model.tflite", "predict.py"]


def shaken(model):
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(0).normal(0, 0.2, weight.shape))
    return model


def tiny(crop=None):
    keras.utils.set_random_seed(1)  # logits well off zero, where their cosine says nothing
    preprocessing = Preprocessing((32, 32), crop=crop)
    return shaken(VisionTransformer(**TINY, num_classes=3, labels=LABELS, preprocessing=preprocessing))


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle") / "dist [1]"
    lines = []
    model = tiny()
    model.reports = export.bundle(
        model, out, quantize="dynamic", endpoints=("features",), progress=lines.append, metadata={"licence": "MIT"}
    )
    assert len([line for line in lines if "layers are measured" not in line]) == 6  # which not every model needs
    return model, out


@pytest.mark.slow
def test_everything_is_there(dist):
    model, out = dist
    assert sorted(path.name for path in out.iterdir()) == [*FILES, "saved_model"]
    about = json.loads((out / "model.json").read_text())
    assert (
        about["labels"] == list(LABELS)
        and about["licence"] == "MIT"
        and about["preprocessing"]["image_size"] == [32, 32]
    )
    assert [entry["quantize"] for entry in about["artefacts"]] == ["dynamic", "dynamic", None]
    assert all(entry["cosine"] > 0.99 for entry in about["artefacts"])
    card = (out / "README.md").read_text()
    assert "| saved_model/1 | float32 |" in card and "Licence: MIT" in card
    assert [report.path for report in model.reports] == [str(out / entry["file"]) for entry in about["artefacts"]]


@pytest.mark.slow
def test_it_proves_itself_again(dist):
    reports = export.verify(dist[1])
    assert [report.format for report in reports] == ["onnx", "tflite", "saved_model"]
    assert reports[2].max_rel_diff < 1e-5


RUNTIMES = {"model.onnx": "onnxruntime", "model.tflite": "ai_edge_litert", "saved_model/1": "tensorflow"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNTIMES)
def test_predict_needs_only_the_runtime(dist, name, tmp_path):
    model, out = dist
    y, x = np.mgrid[0:60, 0:90]
    picture = np.stack([y * 4, x * 2, y + x], axis=-1).astype("uint8")
    Image.fromarray(picture).save(tmp_path / "picture.png")
    others = ["keras_vit", "keras", *(set(RUNTIMES.values()) - {RUNTIMES[name]})]
    script = f"""
        import runpy, sys
        for other in {others}:
            sys.modules[other] = None
        sys.argv = ["predict.py", {str(tmp_path / "picture.png")!r}, "--model", {name!r}, "--top", "1"]
        runpy.run_path({str(out / "predict.py")!r}, run_name="__main__")
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    path, probability, label = result.stdout.strip().split("\t")
    logits = np.asarray(model(model.preprocessing(picture[None])))[0]
    assert label == LABELS[logits.argmax()] and "XNNPACK" not in result.stderr, result.stderr
    assert abs(float(probability) - np.exp(logits).max() / np.exp(logits).sum()) < 0.05


@pytest.mark.parametrize(("crop", "mode"), ((None, "center"), (0.875, "center"), (0.9, "squash")))
@pytest.mark.parametrize("interpolation", ("bilinear", "bicubic", "lanczos3", "nearest"))
@pytest.mark.parametrize("size", ((20, 31), (100, 64)))
def test_preprocessing_in_numpy_is_keras_own(crop, mode, interpolation, size):
    preprocessing = Preprocessing(
        (32, 24), crop=crop, interpolation=interpolation, mean=(0.4, 0.5, 0.6), crop_mode=mode
    )
    x = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype("uint8")
    received = predict_script.preprocess(x, **dataclasses.asdict(preprocessing))
    np.testing.assert_allclose(received, np.asarray(preprocessing(x[None]))[0], atol=2e-3)


def test_pictures_as_phones_and_scanners_write_them(tmp_path):
    """Turned by a note in the file; sixteen bits of grey; more pixels than fit."""
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 3)).astype("uint8")
    note = Image.Exif()
    note[0x0112] = 6  # to be turned clockwise by a quarter
    Image.fromarray(x).save(tmp_path / "turned.png", exif=note)
    np.testing.assert_array_equal(predict_script.open_image(tmp_path / "turned.png", 3), np.rot90(x, -1))
    Image.fromarray(x[..., 0].astype("uint16") * 256 + 99).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(predict_script.open_image(tmp_path / "deep.png", 1), x[..., :1])
    Image.new("L", (70_000_000, 1)).save(tmp_path / "long.png")
    with pytest.raises(ValueError, match="70000000 x 1 pixels"):
        predict_script.open_image(tmp_path / "long.png", 3)
    with pytest.raises(ValueError, match="pixels"):
        predict_script.preprocess(np.zeros((1, 3_000_000, 3), "uint8"), (32, 32), 0.875, "bilinear", 0, 1)


def test_files_that_would_start_programs_or_wait_are_not_opened(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("cat.jpg", "pipe.png", "zero.png", "absent.png"):
        with pytest.raises((OSError, ValueError), match="cannot identify|no such file"):
            predict_script.open_image(tmp_path / name, 3)
    with pytest.raises(ValueError, match="it is a folder"):
        predict_script.open_image(tmp_path, 3)


def test_predict_goes_on_after_a_bad_picture_and_prints_names_as_they_are(tmp_path, monkeypatch, capsys):
    labels = ["cat [brown]", "x\x1b]0;title\x07\nline", "\u202edog"]
    about = {
        "artefacts": [{"file": "model.onnx"}],
        "inputs": [{"shape": [None, 8, 8, 3]}],
        "labels": labels,
        "probabilities": "softmax",
        "preprocessing": {"image_size": [8, 8], "crop": None, "interpolation": "bilinear", "mean": 0.5, "std": 0.5},
    }
    (tmp_path / "model.json").write_text(json.dumps(about))
    (tmp_path / "model.onnx").touch()
    Image.new("RGB", (9, 9)).save(tmp_path / "good.png")
    Image.new("1", (100_000_000, 1)).save(tmp_path / "flat.png")
    (tmp_path / "bad\nline.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    monkeypatch.setattr(predict_script, "HERE", tmp_path)
    monkeypatch.setattr(predict_script, "load_model", lambda path: lambda x: np.array([[3.0, 2.0, 1.0]]))
    pictures = [str(tmp_path / name) for name in ("flat.png", "bad\nline.png", "good.png")]
    monkeypatch.setattr(sys, "argv", ["predict.py", *pictures])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    with pytest.raises(SystemExit) as ended:
        predict_script.main()
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert [line.split("\t")[2] for line in printed.out.splitlines()] == [
        "cat [brown]",
        "x\\x1b]0;title\\x07\\nline",
        "\\u202edog",
    ]
    assert len(printed.err.splitlines()) == 2 and printed.err.replace("\n", "").isprintable()


def test_predict_lists_equal_classes_in_their_order(tmp_path, monkeypatch, capsys):
    """As `keras_vit.predict` does; a quantized file often gives equal logits."""
    logits = np.random.default_rng(0).integers(0, 4, 100).astype("float32") * 40  # sigmoids of 80 and 120 are both 1
    about = {
        "artefacts": [{"file": "model.onnx"}],
        "inputs": [{"shape": [None, 8, 8, 3]}],
        "labels": None,
        "probabilities": "sigmoid",
        "preprocessing": {"image_size": [8, 8], "crop": None, "interpolation": "bilinear", "mean": 0.5, "std": 0.5},
    }
    (tmp_path / "model.json").write_text(json.dumps(about))
    (tmp_path / "model.onnx").touch()
    Image.new("RGB", (9, 9)).save(tmp_path / "good.png")
    monkeypatch.setattr(predict_script, "HERE", tmp_path)
    monkeypatch.setattr(predict_script, "load_model", lambda path: lambda x: logits[None])
    monkeypatch.setattr(sys, "argv", ["predict.py", str(tmp_path / "good.png"), "--top", "100"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    with pytest.raises(SystemExit):
        predict_script.main()
    printed = [int(line.split("\t")[2]) for line in capsys.readouterr().out.splitlines()]
    assert printed == sorted(range(100), key=lambda i: -logits[i])  # Python's sort keeps the order of equal ones


def test_nothing_from_elsewhere_is_markup_in_the_card():
    """By a parser of Markdown that makes links of bare addresses, as the Hub and GitHub do."""
    about = {
        "name": "a<script>\n# title",
        "labels": ["![x](http://evil)", "`</code><b>", "http://evil.example", "---"],
        "source": "[x](javascript:y)",
        "probabilities": "softmax",
        "licence": None,
        "preprocessing": None,
        "inputs": [{"shape": [None, 8], "dtype": "float32"}],
        "outputs": [{"shape": [None, 4], "dtype": "float32"}],
        "versions": {"keras": "3"},
        "further_outputs": [],
        "artefacts": [],
    }
    entry = {
        "file": "model.onnx",
        "format": "onnx",
        "quantize": None,
        "bytes": 1,
        "max_abs_diff": 0.0,
        "cosine": 1.0,
        "images": 4,
        "finer": {"![x](http://evil)": "float16"},
    }
    text = write_card({**about, "artefacts": [{**entry, "top1_agreement": None, "images": 4}]})
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(front)["pipeline_tag"] == "image-classification"
    html = MarkdownIt("gfm-like").render(body)
    assert not re.search("<(a|img|script|b)[ >]", html) and html.count("<h1>") == 1
    assert all(f"<code>{name}</code>" in html for name in ("http://evil.example", "---"))


def test_the_card_says_what_was_measured():
    about = {
        "name": "photos",
        "labels": [f"class {i}" for i in range(60)],
        "probabilities": "softmax",
        "licence": "MIT",
        "architecture": "ViT-B/16",
        "preprocessing": None,
        "inputs": [{"shape": [None, 8], "dtype": "float32"}],
        "outputs": [{"shape": [None, 60], "dtype": "float32"}],
        "versions": {"keras": "3"},
        "evaluated": {"dataset": "folder:photos", "split": "validation", "accuracy": 23 / 36, "images": 36},
        "further_outputs": [],
        "artefacts": [],
    }
    text = write_card(about)
    front = yaml.safe_load(text.split("---")[1])
    assert front["license"] == "mit" and front["model-index"][0]["results"][0]["metrics"][0]["value"] == 23 / 36
    assert "- Accuracy: 63.9%, 23 of 36 images (validation of folder:photos)" in text
    assert "`class 49` and 10 more" in text and "- Architecture: ViT-B/16" in text
    rounded = {**about["evaluated"], "accuracy": 0.7665, "images": 1906}  # of 1,461 images, 76.653 %
    assert "- Accuracy: 76.7%, 1,461 of 1,906 images" in write_card({**about, "evaluated": rounded})


def test_the_card_of_a_model_of_masks_says_so():
    """By the names of the Hub's tasks and of its metrics."""
    config = {"image_size": 8, "classifier": "patches", "labels": ("sky", "sea"), "num_classes": 2}
    model = VisionTransformer(**{**TINY, **config})
    about = describe_model(model, model, [x.shape for x in model.inputs], model.preprocessing)
    measured = {"dataset": "masks:sea", "split": "validation", "images": 9, "mean_iou": 0.5}
    front = yaml.safe_load(write_card({**about, "artefacts": [], "evaluated": measured}).split("---")[1])
    (result,) = front["model-index"][0]["results"]
    assert front["pipeline_tag"] == result["task"]["type"] == "image-segmentation"
    unnamed = write_card({**about, "artefacts": [], "labels": None})
    assert yaml.safe_load(unnamed.split("---")[1])["pipeline_tag"] == "image-segmentation"
    assert result["metrics"] == [{"type": "mean_iou", "value": 0.5}]


def test_vectors_of_patches_are_no_classes(tmp_path):
    """The weights' accuracy is that of their head, which is not exported; predict.py prints what the model computes."""
    export_model("R20x0.5:fashion-mnist", tmp_path, to=["onnx"], dense=True)
    about, card = json.loads((tmp_path / "model.json").read_text()), (tmp_path / "README.md").read_text("utf-8")
    assert about["probabilities"] is None and about["trained_on"].startswith("60,000 images")
    assert "evaluated" not in about and "ccuracy" not in card
    picture = np.random.default_rng(0).integers(0, 256, (28, 28, 3), "uint8")
    Image.fromarray(picture).save(tmp_path / "x.png")
    command = [sys.executable, tmp_path / "predict.py", tmp_path / "x.png"]
    _, *numbers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("\t")
    model = keras_vit.zoo.load("R20x0.5:fashion-mnist", num_classes=0, classifier="patches")
    expected = np.asarray(model(model.preprocessing(picture[None])))[0]  # (rows, columns, 512)
    received = np.array(numbers, float).reshape(expected.shape)
    np.testing.assert_allclose(received, expected, atol=1e-4 * np.abs(expected).max())
    for asked in (tmp_path, model):
        with pytest.raises(ConfigError, match="has no head"):
            keras_vit.predict(asked, picture)
    with pytest.raises(ConfigError, match="a vector for each cell of an image, but none for the image"):
        keras_vit.embed(tmp_path, picture)


@pytest.mark.parametrize(
    ("crop", "words"), ((None, "(bilinear, no crop)"), (0.9, "(bilinear, the middle 0.9 of it squashed)"))
)
def test_the_card_says_what_is_cut_off(crop, words):
    preprocessing = dataclasses.asdict(Preprocessing((32, 32), crop=crop, crop_mode="squash"))
    inputs = [{"shape": [None, 8], "dtype": "float32"}]
    facts = list_model_facts({"inputs": inputs, "preprocessing": preprocessing, "versions": {}})
    assert words in "".join(facts)


RUN_WITHOUT = """
import runpy, sys
sys.modules[sys.argv.pop(1)] = None
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_script_says_what_to_install(tmp_path):
    export.bundle(tiny(), tmp_path / "dist", ["onnx"])
    script = tmp_path / "dist" / "predict.py"
    for module, line in (("PIL", "pip install numpy pillow"), ("onnxruntime", "pip install onnxruntime")):
        command = [sys.executable, "-c", RUN_WITHOUT, module, str(script), "cat.jpg"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.strip().endswith(line) and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_changed_file_is_named(tmp_path):
    export.bundle(tiny(), tmp_path / "dist", ["onnx"])
    path = tmp_path / "dist" / "model.onnx"
    original = path.read_bytes()
    path.write_bytes(original + b" ")
    with pytest.raises(ExportError, match="was changed"):
        export.verify(tmp_path / "dist")
    path.unlink()
    with pytest.raises(ExportError, match="missing"):
        export.verify(tmp_path / "dist")
    with pytest.raises(ExportError, match="is not a bundle"):
        export.verify(tmp_path)


@pytest.mark.slow
def test_a_wrong_model_with_right_digests_is_found(tmp_path):
    export.bundle(tiny(), tmp_path / "dist", ["onnx"])
    export.convert(VisionTransformer(**TINY, num_classes=3), tmp_path / "dist" / "model.onnx")
    with pytest.raises(ExportError, match="model.onnx was changed"):
        export.verify(tmp_path / "dist")
    (tmp_path / "dist" / MANIFEST).unlink()
    ExportFolder(tmp_path / "dist").enter(files_in(tmp_path / "dist"))
    with pytest.raises(ParityError):
        export.verify(tmp_path / "dist")


@pytest.mark.slow
def test_nothing_is_left_when_a_format_fails(tmp_path):
    with pytest.raises(ExportError, match="No format is called 'caffe'"):
        export.bundle(tiny(), tmp_path / "dist", ["onnx", "caffe"])
    with pytest.raises(ExportError, match="Writing StableHLO works on Keras' backend jax"):
        lines = []
        export.bundle(tiny(), tmp_path / "dist", ["onnx", "stablehlo"], progress=lines.append)
    assert not lines  # no other format was converted before
    with pytest.raises(ExportError, match="int3"):
        export.bundle(tiny(), tmp_path / "dist", ["onnx"], quantize="int3")
    with pytest.raises(ExportError, match="shape"):
        export.bundle(tiny(), tmp_path / "dist", ["onnx"], images=np.zeros((2, 8, 8, 3), "float32"))
    with pytest.raises(ExportError, match="Add saved_model"):
        export.bundle(tiny(), tmp_path / "dist", ["onnx"], endpoints=("features",))
    assert not list(tmp_path.iterdir())
    (tmp_path / "README.md").write_text("keep")
    with pytest.raises(ExportError, match="README.md was not written by an export"):
        export.bundle(tiny(), tmp_path, ["onnx"])
    assert (tmp_path / "README.md").read_text() == "keep"


@pytest.mark.slow
def test_a_model_that_writes_files_is_refused_by_the_path_asked_for(tmp_path):
    class Writing(keras.layers.Layer):
        def call(self, x):
            tf.io.write_file(str(tmp_path / "log"), "called")
            return x

    inputs = keras.Input((4,))
    model = keras.Model(inputs, Writing()(inputs))
    place = re.escape(str(tmp_path / "dist" / "saved_model"))
    with pytest.raises(ExportError, match=f"^{place}.* was not opened: it has the operation WriteFile"):
        export.bundle(model, tmp_path / "dist", ["saved_model"])
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
def test_free_sizes_and_models_that_know_nothing_of_pictures(tmp_path):
    import keras

    export.bundle(
        shaken(ResNet(image_size=None, depths=(1,), width_factor=0.5, num_classes=3)), tmp_path / "free", ["onnx"]
    )
    x = keras.Input((8,), name="numbers")
    export.bundle(keras.Model(x, keras.layers.Dense(3)(x)), tmp_path / "plain", ["onnx", "saved_model"])
    assert not (tmp_path / "plain" / "predict.py").exists()
    for name in ("free", "plain"):
        assert export.verify(tmp_path / name)[0].max_rel_diff < 1e-4


@pytest.mark.slow
def test_an_image_size_is_that_of_the_preprocessing_too(tmp_path):
    model = shaken(ResNet(image_size=None, depths=(1,), width_factor=0.5, num_classes=3, labels=LABELS))
    export.bundle(model, tmp_path / "dist", ["onnx", "saved_model"], image_size=(32, 48))
    about = json.loads((tmp_path / "dist" / "model.json").read_text("utf-8"))
    assert about["preprocessing"]["image_size"] == [32, 48] and model.preprocessing.image_size == (224, 224)
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), "uint8")
    expected = model(dataclasses.replace(model.preprocessing, image_size=(32, 48))(image[None]))
    served = tf.saved_model.load(tmp_path / "dist/saved_model/1").signatures["serve_uint8"](images=image[None])
    np.testing.assert_allclose(served["logits"], expected, atol=1e-4)
    probabilities = keras_vit.predict(tmp_path / "dist/model.onnx", image, top=3)
    np.testing.assert_allclose(sorted(probabilities.probabilities), sorted(tf.nn.softmax(expected)[0]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_outputs_that_are_probabilities_are_given_as_they_are(activation, tmp_path):
    """As those of most models of Keras."""
    model, layer = tiny(), keras.layers.Activation(activation)
    whole = keras.Model(model.input, layer(model.output))
    whole.preprocessing, whole.labels = model.preprocessing, list(LABELS)
    export.bundle(whole, tmp_path / "dist", ["onnx", "saved_model"])
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), "uint8")
    expected = np.asarray(whole(model.preprocessing(image[None])))[0]
    best = keras_vit.predict(tmp_path / "dist", image, top=1)
    np.testing.assert_allclose(best.probabilities[0], max(expected), atol=1e-5)
    served = tf.saved_model.load(tmp_path / "dist/saved_model/1").signatures["serve_uint8"](images=image[None])
    np.testing.assert_allclose(served["probabilities"][0], expected, atol=1e-5)
    Image.fromarray(image).save(tmp_path / "a.png")
    said = subprocess.run(
        [sys.executable, tmp_path / "dist/predict.py", tmp_path / "a.png"], capture_output=True, text=True, check=True
    )
    assert float(said.stdout.split("\t")[1]) == pytest.approx(max(expected), abs=1e-4)
    with pytest.raises(ExportError, match="softmax to every image classifier's logits, but .* gives probabilities"):
        export.bundle(whole, tmp_path / "web", ["onnx"], web_layout="transformers")


class Subclassed(keras.Model):
    """As in Keras' guides: probabilities from a layer that only `call` knows."""

    def __init__(self):
        super().__init__()
        self.pool, self.head = keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, activation="softmax")

    def call(self, x, training=None):
        return self.head(self.pool(x))


@pytest.mark.parametrize("wrapped", [False, True])
def test_probabilities_of_a_subclassed_model_are_given_as_they_are(wrapped, tmp_path):
    inner, x = Subclassed(), keras.Input((32, 32, 3))
    outer = keras.Model(x, inner(x))
    model = outer if wrapped else inner
    model.preprocessing = Preprocessing((32, 32))
    export.convert(model, tmp_path / "model.onnx")
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), "uint8")
    expected = np.asarray(model(model.preprocessing(image[None])))[0]
    found = keras_vit.predict(tmp_path / "model.onnx", image)
    np.testing.assert_allclose(found.probabilities, sorted(expected, reverse=True), atol=1e-5)


def test_one_logit_is_of_two_classes(tmp_path):
    """As in Keras' guide to transfer learning, whose loss is the binary cross-entropy of one logit."""
    x = keras.Input((32, 32, 3))
    model = keras.Model(x, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling2D()(x)))
    model.preprocessing = Preprocessing((32, 32))
    export.convert(model, tmp_path / "model.onnx")
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), "uint8")
    logit = float(np.asarray(model(model.preprocessing(image[None])))[0, 0])
    (found,) = keras_vit.predict(tmp_path / "model.onnx", image).probabilities
    assert found == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)


def test_vectors_have_no_best_class(tmp_path):
    """The largest number of a vector says nothing: neither the report, nor the card, nor `verify` compare it."""
    model = shaken(VisionTransformer(**TINY, num_classes=0))
    reports = export.bundle(model, tmp_path, ["onnx"]) + export.verify(tmp_path)
    assert [(x.top1_agreement, x.top5_agreement, x.top1_regret) for x in reports] == [(None,) * 3] * 2
    assert reports[0].cosine > 0.9999 and "%" not in (tmp_path / "README.md").read_text("utf-8")


def test_a_repository_for_triton(tmp_path):
    """config.pbtxt is read by Triton's own definition of it, where the package that has it is installed."""
    model = tiny()
    export.bundle(model, tmp_path / "dist", ["onnx"])
    script = Path(__file__).parents[2] / "examples" / "serving" / "triton_repository.py"
    command = [sys.executable, str(script), str(tmp_path / "dist"), str(tmp_path / "repository")]
    subprocess.run(command, check=True)
    folder = tmp_path / "repository" / "vit"
    assert (folder / "labels.txt").read_text().splitlines() == list(LABELS)
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx")
    assert subprocess.run(command, capture_output=True).returncode == 2  # nothing is overwritten
    export.bundle(model, tmp_path / "dist", ["onnx"], batch_size=2)
    fixed = subprocess.run([*command, "--name", "fixed"], capture_output=True, text=True)
    assert "or a fixed batch" in fixed.stderr and not (tmp_path / "repository" / "fixed").exists()
    pytest.importorskip("rapidjson")  # without it, Triton's client refuses to be imported
    definition = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    config = text_format.Parse((folder / "config.pbtxt").read_text(), definition.ModelConfig())
    assert (config.name, config.platform, config.max_batch_size) == ("vit", "onnxruntime_onnx", 32)
    for stated, found in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        assert [(x.name, list(x.dims)) for x in stated] == [(x.name, x.shape[1:]) for x in found]

"""Exported files and bundles are asked and evaluated as the model that they came from."""

import json
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import sklearn.metrics
from PIL import Image
from shaking import shaken

import keras_vit
from keras_vit import data, evaluation, export, inference, zoo
from keras_vit.errors import ConfigError, ExportError
from keras_vit.export import opening
from keras_vit.models import Preprocessing

LABELS = ("hen", "cat", "dog")  # folders come sorted
PLACES = ("dist", "dist/model.onnx", "dist/model.tflite", "dist/saved_model", "dist/saved_model/1", "three.tflite")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a model, what was exported of it, and photos of its classes."""
    root = tmp_path_factory.mktemp("exported")
    rng = np.random.default_rng(0)
    for name in LABELS:
        (root / "photos" / name).mkdir(parents=True)
        for number in range(7):
            pixels = rng.integers(0, 256, (20 + number, 30, 4), "uint8")
            Image.fromarray(pixels).save(root / "photos" / name / f"{number}.png")
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=LABELS)
    model.get_layer("head").kernel.assign(rng.normal(size=(64, 3)))
    export.bundle(model, root / "dist")
    export.convert(model, root / "three.tflite", batch_size=3)
    model.save(root / "model.keras")
    return root


@pytest.fixture(scope="module")
def photos(root):
    return data.load(f"folder:{root / 'photos'}", "train+validation")


@pytest.fixture(scope="module")
def model(root):
    return zoo.load(root / "model.keras")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_an_exported_file_is_as_good_as_its_model(root, photos, model, place):
    exported = inference.open_classifier(root / place)
    assert exported.labels == LABELS and exported.config.num_classes == 3
    found, expected = (evaluation.evaluate(each, photos, 8) for each in (exported, model))
    assert found.top1 == expected.top1 and found.classes == expected.classes
    paths = sorted(map(str, (root / "photos").glob("*/*.png")))
    predictions = [keras_vit.predict(each, paths, batch_size=5) for each in (str(root / place), model)]
    for a, b in zip(*predictions, strict=True):
        assert a.names == b.names and a.probabilities == pytest.approx(b.probabilities, abs=1e-4)
    truth = [path.split("/")[-2] for path in paths]
    guesses = [prediction.name for prediction in predictions[0]]
    assert found.top1.value == sklearn.metrics.accuracy_score(truth, guesses)
    report = sklearn.metrics.classification_report(truth, guesses, output_dict=True, zero_division=0)
    for score in found.classes:
        expected = {"precision": score.precision or 0, "recall": score.recall, "f1-score": score.f1}
        assert report[score.name] == pytest.approx({**expected, "support": score.count})


def test_uint8_images_are_normalized():
    """As by a model of this package; floats are inputs already."""
    artefact = opening.Artefact(Path("model.onnx"), None, lambda images: images)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    exported = inference.ExportedModel(artefact, Preprocessing((8, 8), mean=mean, std=std), None, (8, 8, 3))
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype("uint8")
    expected = (images / 255 - mean) / std
    np.testing.assert_allclose(exported.predict_on_batch(images), expected, atol=1e-5)
    np.testing.assert_allclose(exported(expected), expected, atol=1e-5)


@pytest.mark.slow
def test_a_saved_model_alone_is_asked_for_its_preprocessing(root, model, tmp_path):
    shutil.copytree(root / "dist/saved_model/1", tmp_path / "bare")
    with pytest.raises(ConfigError, match="does not say how images become its input.*--like runs/1"):
        inference.open_classifier(tmp_path / "bare")
    for like in (root / "model.keras", root / "dist", model):
        found = inference.open_classifier(tmp_path / "bare", like=like)
        assert (found.labels, found.preprocessing) == (LABELS, model.preprocessing)
    other = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=("a", "b"))
    with pytest.raises(ConfigError, match="has 3 classes, but names for 2"):
        inference.open_classifier(tmp_path / "bare", like=other)
    other = zoo.load("ViT-Test/4", weights=None, image_size=32, num_layers=1, labels=LABELS)
    with pytest.raises(ExportError, match="does not run on images"):
        inference.open_classifier(tmp_path / "bare", like=other)


DESCRIPTION = json.dumps(
    {
        "inputs": [{"name": "x", "shape": [None, 8, 8, 3], "dtype": "float32"}],
        "outputs": [{"shape": [None, 2], "dtype": "float32"}],
        "preprocessing": None,
        "labels": None,
        "probabilities": "softmax",
    }
)


def described_by_zip(path, text, how=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("metadata.json", text)


def described_by_properties(path, text):
    properties = [
        onnx.StringStringEntryProto(key=key, value=x if key == "probabilities" else json.dumps(x))
        for key, x in json.loads(text).items()
    ]
    properties[0].value += text[len(text.rstrip()) :]
    path.write_bytes(onnx.ModelProto(metadata_props=properties).SerializeToString())


@pytest.mark.parametrize(("name", "write"), [("x.tflite", described_by_zip), ("x.onnx", described_by_properties)])
def test_a_description_is_short(name, write, tmp_path):
    """Of 60 MB of brackets, which deflate takes to 60 kB, Python makes 2 GB of lists."""
    write(tmp_path / name, DESCRIPTION)
    assert opening.find_artefact(tmp_path / name)[2]["inputs"][0]["name"] == "x"
    write(tmp_path / name, DESCRIPTION + " " * (1 << 22))
    with pytest.raises(ExportError, match="more than 4,194,304 bytes"):
        opening.find_artefact(tmp_path / name)


@pytest.mark.parametrize("how", (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
def test_a_description_is_stored(how, tmp_path):
    """As exports write it: what an archive says of the length of compressed entries does not bound their memory."""
    described_by_zip(tmp_path / "x.tflite", DESCRIPTION, how)
    with pytest.raises(ExportError, match="compressed"):
        opening.find_artefact(tmp_path / "x.tflite")


@pytest.mark.slow
def test_files_that_no_export_wrote(root, tmp_path):
    (tmp_path / "torn.onnx").write_bytes((root / "dist/model.onnx").read_bytes()[:500])
    (tmp_path / "text.tflite").write_text("hello")
    for name, sentence in {"torn.onnx": "is damaged", "text.tflite": "is damaged: it has no identifier"}.items():
        with pytest.raises(ExportError, match=f"{name} {sentence}"):
            inference.open_classifier(tmp_path / name)
    foreign = onnx.load(root / "dist/model.onnx")
    foreign.graph.node[0].domain = "com.evil"
    onnx.save(foreign, tmp_path / "foreign.onnx")
    with pytest.raises(ExportError, match="was not opened"):
        inference.open_classifier(tmp_path / "foreign.onnx")
    del foreign.metadata_props[:]
    foreign.graph.node[0].domain = ""
    onnx.save(foreign, tmp_path / "silent.onnx")
    with pytest.raises(ConfigError, match="does not say how images become its input"):
        inference.open_classifier(tmp_path / "silent.onnx")
    shutil.copytree(root / "dist", tmp_path / "edited")
    about = json.loads((tmp_path / "edited/model.json").read_text())
    (tmp_path / "edited/model.json").write_text(json.dumps({**about, "preprocessing": 3}))
    with pytest.raises(ExportError, match="'preprocessing' cannot be 3"):
        inference.open_classifier(tmp_path / "edited")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.tflite", "m.openvino"])
def test_threads_ask_one_file(name, tmp_path):
    model = shaken(zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, num_classes=3))
    export.convert(model, tmp_path / name)
    run = opening.open_artefact(tmp_path / name).run
    batches = np.random.default_rng(0).uniform(-1, 1, (64, 16, 16, 16, 3)).astype("float32")
    batches = [batch[: 1 + i % 16] for i, batch in enumerate(batches)]
    with ThreadPoolExecutor(8) as pool:
        for batch, found in zip(batches, pool.map(run, batches), strict=True):
            np.testing.assert_allclose(found, model(batch), atol=1e-4)


@pytest.mark.slow
def test_a_serving_signature_lays_on_white_too(root, model):
    """Photos here are transparent: what a server answers is what `predict` says."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(root / "dist/saved_model/1")).signatures["serve_bytes"]
    paths = sorted((root / "photos").glob("*/*.png"))
    answered = serve(image_bytes=tf.constant([path.read_bytes() for path in paths]))
    for name, share, prediction in zip(
        answered["label"].numpy(), answered["probabilities"].numpy(), keras_vit.predict(model, paths), strict=True
    ):
        assert name.decode() == prediction.name and share.max() == pytest.approx(prediction.probability, abs=1e-5)


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_an_empty_file_is_damaged_and_not_foreign(suffix, tmp_path):
    (tmp_path / f"m.{suffix}").touch()
    with pytest.raises(ExportError, match="m.* is damaged: it has no"):
        inference.open_classifier(tmp_path / f"m.{suffix}")

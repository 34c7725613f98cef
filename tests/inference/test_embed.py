"""`embed`, files of vectors, and the nearest: against the models' own outputs, numpy, and a process that was killed."""

import re
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.neighbors import NearestNeighbors

import keras_vit
from keras_vit import export, inference, zoo
from keras_vit.errors import ConfigError, ImageError
from keras_vit.inference import embedding
from keras_vit.inference.embedding import digest_of_model

RANDOM = np.random.default_rng(0)
MODEL = "ViT-Mini/4:fashion-mnist"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Folders of 20 pictures, a copy among them, and one that is torn; they are written in parts of 6."""
    monkeypatch.setattr(embedding, "PART", 6)
    for name in ("cat", "dog/small"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            pixels = RANDOM.integers(0, 256, (20 + number, 30, 3), "uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos/dog/small/copy.png").write_bytes((tmp_path / "photos/cat/3.png").read_bytes())
    (tmp_path / "photos/torn.png").write_bytes(b"torn")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def model():
    return zoo.load(MODEL)


def read_all(folder):
    return sorted(str(path) for path in folder.glob("*/**/*.png"))


def by_hand(model, vector, paths):
    pixels = [keras_vit.images.pillow.read_image(path, model.config.num_channels) for path in paths]
    inputs = np.concatenate([np.asarray(model.preprocessing(image[None])) for image in pixels])
    tokens = np.asarray(keras.Model(model.inputs[0], model.get_layer("encoder_norm").output)(inputs))
    known = {
        "output": model(inputs),
        "features": model.features(inputs),
        "gap": tokens[:, model.config.prefix_tokens :].mean(1),
    }
    return np.asarray(known[vector])


@pytest.mark.slow
def test_images_of_any_kind(model, photos):
    paths = read_all(photos)[:5]
    (photos / "torn.png").unlink()
    for vector in ("output", "features", "gap"):
        found = keras_vit.embed(model, paths, vector=vector, batch_size=2)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, by_hand(model, vector, paths), atol=1e-4)
    expected = keras_vit.embed(model, paths[0])
    assert expected.shape == (1, model.config.hidden_size)
    with open(paths[0], "rb") as file:
        content = file.read()
    for image in (content, Image.open(paths[0]), np.asarray(Image.open(paths[0]))):
        np.testing.assert_allclose(keras_vit.embed(model, image), expected, atol=1e-5)
    assert keras_vit.embed(model, str(photos)).shape[0] == 21 and keras_vit.embed(model, []).shape == (0, 96)
    unit = keras_vit.embed(model, paths, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    with pytest.raises(ConfigError, match="has no vector 'patches'"):
        keras_vit.embed(model, paths, vector="patches")
    with pytest.raises(ImageError, match="absent.jpg"):
        keras_vit.embed(model, "absent.jpg")


def test_a_projection_can_be_had_and_what_it_reads(photos):
    """As CLIP's: the model's own vector is the one that stands beside those of texts."""
    clip = zoo.load("ViT-Test/4", weights=None, num_classes=9, head_bias=False, pre_norm=True)
    clip.get_layer("head").kernel.assign(RANDOM.normal(size=(64, 9)))
    before, after = (keras_vit.embed(clip, read_all(photos), vector) for vector in ("features", None))
    np.testing.assert_allclose(before @ np.asarray(clip.get_layer("head").kernel), after, atol=1e-4)


def test_copies_of_a_torn_image_are_named_too(tmp_path):
    for name in ("torn.png", "torn copy.png"):
        (tmp_path / name).write_bytes(b"torn")
    Image.new("RGB", (8, 8)).save(tmp_path / "whole.png")
    small, named = zoo.load("ViT-Test/4", weights=None, num_layers=1), []
    small.run_eagerly = True  # which takes less time here than tracing
    out, skip = tmp_path / "v.npz", lambda *what: named.append(what)
    assert inference.embed_files(small, str(tmp_path), out, vector="output", skip=skip) == 1
    assert sorted(path for path, _ in named) == [str(tmp_path / name) for name in ("torn copy.png", "torn.png")]
    assert all(str(error).startswith(f"{path} cannot be read") for path, error in named)


@pytest.mark.slow
def test_a_file_has_the_vectors_of_all_that_can_be_read(model, photos):
    skipped, told = [], []
    for ending in ("npz", "parquet"):
        count = inference.embed_files(
            MODEL, ["photos"], f"v.{ending}", skip=lambda *what: skipped.append(what), tell=lambda *n: told.append(n)
        )
        found = inference.read_vectors(f"v.{ending}")
        assert count == 21 and [path for path, _ in skipped] == ["photos/torn.png"] and told[-1] == (22, 22)
        paths = [str(path) for path in found.paths]
        assert set(found.labels) == {"cat", "dog/small"} and "photos/dog/small/copy.png" in paths
        np.testing.assert_allclose(found.vectors, by_hand(model, "features", paths), atol=1e-4)
        assert (found.origin.model, found.origin.vector) == (MODEL, "features")
        assert found.origin.digest == digest_of_model(model), "whether folded or not"
        skipped.clear()
    assert {path.name for path in photos.parent.iterdir()} == {"photos", "v.npz", "v.parquet"}


def test_what_was_cut_off_is_not_computed_again_and_ends_alike(model, photos, monkeypatch):
    (photos / "torn.png").unlink()
    asked, each = [], embedding.embed_each

    def embed_each(model, images, **arguments):
        asked.extend(images)
        return each(model, images, **arguments)

    def stop(done, total):
        if done == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(embedding, "embed_each", embed_each)
    inference.embed_files(model, ["photos"], "whole.npz")
    assert len(asked) == 20, "a copy is not computed twice"
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        inference.embed_files(model, ["photos"], "v.npz", tell=stop)
    parts = photos.parent / "v.npz.parts"
    assert not (photos.parent / "v.npz").exists()
    (parts / "part-000001.npy").rename(parts / "partial.part-000001.npy")  # as if killed before it took its name
    with pytest.raises(ConfigError, match="unfinished vectors of another model or kind, features of"):
        inference.embed_files(model, ["photos"], "v.npz", vector="gap")
    inference.embed_files(model, ["photos"], "v.npz")
    assert len(asked) == 26 and (photos.parent / "v.npz").read_bytes() == (photos.parent / "whole.npz").read_bytes()
    asked.clear()
    Image.fromarray(RANDOM.integers(0, 256, (9, 9, 3), "uint8")).save(photos / "new.png")
    (photos / "cat/0.png").unlink()
    assert inference.embed_files(model, ["photos"], "v.npz") == 21 and asked == ["photos/new.png"]
    assert not parts.exists()
    foreign = photos.parent / "w.npz"
    foreign.write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"w.npz is not a file of vectors"):
        inference.embed_files(model, ["photos"], foreign)
    other = zoo.load("ViT-Test/4", weights=None)
    with pytest.raises(ConfigError, match="v.npz has vectors of another model or kind.*so it stays"):
        inference.embed_files(other, ["photos"], "v.npz")
    (photos / "empty").mkdir()
    with pytest.raises(ImageError, match="There are no images at photos/empty"):
        inference.embed_files(model, ["photos/empty"], "none.npz")
    assert foreign.read_bytes() == b"mine" and not (photos.parent / "none.npz").exists()


def test_the_nearest_are_scikit_learns():
    vectors = RANDOM.normal(size=(20_000, 6)).astype("float32") * RANDOM.uniform(1, 9, (20_000, 1))
    queries = RANDOM.normal(size=(3, 6))
    numbers, cosines = inference.nearest(vectors, queries, count=7)
    distances, theirs = (
        NearestNeighbors(n_neighbors=7, metric="cosine", algorithm="brute").fit(vectors).kneighbors(queries)
    )
    np.testing.assert_array_equal(numbers, theirs)
    np.testing.assert_allclose(cosines, 1 - distances, atol=1e-5)
    assert inference.nearest(vectors[:2], queries)[0].shape == (3, 2)
    with pytest.raises(ConfigError, match="of the same model"):
        inference.nearest(vectors, queries[:, 1:])


@pytest.mark.slow
def test_exported_vectors(photos):
    body = zoo.load("ViT-Test/4", weights=None, num_classes=0)
    expected = keras_vit.embed(body, read_all(photos))
    export.bundle(body, "dist", formats=["onnx", "saved_model", "tflite"])
    for place in ("dist", "dist/model.onnx", "dist/model.tflite"):
        np.testing.assert_allclose(keras_vit.embed(place, read_all(photos)), expected, atol=1e-4)
        with pytest.raises(ConfigError, match="its output is features, not classes"):
            keras_vit.predict(place, read_all(photos))
    loaded = tf.saved_model.load("dist/saved_model/1")
    served = loaded.serve_uint8(np.array(Image.open(read_all(photos)[0]).convert("RGB"))[None])
    assert list(served) == ["vectors"]
    np.testing.assert_allclose(served["vectors"], expected[:1], atol=1e-4)
    export.convert(zoo.load(MODEL), "classifier.onnx")
    with pytest.raises(ConfigError, match="is an exported classifier.*num_classes=0"):
        keras_vit.embed("classifier.onnx", read_all(photos))


EMBED = """
import pathlib, re, sys
from keras_vit import inference
count = inference.embed_files("ViT-Mini/4:fashion-mnist", ["many"], sys.argv[1])
status = pathlib.Path("/proc/self/status").read_text()
print(count, int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.long
def test_20_000_pictures_within_memory_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many").mkdir()
    for number, pixels in enumerate(RANDOM.integers(0, 256, (20_000, 8, 8, 3), "uint8")):
        Image.fromarray(pixels).save(tmp_path / f"many/{number}.png", compress_level=0)
    command = [sys.executable, "-c", EMBED]
    begun = subprocess.Popen([*command, "killed.npz"], stdout=subprocess.DEVNULL)
    while not (tmp_path / "killed.npz.parts/part-000003.npy").exists():
        assert begun.poll() is None
        time.sleep(0.1)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    for name in ("killed.npz", "whole.npz"):
        said = subprocess.run([*command, name], capture_output=True, text=True, check=True).stdout
        count, gigabytes = re.fullmatch(r"(\d+) ([\d.]+)", said.strip()).groups()
        assert count == "20000" and float(gigabytes) < 2, said
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / "killed.npz.parts").exists()

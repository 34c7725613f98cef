"""Asking a model: images of every kind and size, in batches and streams, against softmax of the model's own logits."""

import csv
import http.server
import io
import json
import pathlib
import threading
import time

import keras
import numpy as np
import pytest
from PIL import Image, ImageSequence
from scipy.special import softmax

import keras_vit
from keras_vit import inference, zoo
from keras_vit.commands import predict
from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import read_image
from keras_vit.inference.listing import list_images

LABELS = ("cat", "dog", "hen")
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (40, 50, 3), "uint8")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, labels=LABELS)
    model.get_layer("head").kernel.assign(np.random.default_rng(1).normal(0, 1 / 8, (64, 3)))  # logits of a few units
    return model


def by_hand(model, pixels):
    """{name: probability}, of uint8 (h, w, 3)."""
    logits = np.asarray(model(model.preprocessing(pixels[None])))[0].astype("float64")
    return dict(zip(LABELS, softmax(logits), strict=True))


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_an_image_of_any_kind(model, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(PIXELS))
    kinds = (str(path), path, png(PIXELS), Image.open(path), PIXELS, PIXELS.astype("float32"), PIXELS.astype("int64"))
    expected = by_hand(model, PIXELS)
    for image in kinds:
        found = keras_vit.predict(model, image)
        assert dict(found) == pytest.approx(expected, abs=1e-6)
        assert list(found.probabilities) == sorted(found.probabilities, reverse=True)
    assert found.name == max(expected, key=expected.get) and found.probability == found.probabilities[0]
    assert keras_vit.predict(model, path).image == str(path) and found.image is None
    assert len(keras_vit.predict(model, path, top=2)) == 2


def test_grey_images_and_opacity(model):
    grey = PIXELS[..., 0]
    expected = by_hand(model, np.repeat(grey[..., None], 3, -1))
    for image in (grey, grey[..., None], Image.fromarray(grey)):
        assert dict(keras_vit.predict(model, image)) == pytest.approx(expected, abs=1e-6)
    clear = np.zeros((40, 50, 4), "uint8")
    assert dict(keras_vit.predict(model, clear)) == pytest.approx(by_hand(model, np.full_like(PIXELS, 255)), abs=1e-6)


def test_a_list_of_unequal_sizes_keeps_its_order(model):
    images = [RANDOM.integers(0, 256, (8 + number, 30, 3), "uint8") for number in range(11)]
    found = keras_vit.predict(model, images, top=1, batch_size=4)
    assert [type(prediction) for prediction in found] == [inference.Prediction] * 11
    for image, prediction in zip(images, found, strict=True):
        expected = by_hand(model, image)
        assert prediction.name == max(expected, key=expected.get)
        assert prediction.probability == pytest.approx(max(expected.values()), abs=1e-6)
    assert keras_vit.predict(model, []) == []


@pytest.mark.parametrize("kind", ("GIF", "TIFF", "WEBP"))
def test_each_frame_of_an_animation(model, kind):
    frames = [np.full((40, 50, 3), RANDOM.integers(0, 256, 3), "uint8") for _ in range(12)]
    first, *rest = map(Image.fromarray, frames)
    first.save(file := io.BytesIO(), kind, save_all=True, append_images=rest, lossless=True)
    found = list(inference.predict_each(model, ImageSequence.Iterator(Image.open(file))))
    assert len(found) == len(frames)
    for pixels, prediction in zip(frames, found, strict=True):
        assert dict(prediction) == pytest.approx(by_hand(model, pixels), abs=1e-6)


class SlowFile(io.BytesIO):
    def read(self, *count):
        time.sleep(0.001)
        return super().read(*count)


def test_an_image_of_pillow_that_is_given_several_times(model):
    """Pillow reads it from its file at the first use, which several threads cannot do at once."""
    pixels = RANDOM.integers(0, 256, (300, 400, 3), "uint8")
    Image.fromarray(pixels).save(file := SlowFile(), "PNG")
    for prediction in keras_vit.predict(model, [Image.open(file)] * 6):
        assert dict(prediction) == pytest.approx(by_hand(model, pixels), abs=1e-6)


def test_a_stream_is_read_a_few_batches_ahead(model):
    """100,000 images take the memory of some batches; and another thread's error is the caller's."""
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield PIXELS

    stream = inference.predict_each(model, endless(), batch_size=4)
    for count in range(1, 30):
        next(stream)
        assert len(taken) <= count + 3 * 4
    before = threading.active_count()
    stream.close()
    assert threading.active_count() < before
    with pytest.raises(ImageError, match="type int"):
        list(inference.predict_each(model, [PIXELS, 7, PIXELS]))


def test_what_cannot_be_read_is_skipped_where_it_is_asked_for(model):
    skipped = []
    stream = inference.predict_each(
        model, [PIXELS, b"torn", PIXELS, "absent.jpg"], skip=lambda *what: skipped.append(what)
    )
    assert len(list(stream)) == 2
    assert [image for image, _ in skipped] == [b"torn", "absent.jpg"]
    assert all(isinstance(error, ImageError) for _, error in skipped)


BAD = {
    "floats up to 1": (PIXELS / 255, r"Received: float64 from 0 to 1. Multiply it by 255"),
    "normalized": (PIXELS / 127.5 - 1, "give it to the model itself"),
    "16 bits": (PIXELS.astype("uint16") * 256, "uint16 from 0 to 65280. For 16 bits keep the upper 8"),
    "not numbers": (np.full((4, 4), np.nan), "Received: float64 with NaN or infinity"),
    "booleans": (PIXELS > 9, "An array of bool is no image"),
    "a batch": (PIXELS[None], r"\(1, 40, 50, 3\). For several images pass a list"),
    "channels first": (PIXELS.transpose(2, 0, 1), r"Received: \(3, 40, 50\)"),
    "nothing": (np.zeros((0, 4), "uint8"), r"Received: \(0, 4\)"),
    "a number": (7, "an object of the type int"),
    "an address of another machine without https": (
        "http://me:secret@example.com/cat.jpg?key=1",
        "^http://example.com/cat.jpg is not fetched: expected https",
    ),
    "no file": ("absent.jpg", "There is no image absent.jpg"),
    "a folder in a list": (["."], "cannot be read as an image: Is a directory"),
    "text": (b"hello", "The bytes cannot be read as an image: it has none of the formats"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_a_sentence(model, kind):
    image, sentence = BAD[kind]
    with pytest.raises(ImageError, match=sentence):
        keras_vit.predict(model, image)


def test_a_path_that_lost_a_slash_is_an_address_still():
    with pytest.raises(ImageError, match="^https://example.com/cat.jpg is an address"):
        read_image(pathlib.PurePosixPath("https://example.com/cat.jpg"))


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ("cat.jpg", "takes pixels, not a file"),
        (PIXELS, r"\(n, height, width, 3\). Received: \(40, 50, 3\)"),
        (PIXELS[None, ..., 0], r"Received: \(1, 40, 50\)"),
        (PIXELS[None, ..., :1], r"Received: \(1, 40, 50, 1\)"),
        (PIXELS[None] / 255, "from 0 to 1. Multiply it by 255"),
        (PIXELS[None] / 127.5 - 1, "normalized already"),
    ],
)
def test_preprocessing_refuses_what_would_be_black(model, images, sentence):
    with pytest.raises(ImageError, match=sentence):
        model.preprocessing(images)


def test_arguments(model):
    for arguments in ({"top": 0}, {"top": 2.5}, {"batch_size": 0}, {"batch_size": "3"}):
        with pytest.raises(ConfigError, match="must be positive: a whole number"):
            keras_vit.predict(model, PIXELS, **arguments)
    with pytest.raises(ConfigError, match="^The model has no head"):
        keras_vit.predict(zoo.load("ViT-Test/4", weights=None, num_classes=0, num_layers=1), PIXELS)
    with pytest.raises(ConfigError, match="its output is features, not classes"):  # a projection, as CLIP's
        keras_vit.predict(zoo.load("ViT-Test/4", weights=None, num_classes=8, head_bias=False), PIXELS)


def test_a_model_that_gives_nan_is_refused():
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=1, num_classes=3)
    model.get_layer("head").bias.assign([0, np.nan, 0])
    with pytest.raises(ConfigError, match="gave numbers that are not finite"):
        keras_vit.predict(model, PIXELS)


def test_the_three_ways_to_write_them(tmp_path):
    found = [inference.Prediction(("a,b", 1), (0.75, 0.25), "x y.png"), inference.Prediction(("é", 0), (0.5, 0.5), "z")]
    rows = {}
    for name, write in predict.WRITERS.items():
        file = io.StringIO()
        write(iter(found), file)
        rows[name] = file.getvalue()
    assert rows[".csv"].splitlines() == [
        "image,class_1,probability_1,class_2,probability_2",
        'x y.png,"a,b",0.750000,1,0.250000',
        "z,é,0.500000,0,0.500000",
    ]
    assert json.loads(rows[".json"]) == [json.loads(line) for line in rows[".jsonl"].splitlines()]
    assert json.loads(rows[".json"])[0]["classes"][0] == {"class": "a,b", "probability": 0.75}
    empty = io.StringIO()
    predict.write_list([], empty)
    assert json.loads(empty.getvalue()) == []
    assert str(found[0]) == "x y.png: a,b 75.0%, 1 25.0%"


def test_a_folder_and_a_pattern_stand_for_their_images(model, tmp_path):
    for name in ("b.png", "a.png", "c.bmp"):
        Image.fromarray(RANDOM.integers(0, 256, (9, 9, 3), "uint8")).save(tmp_path / name)
    names = [str(tmp_path / name) for name in ("a.png", "b.png", "c.bmp")]
    for place, expected in ((str(tmp_path), names), (tmp_path, names), (str(tmp_path / "*.png"), names[:2])):
        found = keras_vit.predict(model, place)
        assert [prediction.image for prediction in found] == expected
        assert found == list(inference.predict_each(model, place))
        for prediction in found:
            assert dict(prediction) == pytest.approx(by_hand(model, read_image(prediction.image)), abs=1e-6)


@pytest.fixture
def address():
    """The address of a server on this machine whose `reply` is (status, headers, body)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, body = self.server.reply
            self.send_response(status)
            for header in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server, f"http://127.0.0.1:{server.server_port}/cat.png?signature=secret"
        server.shutdown()


def test_an_address_is_fetched(model, address, monkeypatch):
    server, url = address
    server.reply = (200, {}, png(PIXELS))
    found = keras_vit.predict(model, [url, PIXELS])
    assert dict(found[0]) == pytest.approx(dict(found[1]), abs=1e-7) and found[0].image == url
    bad = {
        "the server answered 404": (404, {}, b""),
        "has none of the formats": (200, {}, b"<html>"),
        "could not be fetched": (200, {"Content-Length": "999"}, b"torn"),
        "is not fetched: expected https": (302, {"Location": "http://example.com/cat.png"}, b""),
    }
    for sentence, server.reply in bad.items():
        with pytest.raises(ImageError, match=sentence) as error:
            keras_vit.predict(model, url)
        assert "secret" not in str(error.value)
    monkeypatch.setattr("keras_vit.inference.listing.MOST_BYTES", 100)
    server.reply = (200, {}, png(PIXELS))
    with pytest.raises(ImageError, match="more bytes than the 100"):
        keras_vit.predict(model, url)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(ImageError, match="KERAS_VIT_OFFLINE"):
        keras_vit.predict(model, url)


def test_standard_input_is_an_image(model, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(png(PIXELS))))
    assert dict(keras_vit.predict(model, "-")) == pytest.approx(by_hand(model, PIXELS), abs=1e-6)


def test_heic_is_read_where_pillow_heif_is_installed(model, tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    smooth = np.stack([np.add.outer(np.arange(48), 2 * np.arange(64)) + 10 * c for c in range(3)], -1).astype("uint8")
    path = tmp_path / "IMG_1.HEIC"
    pillow_heif.from_pillow(Image.fromarray(smooth)).save(path, quality=100, chroma=444)
    assert np.abs(read_image(path).astype(int) - smooth).max() <= 4
    (found,) = keras_vit.predict(model, tmp_path)
    assert dict(found) == pytest.approx(by_hand(model, smooth), abs=0.02)


def test_names_in_csv_are_text(tmp_path):
    """Whatever they hold, each is one cell, of UTF-8, that neither a terminal obeys nor a spreadsheet computes."""
    names = {
        "x\x1b[31mRED\x1b]0;title\x07": r"x\x1b[31mRED\x1b]0;title\x07",
        "line\n=1,2": r"line\n=1,2",
        "a\u202egnp.exe": r"a\u202egnp.exe",
        "bad\udcff.png": r"bad\udcff.png",
        "=cmd|' C calc'!A0": "'=cmd|' C calc'!A0",
        "+1": "'+1",
        "-1": "'-1",
        "@SUM(1)": "'@SUM(1)",
        "\uff1d1+1": "'\uff1d1+1",
        "\t=1": r"\t=1",
        1: "1",
    }
    found = [inference.Prediction((name, "b"), (0.75, 0.25), str(name)) for name in names]
    with open(tmp_path / "x.csv", "w", encoding="utf-8") as file:
        predict.write_csv([*found, inference.Prediction(("a",), (1.0,))], file)
    with open(tmp_path / "x.csv", encoding="utf-8", newline="") as file:
        _, *rows, last = csv.reader(file)
    assert [row[:2] for row in rows] == [[cell, cell] for cell in names.values()] and last[0] == ""


def test_files_folders_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/2.png", "a/b/1.JPG", "a/.thumbnails/3.png", "a/notes.txt", "[1].png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert list_images(["a"]) == ["a/2.png", "a/b/1.JPG"]
    assert list_images(["a/*.png", "a/**/*.*", "[1].png"]) == ["a/2.png", "a/2.png", "a/b/1.JPG", "[1].png"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list_images(["~/a", "~/a/*.png", "~/a/2.png"]) == [
        f"{tmp_path}/a/{x}" for x in ("2.png", "b/1.JPG", "2.png", "2.png")
    ]
    (tmp_path / "a/2.png").write_bytes(png(PIXELS))
    np.testing.assert_array_equal(read_image("~/a/2.png"), PIXELS)
    (tmp_path / "empty").mkdir()
    for place in ("empty", "a/*.gif"):
        with pytest.raises(ImageError, match="There are no images at"):
            list_images([place])

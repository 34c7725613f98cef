"""SavedModels as a server sees them: images of any size, encoded files, broken files."""

import io
import shutil
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import ops
from PIL import Image, ImageOps

from keras_vit import export, layers, zoo
from keras_vit.errors import ExportError
from keras_vit.export import saved_model
from keras_vit.export.formats import Order
from keras_vit.export.saved_model import reading, serving
from keras_vit.models import VisionTransformer
from keras_vit.models.preprocessing import Preprocessing

TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 1, "num_heads": 4, "mlp_dim": 64}
LABELS = ("cat", "dog", "hen")


def shaken(model):
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(0).normal(0, 0.1, weight.shape))
    return model


CROPS = (None, 0.875)


def convert(crop, path):
    import tensorflow as tf

    preprocessing = Preprocessing((32, 32), crop=crop, mean=(0.4, 0.5, 0.6))
    model = shaken(VisionTransformer(**TINY, num_classes=3, labels=LABELS, preprocessing=preprocessing))
    export.convert(model, path)
    return model, tf.saved_model.load(str(path)), path


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    return {crop: convert(crop, tmp_path_factory.mktemp("served") / "model") for crop in CROPS}


@pytest.fixture(scope="module", params=CROPS)
def exported(request, exports):
    return exports[request.param]


def picture(height, width, channels=3):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(y * 3 + x * k) % 256 for k in range(1, channels + 1)], axis=-1).astype("uint8")


def test_a_folder_named_like_a_pattern(exported, tmp_path):
    """TensorFlow would look for its variables by the pattern."""
    model, _, path = exported
    place = shutil.copytree(path, tmp_path / "run [1]*?" / "model")
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    np.testing.assert_allclose(reading.load(place)([images])[0], model(images), atol=1e-5)


@pytest.mark.parametrize(
    ("crop", "interpolation", "mode"),
    ((0.9, "lanczos3", "center"), (0.9, "nearest", "squash"), (0.95, "bicubic", "squash"), (1.0, "bilinear", "squash")),
)
def test_served_preprocessing_is_the_models(crop, interpolation, mode):
    """Inside the graph, where sizes are known only when it runs."""
    import tensorflow as tf

    from keras_vit.export.saved_model.serving import preprocess

    preprocessing = Preprocessing((32, 24), crop, interpolation, crop_mode=mode)
    serve = tf.function(
        lambda x: preprocess(x, preprocessing), input_signature=[tf.TensorSpec((None, None, None, 3), "uint8")]
    )
    for size in ((57, 91), (200, 33)):
        x = picture(*size)[None]
        np.testing.assert_allclose(serve(tf.constant(x)), preprocessing(x), atol=2e-5)


def encoded(array, form):
    file = io.BytesIO()
    Image.fromarray(array.squeeze()).save(file, form)
    return file.getvalue()


def test_uint8_pictures_of_any_size(exported):
    import tensorflow as tf

    model, loaded, _ = exported
    for size in ((32, 32), (57, 91), (200, 33)):
        pictures = np.stack([picture(*size), 255 - picture(*size)])
        result = loaded.signatures["serve_uint8"](images=tf.constant(pictures))
        expected = np.asarray(model(model.preprocessing(pictures)))
        np.testing.assert_allclose(result["logits"], expected, atol=2e-5, err_msg=str(size))
        np.testing.assert_allclose(result["probabilities"].numpy().sum(axis=1), 1, atol=1e-5)
        assert [LABELS[i] for i in expected.argmax(axis=1)] == [name.decode() for name in result["label"].numpy()]


def test_encoded_pictures_of_different_sizes(exported):
    import tensorflow as tf

    model, loaded, _ = exported
    pictures = [picture(40, 60), picture(33, 90), picture(50, 50, 1)]
    result = loaded.signatures["serve_bytes"](image_bytes=tf.constant([encoded(x, "PNG") for x in pictures]))
    coloured = [np.broadcast_to(x, (*x.shape[:2], 3)) for x in pictures]
    expected = np.concatenate([model(model.preprocessing(x[None])) for x in coloured])
    np.testing.assert_allclose(result["logits"], expected, atol=2e-5)
    jpeg = loaded.signatures["serve_bytes"](image_bytes=tf.constant([encoded(pictures[0], "JPEG")]))
    assert jpeg["logits"].shape == (1, 3)


@pytest.mark.parametrize("mode", ("RGB", "L", "CMYK"))
def test_a_jpeg_has_pillows_colours_and_grey(mode):
    content = io.BytesIO()
    colours = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype("uint8")  # far from any grey
    Image.fromarray(colours).convert(mode).save(content, "JPEG")
    for channels, wanted in ((1, "L"), (3, "RGB")):
        expected = np.asarray(Image.open(content).convert(wanted)).reshape(40, 60, channels)
        found = serving.decode(content.getvalue(), channels).numpy()
        np.testing.assert_allclose(found.astype(int), expected, atol=1)


@pytest.mark.slow
@pytest.mark.parametrize("jfif", (False, True))
@pytest.mark.parametrize("endian", "<>")
def test_pictures_of_a_turned_camera(exported, endian, jfif):
    import tensorflow as tf

    files, upright = [], []
    for turn in range(10):  # 0 and 9 mean nothing
        note = Image.Exif()
        note.endian = endian
        note[0x010F], note[0x0112], note[0x0131] = "a camera", turn, "software"
        file = io.BytesIO()
        Image.fromarray(picture(40, 60)).save(file, "JPEG", quality=95, exif=note)
        data = file.getvalue()
        if not jfif:
            data = data[:2] + data[20:]
        assert data.index(b"Exif") == (24 if jfif else 6)
        files.append(data)
        upright.append(np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))))
    assert upright[6].shape == (60, 40, 3)
    serve = exported[1].signatures
    result = serve["serve_bytes"](image_bytes=tf.constant(files))["logits"]
    expected = [serve["serve_uint8"](images=tf.constant(x[None]))["logits"][0] for x in upright]
    assert np.ptp(expected, axis=0).max() > 0.01
    np.testing.assert_allclose(result, expected, atol=2e-3)


def test_a_profile_before_the_note_of_the_camera(exported):
    """Pillow writes it after; other programs before."""
    import tensorflow as tf

    note = Image.Exif()
    note[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(picture(40, 60)).save(file, "JPEG", quality=95, exif=note)
    profile = b"\xff\xe2\x02\x02ICC_PROFILE\0\1\1" + bytes(498)
    data = file.getvalue()[:20] + profile + file.getvalue()[20:]
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert data.index(b"Exif") > 500 and upright.shape == (60, 40, 3)
    serve = exported[1].signatures
    result = serve["serve_bytes"](image_bytes=tf.constant([data]))["logits"]
    expected = serve["serve_uint8"](images=tf.constant(upright[None]))["logits"]
    np.testing.assert_allclose(result, expected, atol=2e-3)


def scans():
    """A JPEG of 64 million pixels, of 200 scans without any coded pixels."""
    file = io.BytesIO()
    Image.new("RGB", (8000, 8000)).save(file, "JPEG")
    scan = file.getvalue().rindex(b"\xff\xda")
    return file.getvalue()[:scan] + b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 200 + b"\xff\xd9"


def test_nonsense_about_the_camera_is_ignored(exported):
    import tensorflow as tf

    random = np.random.default_rng(0)
    file = io.BytesIO()
    note = Image.Exif()
    note[0x0112] = 6
    Image.fromarray(picture(40, 60)).save(file, "JPEG", exif=note)
    serve = exported[1].signatures["serve_bytes"]
    start = file.getvalue().index(b"Exif") + 6
    for _ in range(200):
        data = bytearray(file.getvalue())
        for place in random.integers(start, start + 26, 3):
            data[place] = random.integers(256)
        assert np.isfinite(serve(image_bytes=tf.constant([bytes(data)]))["logits"]).all()


def narrow():
    """An image a pixel high, which fills gigabytes once it is resized to the height of the model's input."""
    file = io.BytesIO()
    Image.new("L", (900_000, 1)).save(file, "PNG")
    return file.getvalue()


def bomb(width, height):
    """A PNG file whose header promises another size."""
    data = bytearray(encoded(picture(8, 8), "PNG"))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return bytes(data)


def many_scans(count):
    """A progressive JPEG whose last scan comes `count` times more: small, valid, and slow to decode."""
    file = io.BytesIO()
    Image.fromarray(picture(40, 40)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * count + data[-2:]


def test_mutated_pictures_are_refused_or_classified(exported):
    import tensorflow as tf

    random = np.random.default_rng(0)
    serve = exported[1].signatures["serve_bytes"]
    files = [encoded(picture(40, 60), form) for form in ("PNG", "JPEG")] + [many_scans(3)]
    refused = 0
    for i in range(150):
        data = bytearray(files[i % len(files)])
        for place in random.integers(0, len(data) if i % 2 else 60, random.integers(1, 6)):
            data[place] = random.integers(256)
        try:
            assert np.isfinite(serve(image_bytes=tf.constant([bytes(data)]))["logits"]).all()
        except tf.errors.InvalidArgumentError:
            refused += 1
    assert 20 < refused < 150


BROKEN = {
    "empty": b"",
    "text": b"not a picture",
    "cut PNG": encoded(picture(8, 8), "PNG")[:40],
    "cut header": encoded(picture(8, 8), "PNG")[:20],
    "signature": encoded(picture(8, 8), "PNG")[:8],
    "cut JPEG": encoded(picture(40, 40), "JPEG")[:30],
    "GIF": encoded(picture(8, 8), "GIF"),
    "bomb": bomb(50_000, 40_000),
    "overflow": bomb(2**32 - 1, 2**32 - 1),
    "thin": bomb(2**31, 2**33 // 2**31),
    "none": bomb(0, 8),
    "scans": scans(),
}


def test_broken_pictures_are_refused(exported):
    import tensorflow as tf

    for name, data in BROKEN.items():
        try:
            exported[1].signatures["serve_bytes"](image_bytes=tf.constant([data]))
        except tf.errors.InvalidArgumentError:
            continue
        pytest.fail(f"{name} was read")


def test_a_narrow_picture_fills_no_memory(exported):
    import tensorflow as tf

    serve = exported[1].signatures["serve_bytes"]
    if exported[0].preprocessing.crop is None:
        assert serve(image_bytes=tf.constant([narrow()]))["logits"].shape == (1, 3)
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="pixels"):
        serve(image_bytes=tf.constant([narrow()]))


@pytest.mark.slow
def test_loads_without_this_package_and_without_keras(exports):
    paths = [str(path) for _, _, path in exports.values()]
    script = f"""
        import sys
        sys.modules["keras_vit"] = sys.modules["keras"] = None
        import tensorflow as tf
        for path in {paths}:
            loaded = tf.saved_model.load(path)
            print(loaded.signatures["serving_default"](images=tf.zeros((2, 32, 32, 3)))["output_0"].shape)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert result.stdout.split("\n") == ["(2, 3)", "(2, 3)", ""], result.stderr


@pytest.mark.slow
def test_features_and_attention_on_demand(tmp_path):
    import tensorflow as tf

    model = shaken(VisionTransformer(**TINY, num_classes=3))
    export.convert(model, tmp_path / "model", endpoints=("features", "attention"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    head = model.get_layer("head")
    logits = loaded.features(images).numpy() @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(logits, model(images), atol=1e-4)
    attention = loaded.attention(images).numpy()
    assert attention.shape == (3, 1, 4, 17, 17)
    np.testing.assert_allclose(attention, np.asarray(model.attention(images)), atol=1e-5)
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("path", "endpoints", "sentence"),
    [("m.onnx", ("features",), "Only a SavedModel"), ("m", ("feetures",), "no method 'feetures'")],
)
def test_endpoints_that_cannot_be(path, endpoints, sentence, tmp_path):
    with pytest.raises(ExportError, match=sentence):
        export.convert(VisionTransformer(**TINY, num_classes=3), tmp_path / path, endpoints=endpoints)
    assert not list(tmp_path.iterdir())


class Apply(keras.layers.Layer):
    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def call(self, x):
        return [function(x) for function in self.functions]


PURE = [
    ops.tril,
    ops.diagonal,
    ops.trace,
    ops.det,
    ops.erfinv,
    lambda x: ops.inv(x + 9 * ops.eye(4)),
    lambda x: ops.svd(x, compute_uv=False),
    lambda x: ops.one_hot(ops.argmax(x, -1), 4),
    lambda x: ops.digitize(x, np.array([0.0, 0.5])),
    lambda x: ops.irfft(ops.rfft(x)),
    lambda x: ops.diagflat(x[0, 0]),
    lambda x: ops.bitwise_xor(*[ops.bitwise_or(ops.bitwise_and(ops.cast(x * 9, "int32"), i), 1) for i in (3, 6)]),
    lambda x: ops.image.affine_transform(x[..., None], np.array([[1.0, 0, 1, 0, 1, 0, 0, 0]])),
    lambda x: ops.image.extract_patches(x[..., None], 2),
]


def test_operations_of_keras_that_only_compute_are_opened(tmp_path):
    x = keras.Input((4, 4))
    model = keras.Model(x, Apply(*PURE)(x))
    saved_model.write(Order(model=model, shapes=[(None, 4, 4)]), tmp_path / "model")
    reading.check(tmp_path / "model")


def test_a_bundle_that_verify_would_refuse_is_not_written(tmp_path):
    import tensorflow as tf

    x = keras.Input((4,))
    with pytest.raises(ExportError, match="the operation Digamma"):
        export.bundle(keras.Model(x, Apply(tf.math.digamma)(x)), tmp_path / "dist", ["saved_model"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_attention_in_blocks_of_queries_is_opened(tmp_path, monkeypatch):
    """As models of 1,300 tokens have it; the loop puts its blocks in place by an operation of its own."""
    monkeypatch.setattr(layers.MultiHeadSelfAttention, "largest_whole", 0)
    model = zoo.load("ViT-Test/4", weights=None)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    report = export.convert(model, tmp_path / "model")
    text = (tmp_path / "model/saved_model.pb").read_bytes()
    assert b"XlaDynamicUpdateSlice" in text and report.max_rel_diff < 1e-5

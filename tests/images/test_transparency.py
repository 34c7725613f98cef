"""What is transparent lies on white, and every reader agrees to the bit; against the colours blended in float64."""

import numpy as np
import tensorflow as tf
from photographs import encode
from PIL import Image

from keras_vit.data.reading import sources
from keras_vit.export import predict_script
from keras_vit.export.saved_model import serving
from keras_vit.images.pillow import read_image
from keras_vit.images.pixels import read_any_image

RANDOM = np.random.default_rng(0)
RGBA = RANDOM.integers(0, 256, (23, 17, 4), "uint8")
RGBA[:4, :, 3], RGBA[4:8, :, 3] = 0, 255
GREY_AND_OPACITY = RANDOM.integers(0, 256, (23, 17, 2), "uint8")
INDICES = RANDOM.integers(0, 5, (23, 17), "uint8")
PALETTE = RANDOM.integers(0, 256, (5, 3), "uint8")
OPACITIES = (0, 50, 128, 254, 255)


def with_palette():
    image = Image.frombytes("P", (17, 23), INDICES.tobytes())
    image.putpalette(PALETTE.tobytes())
    return image


def opaque_but(hidden):
    return np.where(hidden, 0, 255)


# {kind of file: (contents, colours (h, w, 3), opacity (h, w))}
KINDS = {
    "RGBA": (encode(RGBA, "PNG"), RGBA[..., :3], RGBA[..., 3]),
    "LA": (
        encode(GREY_AND_OPACITY, "PNG"),
        np.repeat(GREY_AND_OPACITY[..., :1], 3, -1),
        GREY_AND_OPACITY[..., 1],
    ),
    "a palette's index": (encode(with_palette(), "PNG", transparency=3), PALETTE[INDICES], opaque_but(INDICES == 3)),
    "a palette's opacities": (
        encode(with_palette(), "PNG", transparency=bytes(OPACITIES)),
        PALETTE[INDICES],
        np.array(OPACITIES)[INDICES],
    ),
    "a colour": (
        encode(PALETTE[INDICES], "PNG", transparency=tuple(map(int, PALETTE[2]))),
        PALETTE[INDICES],
        opaque_but((PALETTE[INDICES] == PALETTE[2]).all(-1)),
    ),
    "a grey": (
        encode(INDICES * 50, "PNG", transparency=100),
        np.repeat(INDICES[..., None] * 50, 3, -1),
        opaque_but(INDICES == 2),
    ),
    "a grey of 16 bits": (
        encode(INDICES.astype("uint16") * 9999, "PNG", transparency=9999),
        np.repeat(INDICES[..., None].astype("uint16") * 9999 >> 8, 3, -1),
        opaque_but(INDICES == 1),
    ),
    "no transparency": (encode(RGBA[..., :3], "PNG"), RGBA[..., :3], np.full((23, 17), 255)),
    "a palette of four bits": (encode(with_palette(), "PNG"), PALETTE[INDICES], np.full((23, 17), 255)),
    "black and white of one bit": (
        encode(INDICES > 2, "PNG"),
        np.repeat((INDICES[..., None] > 2).astype("uint8") * 255, 3, -1),
        np.full((23, 17), 255),
    ),
    "WebP": (encode(RGBA, "WEBP", lossless=True, exact=True), RGBA[..., :3], RGBA[..., 3]),
    "GIF": (encode(with_palette(), "GIF", transparency=3), PALETTE[INDICES], opaque_but(INDICES == 3)),
}


def on_white(colours, opacity):
    share = opacity[..., None].astype("float64") / 255
    return np.rint(colours * share + 255 * (1 - share)).astype("uint8")


def read_by_all(content, path, channels):
    """{reader: uint8 (h, w, channels)}."""
    path.write_bytes(content)
    with Image.open(path) as image:
        image.load()
    read = {
        "keras_vit.predict of a path": read_image(path, channels),
        "of bytes": read_any_image(content, channels),
        "of Pillow's image": read_any_image(image, channels),
        "training": sources.read_photo(tf.constant(content), sources.whole_image, channels).numpy(),
        "predict.py": predict_script.open_image(path, channels),
    }
    if content.startswith(serving.PNG):
        read["serve_bytes"] = serving.decode(tf.constant(content), channels).numpy()
    return read


def test_every_reader_lays_it_on_white(tmp_path):
    for kind, (content, colours, opacity) in KINDS.items():
        expected = on_white(colours, opacity)
        for reader, found in read_by_all(content, tmp_path / "image", 3).items():
            np.testing.assert_array_equal(found, expected, err_msg=f"{kind}, {reader}")
        grey = np.asarray(Image.fromarray(expected).convert("L"))[..., None]
        for reader, found in read_by_all(content, tmp_path / "image", 1).items():
            np.testing.assert_array_equal(found, grey, err_msg=f"{kind}, {reader}")


def test_an_array_with_opacity_is_one_too():
    np.testing.assert_array_equal(read_any_image(RGBA), on_white(RGBA[..., :3], RGBA[..., 3]))


def test_four_channels_keep_it(tmp_path):
    for kind, (content, colours, opacity) in KINDS.items():
        (tmp_path / "image").write_bytes(content)
        found = read_image(tmp_path / "image", 4)
        np.testing.assert_array_equal(found[..., 3], opacity, err_msg=kind)
        seen = opacity > 0
        np.testing.assert_array_equal(found[seen][:, :3], colours[seen], err_msg=kind)

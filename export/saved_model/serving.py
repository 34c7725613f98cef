"""Preprocessing inside a SavedModel: images of any size, and encoded files, to a model's input."""

from types import SimpleNamespace

import tensorflow as tf

from keras_vit.images import tf_jpeg
from keras_vit.images.pillow import MOST_PIXELS
from keras_vit.images.pixels import graph_resize_and_crop, graph_size_before_crop

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
PNG_HEADER = 25  # bytes up to the end of width, height and bits per sample


def require_few_pixels(size):
    """An operation that fails if an image of `size`, (height, width) of any number type, exceeds the limit."""
    # Sides of 2^32 would overflow their product.
    few = tf.reduce_all((size > 0) & (size <= MOST_PIXELS)) & (tf.reduce_prod(size) <= MOST_PIXELS)
    return tf.debugging.Assert(few, [f"An image may have 1 to {MOST_PIXELS} pixels. Height and width are:", size])


def preprocess(images, preprocessing):
    """uint8 images (n, h, w, c), sizes known only when run, to float32 (n, *image_size, c).

    The results equal those of the callable `preprocessing`, which must know the size beforehand to crop.
    """
    size = graph_size_before_crop(images, preprocessing)
    tallest = tf.maximum(size, tf.stack([tf.shape(images, tf.int64)[1], 1]))  # while its width is resized
    with tf.control_dependencies([require_few_pixels(tallest)]):  # a very narrow image would fill the memory
        x = graph_resize_and_crop(images, tf.identity(size), preprocessing)
    return (x / 255.0 - tf.constant(preprocessing.mean)) / tf.constant(preprocessing.std)


def to_channels(image, channels):
    """Makes an image, uint8 (h, w, 3), grey for one channel, with Pillow's rounding: uint8 (h, w, channels)."""
    if channels == 3:
        return image
    parts = tf.constant([19595, 38470, 7471])  # of 65536: ITU-R BT.601
    return tf.cast((tf.reduce_sum(tf.cast(image, tf.int32) * parts, -1, keepdims=True) + 32768) // 65536, tf.uint8)


def decode_png_on_white(encoded, channels):
    """Decodes a PNG like `images.pillow`, to the bit."""
    pixels = tf.cast(tf.io.decode_png(encoded, channels=4), tf.uint16)
    colours, opacity = pixels[..., :3], pixels[..., 3:]
    # TensorFlow fills the opacity that a file of 1, 2 or 4 bits does not state by the largest number of these bits.
    bits = tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, PNG_HEADER - 1, 1), tf.uint8)[0], tf.int32)
    is_filled = tf.reduce_all(tf.cast(opacity, tf.int32) == 2**bits - 1)
    opacity = tf.where(is_filled, tf.constant(255, tf.uint16), opacity)
    image = (colours * opacity + 255 * (255 - opacity) + 127) // 255
    return to_channels(tf.cast(image, tf.uint8), channels)


def turn_upright(image, orientation):
    """Turns the image (h, w, c) upright by its EXIF `orientation` (1 to 8)."""
    turns = (
        lambda: image,
        lambda: image[:, ::-1],
        lambda: image[::-1, ::-1],
        lambda: image[::-1],
        lambda: tf.transpose(image, (1, 0, 2)),
        lambda: tf.transpose(image[::-1], (1, 0, 2)),
        lambda: tf.transpose(image[::-1, ::-1], (1, 0, 2)),
        lambda: tf.transpose(image[:, ::-1], (1, 0, 2)),
    )
    return tf.switch_case(tf.cast(orientation - 1, tf.int32), turns)


def decode_jpeg_upright(encoded, channels, pixels):
    few = tf.debugging.Assert(tf_jpeg.has_few_scans(encoded, pixels), ["A JPEG has too many scans for its size."])
    with tf.control_dependencies([few]):
        # In colour, as Pillow does: libjpeg's own grey differs, and it has none of CMYK.
        image = tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")
    return turn_upright(to_channels(image, channels), tf_jpeg.read_orientation(encoded))


def png_size(encoded):
    """Height and width from the first chunk, four bytes each, the highest first; width comes first in the file."""
    header = tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, 16, 8), tf.uint8), tf.int64)
    weights = tf.constant([1 << 24, 1 << 16, 1 << 8, 1], tf.int64)
    return tf.reverse(tf.reduce_sum(tf.reshape(header, (2, 4)) * weights, axis=1), [0])


def decode(encoded, channels):
    """One JPEG or PNG file, a scalar string, to uint8 (h, w, channels).

    JPEGs are turned upright by their EXIF data; transparent parts of PNGs are laid on white.

    When run, it raises tf.errors.InvalidArgumentError for any other file, and for more pixels, or more pixels in all
    scans, than `images` allows.
    """
    is_jpeg = tf.strings.substr(encoded, 0, 3) == JPEG
    is_png = (tf.strings.substr(encoded, 0, 8) == PNG) & (tf.strings.length(encoded) >= PNG_HEADER)
    known = tf.debugging.Assert(is_jpeg | is_png, ["image_bytes must be a JPEG or PNG file."])
    with tf.control_dependencies([known]):
        size = tf.cond(
            is_jpeg,
            lambda: tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64),
            lambda: png_size(encoded),
        )
    with tf.control_dependencies([require_few_pixels(size)]):
        return tf.cond(
            is_jpeg,
            lambda: decode_jpeg_upright(encoded, channels, tf.reduce_prod(size)),
            lambda: decode_png_on_white(encoded, channels),
        )


def build_answer(outputs, about):
    """A server's answer: logits, probabilities and, if the classes have names, the best one's; or vectors."""
    if about["probabilities"] is None:
        return {"vectors": outputs}
    if about["probabilities"] == "output":
        result = {"probabilities": outputs}
    else:
        make = {"softmax": tf.nn.softmax, "sigmoid": tf.nn.sigmoid}[about["probabilities"]]
        result = {"logits": outputs, "probabilities": make(outputs)}
    if about["labels"]:
        result["label"] = tf.gather(tf.constant(about["labels"]), tf.argmax(outputs, axis=-1))
    return result


def image_endpoints(model, about):
    """{name: (function, argument)} for uint8 images (n, h, w, c) of one size and, with one or three channels, for
    encoded images (n,), each of its own size; `about` describes the model.
    """
    channels, preprocessing = model.inputs[0].shape[-1], SimpleNamespace(**about["preprocessing"])

    def serve_uint8(images):
        return build_answer(model(preprocess(images, preprocessing), training=False), about)

    def decode_and_preprocess(encoded):
        return preprocess(decode(encoded, channels)[None], preprocessing)[0]

    def serve_bytes(image_bytes):
        shape = (*preprocessing.image_size, channels)
        images = tf.map_fn(decode_and_preprocess, image_bytes, fn_output_signature=tf.TensorSpec(shape, "float32"))
        return build_answer(model(images, training=False), about)

    endpoints = {"serve_uint8": (serve_uint8, tf.TensorSpec((None, None, None, channels), "uint8", name="images"))}
    if channels in (1, 3):
        endpoints["serve_bytes"] = serve_bytes, tf.TensorSpec((None,), "string", name="image_bytes")
    return endpoints

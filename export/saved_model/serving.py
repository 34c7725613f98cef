"""Preprocessing inside a SavedModel: pictures of any size, and encoded files, to a model's input."""

import tensorflow as tf

from keras_vit.images import tf_jpeg, tf_orientation
from keras_vit.images.limits import MOST_PIXELS

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
PNG_HEADER = 24  # bytes up to the end of width and height


def as_inputs(pictures, preprocessing):
    """uint8 pictures (n, h, w, c), sizes known only when run, to float32 (n, *image_size, c).

    The same numbers as the callable `preprocessing` gives, which needs a size known beforehand to crop.
    """
    if preprocessing.crop is None:
        return preprocessing(pictures)
    x = cropped(tf.cast(pictures, "float32"), preprocessing)
    return (x / 255.0 - tf.constant(preprocessing.mean)) / tf.constant(preprocessing.std)


def size_before_crop(x, preprocessing):
    """(height, width), float64, that pictures (n, h, w, c) are resized to."""
    least = tf.floor(tf.constant(preprocessing.image_size, tf.float64) / preprocessing.crop + 1e-6)
    if preprocessing.crop_mode == "squash":
        return least
    lengths = tf.cast(tf.shape(x)[1:3], tf.float64)
    return tf.maximum(tf.floor(lengths * tf.reduce_max(least / lengths) + 1e-6), least)


def cropped(x, preprocessing):
    """Resizes so that image_size is the part `crop` of the picture, and keeps its middle."""
    size = size_before_crop(x, preprocessing)
    with tf.control_dependencies([require_few(size)]):
        size = tf.cast(size, tf.int32)
    antialias = preprocessing.interpolation != "nearest"
    x = tf.image.resize(x, size, method=preprocessing.interpolation, antialias=antialias)
    top, left = tf.unstack(tf.cast(tf.round((size - tf.constant(preprocessing.image_size)) / 2), tf.int32))
    height, width = preprocessing.image_size
    return tf.ensure_shape(x[:, top : top + height, left : left + width], (None, height, width, None))


def decoded(encoded, channels):
    """One JPEG or PNG file, a scalar string, to uint8 (h, w, channels); JPEGs upright as their EXIF data say.

    Raises, when run, tf.errors.InvalidArgumentError for anything else, and for more pixels, or more in all scans, than
    `images` allows.
    """
    is_jpeg = tf.strings.substr(encoded, 0, 3) == JPEG
    is_png = (tf.strings.substr(encoded, 0, 8) == PNG) & (tf.strings.length(encoded) >= PNG_HEADER)
    known = tf.debugging.Assert(is_jpeg | is_png, ["image_bytes must be a JPEG or PNG file."])
    with tf.control_dependencies([known]):
        size = tf.cond(is_jpeg, lambda: jpeg_size(encoded), lambda: png_size(encoded))
    with tf.control_dependencies([require_few(size)]):
        return tf.cond(
            is_jpeg,
            lambda: decoded_jpeg(encoded, channels, tf.reduce_prod(size)),
            lambda: tf.io.decode_png(encoded, channels=channels),
        )


def decoded_jpeg(encoded, channels, pixels):
    few = tf.debugging.Assert(tf_jpeg.has_few_scans(encoded, pixels), ["A JPEG has too many scans for its size."])
    with tf.control_dependencies([few]):
        image = tf.io.decode_jpeg(encoded, channels, dct_method="INTEGER_ACCURATE")
    return turned(image, tf_orientation.read_orientation(encoded))


def turned(image, orientation):
    """The image (h, w, c) upright, `orientation` (1 to 8) being EXIF's."""
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


def require_few(size):
    """An operation that fails unless a picture of `size`, (height, width) of any number type, is within the limit."""
    # Sides of 2^32 would overflow their product.
    few = tf.reduce_all((size > 0) & (size <= MOST_PIXELS)) & (tf.reduce_prod(size) <= MOST_PIXELS)
    return tf.debugging.Assert(few, [f"An image may have 1 to {MOST_PIXELS} pixels. Height and width are:", size])


def jpeg_size(encoded):
    return tf.cast(tf.io.extract_jpeg_shape(encoded)[:2], tf.int64)


def png_size(encoded):
    """Height and width from the first chunk, four bytes each, the highest first; width comes first in the file."""
    header = tf.cast(tf.io.decode_raw(tf.strings.substr(encoded, 16, 8), tf.uint8), tf.int64)
    weights = tf.constant([1 << 24, 1 << 16, 1 << 8, 1], tf.int64)
    return tf.reverse(tf.reduce_sum(tf.reshape(header, (2, 4)) * weights, axis=1), [0])


def answer(logits, labels):
    """What a server returns: logits, probabilities, and where the classes have names, the best one's."""
    result = {"logits": logits, "probabilities": tf.nn.softmax(logits)}
    if labels is not None:
        result["label"] = tf.gather(tf.constant(labels), tf.argmax(logits, axis=-1))
    return result


def pictures_endpoint(model, channels):
    """uint8 pictures (n, h, w, c) of one size."""

    def serve_uint8(images):
        return answer(model(as_inputs(images, model.preprocessing), training=False), model.labels)

    return serve_uint8, [tf.TensorSpec((None, None, None, channels), "uint8", name="images")]


def bytes_endpoint(model, channels):
    """Encoded pictures (n,), each of its own size."""

    def prepared(encoded):
        return as_inputs(decoded(encoded, channels)[None], model.preprocessing)[0]

    def serve_bytes(image_bytes):
        shape = (*model.preprocessing.image_size, channels)
        images = tf.map_fn(prepared, image_bytes, fn_output_signature=tf.TensorSpec(shape, "float32"))
        return answer(model(images, training=False), model.labels)

    return serve_bytes, [tf.TensorSpec((None,), "string", name="image_bytes")]

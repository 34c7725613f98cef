"""RandAugment (arXiv 1909.13719) as AugReg used it: the operations and strengths of EfficientNet's TPU code.

keras.layers.RandAugment has other operations and strengths, and its generator has a state: a resumed run would see
other images than an uninterrupted one. tf.image has only some of the operations, and cannot shear or rotate. Here all
randomness comes from the seed given to `apply`.
"""

import math

import tensorflow as tf

from keras_vit.data.reading.order import SALTS_PER_LAYER, ExampleSalt, LayerSalt, add_salt

GREY = 128.0


def to_rows(image):
    """An image (h, w, c) as (h, w * c): broadcasting over a last axis of 3 takes several times as long."""
    return tf.reshape(image, (image.shape[0], image.shape[1] * image.shape[2]))


def autocontrast(image, strength, seed):
    rows, (_, width, channels) = to_rows(image), image.shape
    low = tf.reduce_min(tf.reshape(tf.reduce_min(rows, 0), (width, channels)), 0)
    high = tf.reduce_max(tf.reshape(tf.reduce_max(rows, 0), (width, channels)), 0)
    scale = tf.where(high > low, 255.0 / tf.maximum(high - low, 1.0), 1.0)
    low, scale = (tf.tile(value, [width]) for value in (tf.where(high > low, low, 0.0), scale))
    return tf.reshape(tf.floor(tf.clip_by_value((rows - low) * scale, 0.0, 255.0)), image.shape)


def equalize(image, strength, seed):
    """Flattens the histogram of each channel, as Pillow does."""
    height, width, channels = image.shape
    offset = tf.tile(256 * tf.range(channels), [width])  # of each channel's values in one histogram of all
    values = tf.cast(to_rows(image), tf.int32) + offset
    counts = tf.raw_ops.Bincount(arr=values, size=256 * channels, weights=tf.zeros([0], tf.int32))
    counts = tf.reshape(counts, (channels, 256))
    last = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), 1)  # the largest value that a channel has
    step = (height * width - tf.gather(counts, last[:, None], batch_dims=1)) // 255
    table = (tf.cumsum(counts, 1, exclusive=True) + step // 2) // tf.maximum(step, 1)
    table = tf.where(step > 0, tf.minimum(table, 255), tf.range(256))
    return tf.reshape(tf.gather(tf.reshape(tf.cast(table, tf.float32), [-1]), values), image.shape)


def invert(image, strength, seed):
    return 255.0 - image


def posterize(image, strength, seed):
    """Keeps int(4 * strength) bits, at least 1 (TensorFlow shifts a byte by at most 7) and at most 8."""
    unit = 2.0 ** (8 - min(8, max(1, int(4 * strength))))
    return tf.floor(image / unit) * unit


def reaches(image, threshold):
    """1 where whole numbers reach a whole threshold, else 0; takes a tenth of the time of tf.where."""
    return tf.clip_by_value(image - (threshold - 1.0), 0.0, 1.0)


def solarize(image, strength, seed):
    return image + reaches(image, int(256 * strength)) * (255.0 - 2.0 * image)


def solarize_add(image, strength, seed):
    return tf.minimum(image + (1.0 - reaches(image, 128)) * int(110 * strength), 255.0)


def enhance(degenerate, image, strength):
    """degenerate at factor 0, image at 1, extrapolated above 1; truncated to whole numbers, as in uint8."""
    factor = 1.8 * strength + 0.1
    return tf.floor(tf.clip_by_value(degenerate + factor * (image - degenerate), 0.0, 255.0))


def color(image, strength, seed):
    grey = image
    if image.shape[-1] == 3:  # luma, rounded down as the cast of tf.image's uint8 conversion
        grey = tf.cast(tf.image.rgb_to_grayscale(tf.cast(image, tf.uint8)), tf.float32)
    return enhance(grey, image, strength)


def contrast(image, strength, seed):
    """Blends with a grey of (number of pixels) / 256, at most 255, as the TPU code does; Pillow uses the mean."""
    height, width = image.shape[:2]
    return enhance(tf.fill(tf.shape(image), min(255.0, float(height * width // 256))), image, strength)


def brightness(image, strength, seed):
    return enhance(tf.zeros_like(image), image, strength)


def sharpness(image, strength, seed):
    """Blends with a smoothed image; the border does not change."""
    kernel = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32)[:, :, None, None] / 13.0
    kernel = tf.tile(kernel, (1, 1, image.shape[-1], 1))
    smooth = tf.nn.depthwise_conv2d(image[None], kernel, (1, 1, 1, 1), "VALID")[0]
    smooth = tf.floor(tf.clip_by_value(smooth, 0.0, 255.0))
    inner = tf.pad(tf.ones_like(smooth, tf.bool), ((1, 1), (1, 1), (0, 0)))
    return enhance(tf.where(inner, tf.pad(smooth, ((1, 1), (1, 1), (0, 0))), image), image, strength)


def with_random_sign(value, seed):
    """value or its negative, at random."""
    coin = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.SIGN))
    return tf.where(coin < 0.5, -value, value)


def transform(image, matrix):
    """Gives every pixel (x, y) the value of the one nearest to (a x + b y + c, d x + e y + f), or grey outside."""
    height, width, channels = image.shape
    a, b, c, d, e, f = (tf.cast(value, tf.float32) for value in matrix)
    # The op takes time for every number, so it moves pixel indices: one for all channels.
    places = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.reshape(tf.range(1, height * width + 1), (1, height, width, 1)),
        transforms=tf.stack([a, b, c, d, e, f, 0.0, 0.0])[None],
        output_shape=(height, width),
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    pixels = tf.pad(tf.reshape(image, (-1, channels)), ((1, 0), (0, 0)), constant_values=GREY)
    return tf.gather(pixels, places[0, ..., 0])


def rotate(image, strength, seed):
    """Rotates about the centre by 30 * strength degrees to either side."""
    angle = with_random_sign(strength * 30 * math.pi / 180, seed)
    cos, sin = tf.cos(angle), tf.sin(angle)
    x, y = (image.shape[1] - 1) / 2, (image.shape[0] - 1) / 2
    return transform(image, (cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos))


def shear_x(image, strength, seed):
    return transform(image, (1, with_random_sign(0.3 * strength, seed), 0, 0, 1, 0))


def shear_y(image, strength, seed):
    return transform(image, (1, 0, 0, with_random_sign(0.3 * strength, seed), 1, 0))


def translate_x(image, strength, seed):
    return transform(image, (1, 0, with_random_sign(100.0 * strength, seed), 0, 1, 0))


def translate_y(image, strength, seed):
    return transform(image, (1, 0, 0, 0, 1, with_random_sign(100.0 * strength, seed)))


def cutout(image, strength, seed):
    """Draws a grey square of up to 2 * int(40 * strength) pixels; its centre is anywhere in the image."""
    half, (height, width) = int(40 * strength), image.shape[:2]
    y = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.CUTOUT_Y), 0, height, tf.int32)
    x = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.CUTOUT_X), 0, width, tf.int32)
    rows, columns = tf.range(height), tf.repeat(tf.range(width), image.shape[-1])
    rows, columns = (
        tf.cast((places >= centre - half) & (places < centre + half), tf.float32)
        for places, centre in ((rows, y), (columns, x))
    )
    inside = rows[:, None] * columns
    return image + tf.reshape(inside * (GREY - to_rows(image)), image.shape)


# A draw is an index into this tuple, so another order would change the augmentation of every run.
OPERATIONS = (
    autocontrast,
    equalize,
    invert,
    rotate,
    posterize,
    solarize,
    color,
    contrast,
    brightness,
    sharpness,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    cutout,
    solarize_add,
)


def apply(image, layers, magnitude, seed):
    """Applies `layers` operations, each chosen at random, of strength magnitude / 10.

    The image is float32 (h, w, c) in [0, 255] of static shape, c 1 or 3; it is truncated to whole numbers, as in the
    uint8 code. The seed is that of this visit of the example (`order.example_seed`), int64 (2,).
    """
    image = tf.floor(image)
    for layer in range(layers):
        layer_seed = add_salt(seed, ExampleSalt.RANDAUGMENT + SALTS_PER_LAYER * layer)
        seed_of_choice = add_salt(layer_seed, LayerSalt.OPERATION)
        choice = tf.random.stateless_uniform((), seed_of_choice, 0, len(OPERATIONS), tf.int32)
        branches = [lambda x=image, s=layer_seed, op=operation: op(x, magnitude / 10, s) for operation in OPERATIONS]
        image = tf.ensure_shape(tf.switch_case(choice, branches), image.shape)
    return image

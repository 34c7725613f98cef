"""RandAugment (arXiv 1909.13719) as AugReg used it: the operations and strengths of EfficientNet's TPU code.

keras.layers.RandAugment has other operations and strengths, and its generator has a state: a resumed run would see
other images than an uninterrupted one. tf.image has only some of the operations, and cannot shear or rotate. Here all
randomness comes from the seed given to `apply`.
"""

import functools
import math

import tensorflow as tf

from keras_vit.data.reading.order import SALTS_PER_LAYER, ExampleSalt, LayerSalt, add_salt

GREY = 128.0


def one_program(operation):
    """The operation as one program of XLA, which reads and writes the image once.

    It takes 0.03 to 0.1 ms at 224 pixels, in place of up to 1 ms. Draws stay outside: XLA would draw other numbers.
    """

    @functools.cache
    def compile_for(shape, *constants):
        # TensorFlow warns of a function with many traces, and knows it by its code, which a partial lacks.
        return tf.function(functools.partial(operation), autograph=False, jit_compile=True)

    @functools.wraps(operation)
    def run(image, *arguments):
        constants = [argument for argument in arguments if isinstance(argument, (int, float))]
        return compile_for(tuple(image.shape), *constants)(image, *arguments)

    return run


@one_program
def autocontrast(image, strength, seed):
    height, width, channels = image.shape
    rows = tf.reshape(image, (height, width * channels))  # XLA reduces these in a quarter of the time of 3 channels
    low = tf.reduce_min(tf.reshape(tf.reduce_min(rows, 0), (width, channels)), 0)
    high = tf.reduce_max(tf.reshape(tf.reduce_max(rows, 0), (width, channels)), 0)
    stretched = tf.floor(tf.clip_by_value((image - low) * (255.0 / tf.maximum(high - low, 1.0)), 0.0, 255.0))
    return tf.where(high > low, stretched, image)


@one_program
def look_up(image, table):
    """The values of a table (c, 256) for the channels of an image."""
    return tf.gather(tf.reshape(table, [-1]), tf.cast(image, tf.int32) + 256 * tf.range(image.shape[-1]))


def equalize(image, strength, seed):
    """Flattens the histogram of each channel, as Pillow does."""
    height, width, channels = image.shape
    # One histogram of all channels, by an operation that XLA does not have; broadcasting over 3 channels takes longer.
    rows = tf.cast(tf.reshape(image, (height, width * channels)), tf.int32) + tf.tile(256 * tf.range(channels), [width])
    counts = tf.raw_ops.Bincount(arr=rows, size=256 * channels, weights=tf.zeros([0], tf.int32))
    counts = tf.reshape(counts, (channels, 256))
    last = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), 1)  # the largest value that a channel has
    step = (height * width - tf.gather(counts, last[:, None], batch_dims=1)) // 255
    table = (tf.cumsum(counts, 1, exclusive=True) + step // 2) // tf.maximum(step, 1)
    table = tf.where(step > 0, tf.minimum(table, 255), tf.range(256))
    return look_up(image, tf.cast(table, tf.float32))


@one_program
def invert(image, strength, seed):
    return 255.0 - image


@one_program
def posterize(image, strength, seed):
    """Keeps int(4 * strength) bits, at least 1 (TensorFlow shifts a byte by at most 7) and at most 8."""
    unit = 2.0 ** (8 - min(8, max(1, int(4 * strength))))
    return tf.floor(image / unit) * unit


@one_program
def solarize(image, strength, seed):
    return tf.where(image < int(256 * strength), image, 255.0 - image)


@one_program
def solarize_add(image, strength, seed):
    return tf.where(image < 128, tf.minimum(image + int(110 * strength), 255.0), image)


def enhance(degenerate, image, strength):
    """degenerate at factor 0, image at 1, extrapolated above 1; truncated to whole numbers, as in uint8."""
    factor = 1.8 * strength + 0.1
    return tf.floor(tf.clip_by_value(degenerate + factor * (image - degenerate), 0.0, 255.0))


@one_program
def color(image, strength, seed):
    grey = image
    if image.shape[-1] == 3:  # luma, rounded down as the cast of tf.image's uint8 conversion
        grey = tf.cast(tf.image.rgb_to_grayscale(tf.cast(image, tf.uint8)), tf.float32)
    return enhance(grey, image, strength)


@one_program
def contrast(image, strength, seed):
    """Blends with a grey of (number of pixels) / 256, at most 255, as the TPU code does; Pillow uses the mean."""
    height, width = image.shape[:2]
    return enhance(tf.fill(tf.shape(image), min(255.0, float(height * width // 256))), image, strength)


@one_program
def brightness(image, strength, seed):
    return enhance(tf.zeros_like(image), image, strength)


@one_program
def sharpen(image, sums, strength):
    """Blends with the image smoothed by `sums` of 3 x 3 pixels, (h - 2, w - 2, c); the border does not change."""
    inner = image[1:-1, 1:-1]
    sharp = enhance(tf.floor((sums + 4 * inner) / 13), inner, strength)  # the middle pixel counts five times
    return image + tf.pad(sharp - inner, ((1, 1), (1, 1), (0, 0)))


def sharpness(image, strength, seed):
    height, width, channels = image.shape
    # XLA would add up all nine for each pixel.
    columns = tf.reshape(image[:-2] + image[1:-1] + image[2:], (height - 2, width * channels))
    sums = columns[:, : -2 * channels] + columns[:, channels:-channels] + columns[:, 2 * channels :]
    return sharpen(image, tf.reshape(sums, (height - 2, width - 2, channels)), strength)


def with_random_sign(value, seed):
    """value or its negative, at random."""
    coin = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.SIGN))
    return tf.where(coin < 0.5, -value, value)


@one_program
def move(image, matrix):
    """What `transform` does, by a matrix float32 (6,)."""
    height, width, channels = image.shape
    a, b, c, d, e, f = tf.unstack(matrix)
    x, y = tf.range(width, dtype=tf.float32), tf.range(height, dtype=tf.float32)[:, None]
    x, y = a * x + b * y + c, d * x + e * y + f
    inside = (x > -0.5) & (x < width - 0.5) & (y > -0.5) & (y < height - 0.5)
    column, row = (tf.cast(tf.floor(at + 0.5), tf.int32) for at in (x, y))
    pixels = tf.gather(tf.reshape(image, (-1, channels)), tf.where(inside, row * width + column, 0))
    return tf.where(inside[..., None], pixels, GREY)


def transform(image, matrix):
    """Gives every pixel (x, y) the value of the one nearest to (a x + b y + c, d x + e y + f), or grey outside."""
    return move(image, tf.stack([tf.cast(value, tf.float32) for value in matrix]))


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


@one_program
def paint(image, y, x, half):
    """A grey square around a pixel."""
    height, width = image.shape[:2]
    rows, columns = (
        (places >= centre - half) & (places < centre + half)
        for places, centre in ((tf.range(height), y), (tf.range(width), x))
    )
    return tf.where((rows[:, None] & columns)[..., None], GREY, image)


def cutout(image, strength, seed):
    """Draws a grey square of up to 2 * int(40 * strength) pixels; its centre is anywhere in the image."""
    height, width = image.shape[:2]
    y = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.CUTOUT_Y), 0, height, tf.int32)
    x = tf.random.stateless_uniform((), add_salt(seed, LayerSalt.CUTOUT_X), 0, width, tf.int32)
    return paint(image, y, x, int(40 * strength))


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

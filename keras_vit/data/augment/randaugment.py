"""RandAugment (arXiv 1909.13719) on single images, as `operations` describes it.

keras.layers.RandAugment has other operations and strengths, and its generator has a state: a resumed run would see
other images than an uninterrupted one. tf.image has only some of the operations, and cannot shear or rotate. Here all
randomness comes from the numbers that `draw` gives.
"""

import functools

import tensorflow as tf

from keras_vit.data.reading.order import ExampleSalt, add_salt
from keras_vit.images.operations import GREY, LUMA, OPERATIONS, TIE, measure


def one_program(operation):
    """The operation as one program of XLA, which reads and writes the image once.

    It takes 0.03 to 0.1 ms at 224 pixels, in place of up to 1 ms.
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
def autocontrast(image):
    height, width, channels = image.shape
    rows = tf.reshape(image, (height, width * channels))  # XLA reduces these in a quarter of the time of 3 channels
    low = tf.reduce_min(tf.reshape(tf.reduce_min(rows, 0), (width, channels)), 0)
    high = tf.reduce_max(tf.reshape(tf.reduce_max(rows, 0), (width, channels)), 0)
    stretched = tf.floor(tf.clip_by_value((image - low) * (255.0 / tf.maximum(high - low, 1.0)), 0.0, 255.0) + TIE)
    return tf.where(high > low, stretched, image)


@one_program
def look_up(image, table):
    """The values of a table (256,), or of one for each channel, (c, 256)."""
    offsets = 256 * tf.range(image.shape[-1]) if table.shape.rank == 2 else 0
    return tf.cast(tf.gather(tf.reshape(table, [-1]), tf.cast(image, tf.int32) + offsets), tf.float32)


def equalize(image):
    """Flattens the histogram of each channel, as Pillow does."""
    height, width, channels = image.shape
    # One histogram of all channels, by an operation that XLA does not have; broadcasting over 3 channels takes longer.
    rows = tf.cast(tf.reshape(image, (height, width * channels)), tf.int32) + tf.tile(256 * tf.range(channels), [width])
    counts = tf.raw_ops.Bincount(arr=rows, size=256 * channels, weights=tf.zeros([0], tf.int32))
    counts = tf.reshape(counts, (channels, 256))
    last = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), 1)  # the largest value that a channel has
    step = (height * width - tf.gather(counts, last[:, None], batch_dims=1)) // 255
    table = (tf.cumsum(counts, 1, exclusive=True) + step // 2) // tf.maximum(step, 1)
    return look_up(image, tf.where(step > 0, tf.minimum(table, 255), tf.range(256)))


def enhance(degenerate, image, factor):
    """degenerate at factor 0, image at 1, extrapolated above 1; truncated to whole numbers, as in uint8."""
    return tf.floor(tf.clip_by_value(degenerate + factor * (image - degenerate), 0.0, 255.0) + TIE)


@one_program
def color(image, factor):
    if image.shape[-1] != 3:
        return enhance(image, image, factor)
    luma = tf.tensordot(image / 255.0, tf.constant(LUMA), 1) * 255.5
    return enhance(tf.floor(luma + TIE)[..., None], image, factor)


@one_program
def sharpen(image, sums, factor):
    """Blends with the image smoothed by `sums` of 3 x 3 pixels, (h - 2, w - 2, c); the border does not change."""
    inner = image[1:-1, 1:-1]
    sharp = enhance(tf.floor((sums + 4 * inner) / 13 + TIE), inner, factor)  # the middle pixel counts five times
    return image + tf.pad(sharp - inner, ((1, 1), (1, 1), (0, 0)))


def sharpness(image, factor):
    height, width, channels = image.shape
    # XLA would add up all nine for each pixel.
    columns = tf.reshape(image[:-2] + image[1:-1] + image[2:], (height - 2, width * channels))
    sums = columns[:, : -2 * channels] + columns[:, channels:-channels] + columns[:, 2 * channels :]
    return sharpen(image, tf.reshape(sums, (height - 2, width - 2, channels)), factor)


@one_program
def move(image, matrix):
    """Gives each pixel (x, y) the value of the one nearest to where a matrix (6,) sends it, or grey outside."""
    height, width, channels = image.shape
    a, b, c, d, e, f = tf.unstack(matrix)
    x, y = tf.range(width, dtype=tf.float32), tf.range(height, dtype=tf.float32)[:, None]
    x, y = a * x + b * y + c, d * x + e * y + f
    column, row = (tf.cast(tf.floor(at + 0.5 + TIE), tf.int32) for at in (x, y))
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    pixels = tf.gather(tf.reshape(image, (-1, channels)), tf.where(inside, row * width + column, 0))
    return tf.where(inside[..., None], pixels, GREY)


@one_program
def paint(image, square):
    """A grey square (top, bottom, left, right)."""
    height, width = image.shape[:2]
    top, bottom, left, right = tf.unstack(square)
    rows, columns = tf.range(height, dtype=tf.float32)[:, None], tf.range(width, dtype=tf.float32)
    painted = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    return tf.where(painted[..., None], GREY, image)


def draw(layers, seed):
    """Four numbers in [0, 1) for each layer, float32 (layers, 4): its operation, side, and centre (row, column).

    The seed is that of this visit of the example (`order.example_seed`), int64 (2,).
    """
    return tf.random.stateless_uniform((layers, 4), add_salt(seed, ExampleSalt.RANDAUGMENT))


def choose(draws, strength, height, width):
    """Of the draws (..., 4): kinds int32 (...), tables uint8 (..., 256), matrices float32 (..., 6), squares (..., 4).

    A square is (top, bottom, left, right) in pixels; its centre is anywhere in the image.
    """
    chosen = tf.cast(draws[..., 0] * len(OPERATIONS), tf.int32)
    matrices = tf.gather(strength.matrices, 2 * chosen + tf.cast(draws[..., 1] < 0.5, tf.int32))
    centres = tf.floor(draws[..., 2:] * tf.constant([height, width], tf.float32))
    squares = tf.repeat(centres, 2, -1) + strength.half * tf.constant([-1.0, 1.0, -1.0, 1.0])
    return tf.gather(strength.kinds, chosen), tf.gather(strength.tables, chosen), matrices, squares


def apply_one(image, strength, kind, table, matrix, square):
    branches = (
        lambda: look_up(image, table),
        lambda: autocontrast(image),
        lambda: equalize(image),
        lambda: color(image, strength.factor),
        lambda: sharpness(image, strength.factor),
        lambda: move(image, matrix),
        lambda: paint(image, square),
    )  # in the order of `Kind`
    return tf.ensure_shape(tf.switch_case(kind, branches), image.shape)


def apply(image, layers, magnitude, seed):
    """Applies `layers` operations, each chosen at random, of strength magnitude / 10; `seed` as in `draw`.

    The image is float32 (h, w, c) in [0, 255] of static shape, c 1 or 3; it is truncated to whole numbers, as in the
    uint8 code.
    """
    height, width = image.shape[:2]
    strength = measure(magnitude, height, width)
    image = tf.floor(image)
    for numbers in zip(*map(tf.unstack, choose(draw(layers, seed), strength, height, width)), strict=True):
        image = apply_one(image, strength, *numbers)
    return image

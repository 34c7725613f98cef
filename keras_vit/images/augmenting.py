"""The random changes that a batch of `keras_vit.data` leaves to the model: RandAugment, mixup and cutmix on its device.

The batch's parts are those of `keras_vit/data/augment/deferred.py`. All images go through all kinds of operations, and
keep the result of their own: a GPU has no branch for a single image.
"""

from keras import ops

from keras_vit.images.operations import GREY, LUMA, TIE, Kind


def make_stretch(images):
    """Tables (n, c, 256) that stretch the values of each channel to all from 0 to 255."""
    low, high = (reduce(images, axis=(1, 2))[..., None] for reduce in (ops.min, ops.max))
    values = ops.arange(256, dtype="float32")
    stretched = ops.floor(ops.clip((values - low) * (255.0 / ops.maximum(high - low, 1.0)), 0.0, 255.0) + TIE)
    return ops.where(high > low, stretched, values)


def number_channels(images):
    """int32 (n, 1, 1, c): the place of each image's channel among all."""
    n, channels = ops.shape(images)[0], images.shape[-1]
    return ops.reshape(ops.arange(n * channels, dtype="int32"), (n, 1, 1, channels))


def make_equalization(images):
    """Tables (n, c, 256) that flatten the histogram of each channel."""
    n, height, width, channels = ops.shape(images)
    bins = ops.reshape(ops.cast(images, "int32") + 256 * number_channels(images), (-1,))
    counts = ops.segment_sum(ops.ones_like(bins), bins, n * channels * 256)
    counts = ops.reshape(counts, (n, channels, 256))
    values = ops.arange(256, dtype="int32")
    last = ops.max(ops.where(counts > 0, values, 0), -1, keepdims=True)  # the largest value that a channel has
    step = (height * width - ops.take_along_axis(counts, last, -1)) // 255
    table = (ops.cumsum(counts, -1) - counts + step // 2) // ops.maximum(step, 1)
    return ops.cast(ops.where(step > 0, ops.minimum(table, 255), values), "float32")


def look_up(images, tables):
    """The values of tables (n, c, 256)."""
    places = ops.cast(images, "int32") + 256 * number_channels(images)
    return ops.take(ops.reshape(tables, (-1,)), places)


def enhance(degenerate, images, factor):
    return ops.floor(ops.clip(degenerate + factor * (images - degenerate), 0.0, 255.0) + TIE)


def to_grey(images):
    """The luma, rounded down, of three channels."""
    if images.shape[-1] != 3:
        return images
    # Not a product of matrices, which GPUs and TPUs compute in fewer bits.
    luma = ops.sum(images / 255.0 * ops.convert_to_tensor(LUMA, "float32"), -1, keepdims=True) * 255.5
    return ops.floor(luma + TIE)


def smooth(images):
    """The mean of 3 x 3 pixels, the middle one counted five times, rounded down; the border does not change."""
    columns = images[:, :-2] + images[:, 1:-1] + images[:, 2:]
    sums = columns[:, :, :-2] + columns[:, :, 1:-1] + columns[:, :, 2:]
    inner = images[:, 1:-1, 1:-1]
    smoothed = ops.floor((sums + 4 * inner) / 13 + TIE)
    return images + ops.pad(smoothed - inner, ((0, 0), (1, 1), (1, 1), (0, 0)))


def move(images, matrices):
    """Gives each pixel (x, y) the value of the one nearest to where its image's matrix (6,) sends it, or grey."""
    n, height, width, channels = ops.shape(images)
    a, b, c, d, e, f = (matrices[:, i, None, None] for i in range(6))
    x, y = ops.arange(width, dtype="float32"), ops.arange(height, dtype="float32")[:, None]
    x, y = a * x + b * y + c, d * x + e * y + f
    column, row = (ops.cast(ops.floor(at + 0.5 + TIE), "int32") for at in (x, y))
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    first = height * width * ops.arange(n, dtype="int32")[:, None, None]
    pixels = ops.take(ops.reshape(images, (-1, channels)), first + ops.where(inside, row * width + column, 0), 0)
    return ops.where(inside[..., None], pixels, GREY)


def covers(rectangles, height, width, middle):
    """Whether rectangles (n, 4) of (top, bottom, left, right) have each pixel's point, bool (n, height, width, 1)."""
    top, bottom, left, right = (rectangles[:, i, None, None] for i in range(4))
    y, x = ops.arange(height, dtype="float32")[:, None] + middle, ops.arange(width, dtype="float32") + middle
    return ((y >= top) & (y < bottom) & (x >= left) & (x < right))[..., None]


def operate(images, operations, tables):
    """One layer of RandAugment on images, float32 (n, h, w, c) of whole numbers; (n, 12) and (n, 256)."""

    def having(kind, shape=(-1, 1, 1, 1)):
        return ops.reshape(operations[:, 0] == kind, shape)

    factor = ops.reshape(operations[:, 1], (-1, 1, 1, 1))
    tables = ops.cast(tables, "float32")[:, None]
    for kind, make in ((Kind.AUTOCONTRAST, make_stretch), (Kind.EQUALIZE, make_equalization)):
        tables = ops.where(having(kind, (-1, 1, 1)), make(images), tables)
    looked_up = look_up(images, tables)
    for kind, degenerate in ((Kind.COLOR, to_grey), (Kind.SHARPNESS, smooth)):
        looked_up = ops.where(having(kind), enhance(degenerate(images), images, factor), looked_up)
    moved = ops.where(having(Kind.MOVE), move(images, operations[:, 2:8]), looked_up)
    painted = having(Kind.PAINT) & covers(operations[:, 8:], *images.shape[1:3], middle=0.0)
    return ops.where(painted, GREY, moved)


def augment(images, operations, tables):
    """All layers of RandAugment, if there are any: float32 (n, h, w, c) of uint8 images."""
    images = ops.cast(images, "float32")
    for layer in range(0 if operations is None else operations.shape[1]):
        images = operate(images, ops.cast(operations[:, layer], "float32"), tables[:, layer])
    return images


def is_unfinished(batch):
    """Whether a dict of images says what is to be done to them."""
    return "operations" in batch or "mixing" in batch


def finish(batch):
    """The changed images of a batch, float32 (n, h, w, c) in [0, 255]."""
    names = ("images", "operations", "tables")
    images = augment(*(batch.get(name) for name in names))
    if "mixing" not in batch:
        return images
    partners = augment(*(batch.get(f"partner_{name}") for name in names))
    mixing = ops.cast(batch["mixing"], "float32")
    share = ops.where(covers(mixing[:, :4], *images.shape[1:3], middle=0.5), mixing[:, 4, None, None, None], 0.0)
    return (1 - share) * images + share * partners

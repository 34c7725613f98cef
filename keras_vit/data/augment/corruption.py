"""From an image to an example of masked patch prediction (Appendix B.1.2): the model's input and target.

Every draw uses the example's own seed, so that a resumed run, or one on other devices, sees the same examples. The
model itself draws nothing at random and never sees the target.
"""

import tensorflow as tf

from keras_vit.data.augment.crops import normalize_or_round
from keras_vit.data.augment.masked_patches import LEVELS, SHARES
from keras_vit.data.reading.order import ExampleSalt, add_salt
from keras_vit.errors import DataError

MASKED = -1  # the source of a patch that the mask embedding replaces


def draw_corruption(patches, count, seed):
    """(places int32 (count,), sources int32 (patches,)): the corrupted patches, and the source of each patch's
    embedding.

    All choices of `count` places among the `patches` are equally likely; places are sorted. `seed`, int64 (2,), is that
    of this visit of the example (`order.example_seed`).

    `sources` holds a patch's own number if it is not replaced, MASKED for the mask embedding, or the number of another
    patch. That is the next one on a random circle of all patches, so that no patch replaces two others. Then the
    gradient of the gather adds at most two values, so that their order, undefined on a GPU, does not matter.
    """
    ranks = tf.random.stateless_uniform((patches,), add_salt(seed, ExampleSalt.CORRUPTED))
    places = tf.sort(tf.argsort(ranks, stable=True)[:count])
    fate = tf.random.stateless_uniform((count,), add_salt(seed, ExampleSalt.CORRUPTION))
    circle = tf.argsort(tf.random.stateless_uniform((patches,), add_salt(seed, ExampleSalt.OTHER_PATCH)), stable=True)
    others = tf.scatter_nd(circle[:, None], tf.roll(circle, -1, axis=0), (patches,))
    masked, other, _ = SHARES
    replaced = tf.where(fate < masked + other, tf.gather(others, places), places)
    replaced = tf.where(fate < masked, MASKED, replaced)
    return places, tf.tensor_scatter_nd_update(tf.range(patches), places[:, None], replaced)


def cut_into_patches(image, grid):
    """Cuts (rows * height, columns * width, c) into (rows * columns, height * width * c), in raster order."""
    (rows, columns), (h, w, c) = grid, image.shape
    parts = tf.reshape(image, (rows, h // rows, columns, w // columns, c))
    return tf.reshape(tf.transpose(parts, (0, 2, 1, 3, 4)), (rows * columns, -1))


def number_colours(image):
    """Numbers the colours of pixels in [0, 255], (..., 3), by 3 bits of each channel: int32 (...) below 512."""
    levels = tf.clip_by_value(tf.cast(tf.floor(image * (LEVELS / 256)), tf.int32), 0, LEVELS - 1)
    return tf.tensordot(levels, tf.constant([LEVELS**2, LEVELS, 1]), axes=1)


def colours_of_patches(image, grid, side):
    """The mean colours of side x side parts of every patch: int32 (patches,), or (patches, side * side)."""
    rows, columns = grid
    # Areas of equal size that end where the patches end.
    small = tf.image.resize(image, (rows * side, columns * side), "area")
    numbers = cut_into_patches(number_colours(small)[..., None], grid)
    return numbers if side > 1 else tf.squeeze(numbers, -1)


def corrupt_patches(image, objective, preprocessing, seed):
    """(inputs, targets) of a `MaskedPatchModel` from one image, float32 (h, w, 3) in [0, 255] of the model's size.

    The inputs are "images", normalized and not corrupted, and "places" and "sources" from `draw_corruption`. The
    targets are those of the patches at "places": int32 (count,) or (count, 16) colours, or float32 (count, pixels * 3).
    """
    size = tuple(image.shape[:2])
    grid, count = objective.grid(size), objective.count_corrupted(size)
    places, sources = draw_corruption(grid[0] * grid[1], count, seed)
    images = normalize_or_round(image, preprocessing, "float32")
    if objective.side is None:
        targets = cut_into_patches(images, grid)
    else:
        targets = colours_of_patches(image, grid, objective.side)
    return {"images": images, "places": places, "sources": sources}, tf.gather(targets, places)


def require_can_corrupt(augmentation, preprocessing, dtype):
    """Refuses batches that masked patch prediction cannot use: mixed images, not three channels, or uint8."""
    if augmentation is not None and augmentation.one_hot:
        raise DataError(
            "Masked patches have no labels that mixup or cutmix could mix. Choose an augmentation without them, such "
            "as inception or light1."
        )
    if len(preprocessing.mean) != 3:
        raise DataError(f"Masked patches need images of 3 channels. Received: {len(preprocessing.mean)}.")
    if dtype != "float32":
        raise DataError(f"With masked patches dtype must be 'float32'. Received: {dtype!r}.")

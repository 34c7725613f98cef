"""A perceptual hash of every image of a split: images that look alike have hashes that differ in few bits."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import imagehash
import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.data.errors import data_errors
from keras_vit.data.reading import order
from keras_vit.data.reading.decode import whole_image

if TYPE_CHECKING:
    from keras_vit.data import Examples

BITS = 256
SIDE = 16  # of the square of low frequencies whose signs are the hash
PIXELS = 4 * SIDE  # of the small grey image whose cosine transform is taken
BATCH = 64


def hash_image(grey: np.ndarray) -> np.ndarray:
    """The perceptual hash of a small grey image, uint8 (64, 64): uint64 (4,), as 256 bits.

    Each bit says whether one of the 16 x 16 lowest frequencies is above their median.

    >>> hash_image(np.arange(64 * 64).reshape(64, 64).astype("uint8")).shape
    (4,)
    """
    bits = imagehash.phash(Image.fromarray(grey), hash_size=SIDE, highfreq_factor=PIXELS // SIDE).hash
    return np.packbits(bits).view("uint64")


def hash_examples(
    examples: "Examples", mirrored: bool = False, tell: Callable[[int], None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the examples that can be read, int64 (m,), and their hashes, uint64 (m, 4), or (m, 2, 4).

    Images are decoded a batch at a time, and never kept.

    Args:
        mirrored: whether to hash every image's mirror image too, as the second of two.
        tell: called after every batch with the number of images so far.
    """

    def read(example):
        image = examples.source.read_part(example["data"], whole_image, 1)
        small = tf.image.resize(image, (PIXELS, PIXELS), antialias=True)
        return tf.cast(tf.round(small), tf.uint8)[..., 0], example["index"], example["weight"]

    share = order.share_of(None, BATCH)
    batches = examples.read_batches(examples.source.evaluation_chunks(share), share, read, 1, redraw=False)
    numbers, hashes = [], []
    with data_errors():
        for images, index, weights in batches.take(examples.source.evaluation_steps(share)).as_numpy_iterator():
            kept = weights > 0
            numbers += index[kept].tolist()
            for image in images[kept]:
                hashes.append(hash_image(image))
                if mirrored:
                    hashes.append(hash_image(image[:, ::-1].copy()))
            if tell:
                tell(len(numbers))
    shape = (len(numbers), 2, BITS // 64) if mirrored else (len(numbers), BITS // 64)
    return np.array(numbers, "int64"), np.array(hashes, "uint64").reshape(shape)


def near_pairs(first: np.ndarray, second: np.ndarray, most: int) -> np.ndarray:
    """The pairs of hashes, uint64 (n, words) and (m, words), that differ in at most `most` bits: (pairs, 3) int.

    Each is (i, j, bits). All pairs are compared: 60,000 x 10,000 of four words in 3 seconds of a core.

    >>> near_pairs(np.array([[0, 0], [7, 0]], "uint64"), np.array([[3, 0]], "uint64"), most=1).tolist()
    [[1, 0, 1]]
    """
    found, rows = [np.empty((0, 3), int)], max(1, 2**18 // max(1, len(second)))
    for start in range(0, len(first), rows):
        part = first[start : start + rows]
        half = np.zeros((len(part), len(second)), "uint8")  # bits of the first words: most pairs differ in more already
        for word in range(first.shape[1] // 2):
            half += np.bitwise_count(part[:, word, None] ^ second[None, :, word])
        i, j = np.nonzero(half <= most)
        bits = np.bitwise_count(part[i] ^ second[j]).sum(axis=1, dtype=int)
        near = bits <= most
        found.append(np.stack([i[near] + start, j[near], bits[near]], axis=1))
    return np.concatenate(found)

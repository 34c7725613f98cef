"""Finding the near-duplicates of one split among others, by perceptual hashes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.data.duplicates.hashing import BITS, hash_examples, near_pairs
from keras_vit.data.duplicates.listing import Duplicates, Pair
from keras_vit.data.errors import DataError
from keras_vit.data.reading.decode import whole_image

if TYPE_CHECKING:
    from keras_vit.data import Examples

MOST_BITS = 48  # of 256


def find_duplicates(
    train: "Examples",
    against: Sequence["Examples"],
    most_bits: int = MOST_BITS,
    tell: Callable[[str, int], None] | None = None,
) -> Duplicates:
    """The examples of `train` that look like one of other splits, or like its mirror image (section 4.1).

    Images are compared by the perceptual hash of imagehash: 256 signs of low frequencies of the grey image. Copies of
    another size, stronger compression, other brightness or contrast, and small marks are found; crops and turns are
    not. Images of one colour are all alike.

    Args:
        train: the examples that may be left out.
        against: splits to test on.
        most_bits: in which the hashes of duplicates differ at most, of 256. Different photographs differ in about 128.
        tell: called with the name of what is read, and how many of its images have been.

    Raises:
        DataError: for a number of bits outside of 0 to 127.

    >>> digits = [keras_vit.data.load("digits", split) for split in ("train", "test")]
    >>> found = find_duplicates(digits[0], digits[1:], most_bits=10)
    >>> found.num_examples
    1293
    """
    if not 0 <= most_bits < BITS // 2:
        raise DataError(f"most_bits must be from 0 to {BITS // 2 - 1}. Received: {most_bits}.")

    def hashed(examples, mirrored):
        name = f"{examples.name} ({examples.split})"
        return hash_examples(examples, mirrored, (lambda count: tell(name, count)) if tell else None)

    numbers, hashes = hashed(train, False)
    pairs = []
    for test in against:
        others, both = hashed(test, True)
        names = f"{test.name} ({test.split})"
        alike = {}  # {(i, j): (bits, mirrored)}: of an image that is like its own mirror image the nearer one
        for mirrored in (False, True):
            for i, j, bits in near_pairs(hashes, both[:, int(mirrored)], most_bits).tolist():
                alike[i, j] = min(alike.get((i, j), (BITS, False)), (bits, mirrored))
        pairs += [
            Pair(
                number=int(numbers[i]),
                name=name_example(train, numbers[i]),
                against=names,
                other=int(others[j]),
                other_name=name_example(test, others[j]),
                bits=bits,
                mirrored=mirrored,
            )
            for (i, j), (bits, mirrored) in alike.items()
        ]
    pairs.sort(key=lambda pair: (pair.bits, pair.number, pair.against, pair.other))
    return Duplicates(train.name, train.split, train.num_examples, tuple(pairs))


def name_example(examples, number):
    """What a list calls an example: the file's path, or its number."""
    paths = getattr(examples.source, "paths", None)
    return examples.source.name_of(int(number), None if paths is None else paths[number].numpy())


def read_images(examples: "Examples", numbers: Sequence[int], channels: int = 3) -> list[np.ndarray]:
    """The images of those numbers at their own sizes, uint8 (h, w, channels) each; `channels` are 3, or 1 for grey."""
    source, places = examples.source, np.asarray(numbers, int)
    if not hasattr(source, "lookup"):  # a stream: what is wanted of it is read into memory, in order
        order = np.unique(places)
        source, places = source.read_into_memory(order), np.searchsorted(order, places)
    return [source.read_part(data, whole_image, channels).numpy() for data in map(source.lookup, map(int, places))]

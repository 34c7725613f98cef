"""Finds near-duplicates between splits by a perceptual hash, lists them for a person to check, and leaves them out."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import numpy as np

from keras_vit.data.datasets.schemes import locate_dataset
from keras_vit.errors import DataError
from keras_vit.files import read_record, write_whole

if TYPE_CHECKING:
    from keras_vit.data import Examples

BITS = 256  # of a hash: the signs of the 16 x 16 lowest frequencies of an image
MOST_BITS = 48  # by which the hashes of duplicates may differ
SIDE = 64  # pixels of the small grey image whose cosine transform is taken
MOST_BYTES = 2**30  # of a list
ADVICE = "`keras-vit deduplicate` writes one, duplicates.json."


@dataclass(frozen=True)
class Pair:
    """A training example and a test example that looks like it."""

    number: int  # of the training example in its split
    name: str
    against: str  # the split that has the test example
    other: int  # the number of the test example
    other_name: str
    bits: int  # of 256, by which their hashes differ
    mirrored: bool  # whether one is like the other's mirror image


@dataclass(frozen=True)
class Duplicates:
    """The near-duplicates of one split among others.

    Args:
        dataset, split, num_examples: the training split, and its number of examples.
        pairs: the pairs, most alike first.
    """

    dataset: str
    split: str
    num_examples: int
    pairs: tuple[Pair, ...]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the examples in pairs, sorted, each once."""
        return sorted({pair.number for pair in self.pairs})

    def save(self, path: str | os.PathLike) -> None:
        """Writes JSON that `data.load(..., without=path)` reads; false matches may be deleted from it."""
        with write_whole(path) as unfinished:
            unfinished.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")


def read_duplicates(path: str | os.PathLike) -> Duplicates:
    """Reads a list that `Duplicates.save` wrote; somebody may have deleted pairs from it.

    Raises:
        DataError: when the file is no such list.
    """
    what, kinds = "a list of duplicates", get_type_hints(Pair)
    fields = {"dataset": str, "split": str, "num_examples": int, "pairs": [kinds]}
    read = read_record(
        path, fields, what=what, error=DataError, advice=ADVICE, most_bytes=MOST_BYTES, follow_links=True
    )
    read["pairs"] = tuple(Pair(**{name: pair[name] for name in kinds}) for pair in read["pairs"])
    found = Duplicates(**{name: read[name] for name in fields})
    if not all(0 <= number < found.num_examples for number in found.numbers):
        raise DataError(f"{path} is not {what}: it has a number beyond the examples of its split. {ADVICE}")
    return found


def numbers_to_leave_out(path: str | os.PathLike, dataset: str, split: str, source) -> list[int]:
    """The numbers of the examples that a list says to leave out; it must be for this source, as it is now."""
    found, hint = read_duplicates(path), f"Make a new one: keras-vit deduplicate --data {dataset} --split {split}."
    paths = source.paths
    if found.split != split or (paths is None and locate_dataset(found.dataset) != locate_dataset(dataset)):
        raise DataError(f"{path} is for the split {found.split} of {found.dataset}, not {split} of {dataset}. {hint}")
    if found.num_examples != source.num_examples:
        raise DataError(
            f"{path} is for {found.num_examples:,} examples; {dataset} ({split}) has {source.num_examples:,}. {hint}"
        )
    for pair in found.pairs if paths is not None else ():
        now = os.fsdecode(paths[pair.number].numpy())
        if Path(now).parts[-2:] != Path(pair.name).parts[-2:]:  # the folder itself may have moved
            raise DataError(f"{path} calls example {pair.number} {pair.name}; it is {now} now. {hint}")
    return found.numbers


def hash_image(grey: np.ndarray) -> np.ndarray:
    """The perceptual hash, as of imagehash, of a small grey image, uint8 (64, 64): 256 bits, uint64 (4,)."""
    import imagehash
    from PIL import Image

    side = int(BITS**0.5)
    bits = imagehash.phash(Image.fromarray(grey), hash_size=side, highfreq_factor=SIDE // side).hash
    return np.packbits(bits).view("uint64")


def hash_examples(examples: "Examples", mirrored: bool, tell: Callable[[str, int], None] | None):
    """Hashes the examples that can be read: (their numbers, int64 (m,), their hashes, uint64 (m, 1, 4)).

    With `mirrored`, the hashes, (m, 2, 4), are those of each image and of its mirror image. Images are decoded in
    batches and not kept. `tell` is as in `find_duplicates`.
    """
    import tensorflow as tf

    from keras_vit.data.reading import order
    from keras_vit.data.reading.batches import data_errors
    from keras_vit.data.reading.sources import whole_image

    def read(example):
        image = examples.source.read_part(example["data"], whole_image, 1)
        small = tf.image.resize(image, (SIDE, SIDE), antialias=True)
        return tf.cast(tf.round(small), tf.uint8)[..., 0], example["index"], example["weight"]

    share = order.share_of(None, 64)
    batches = examples.read_batches(examples.source.evaluation_chunks(share), share, read, 1, redraw=False)
    numbers, hashes = [], []
    with data_errors():
        for images, index, weights in batches.take(examples.source.evaluation_steps(share)).as_numpy_iterator():
            numbers += index[weights > 0].tolist()
            for image in images[weights > 0]:
                views = (image, image[:, ::-1].copy()) if mirrored else (image,)
                hashes.append([hash_image(view) for view in views])
            if tell:
                tell(f"{examples.name} ({examples.split})", len(numbers))
    return np.array(numbers, "int64"), np.array(hashes, "uint64").reshape(len(numbers), 1 + mirrored, BITS // 64)


def near_pairs(first: np.ndarray, second: np.ndarray, most: int) -> np.ndarray:
    """Finds the pairs of hashes, uint64 (n, words) and (m, words), that differ in at most `most` bits.

    Returns int (pairs, 3): rows of (i, j, bits). It compares all pairs: 60,000 x 10,000 of four words take 3 seconds.

    >>> near_pairs(np.array([[0, 0], [7, 0]], "uint64"), np.array([[3, 0]], "uint64"), most=1).tolist()
    [[1, 0, 1]]
    """
    found, rows = [np.empty((0, 3), int)], max(1, 2**18 // max(1, len(second)))
    for start in range(0, len(first), rows):
        part = first[start : start + rows]
        bits = np.zeros((len(part), len(second)), "uint16")
        for word in range(first.shape[1]):
            bits += np.bitwise_count(part[:, word, None] ^ second[None, :, word])
        i, j = np.nonzero(bits <= most)
        found.append(np.stack([i + start, j, bits[i, j]], axis=1))
    return np.concatenate(found)


def find_duplicates(
    train: "Examples",
    against: "Examples | Sequence[Examples]",
    most_bits: int = MOST_BITS,
    tell: Callable[[str, int], None] | None = None,
) -> Duplicates:
    """Finds the examples of `train` that look like one of another split, or like its mirror image (section 4.1).

    Images are compared by the perceptual hash of imagehash: 256 signs of low frequencies of the grey image. It finds
    copies of other size, compression, brightness or contrast, and with small marks, but not crops and rotations. All
    images of a single colour count as alike.

    Args:
        train: the examples that may be left out.
        against: the splits to test on, one or several.
        most_bits: the most bits, of 256, by which duplicates' hashes may differ. Other photographs differ by some 128.
        tell: called with the name of the split being read and the number of images read so far.

    Raises:
        DataError: when most_bits is not in 0 to 127.

    >>> digits = [keras_vit.data.load("digits", split) for split in ("train", "test")]
    >>> found = find_duplicates(digits[0], digits[1:], most_bits=10)
    >>> found.num_examples
    1293
    """
    if not 0 <= most_bits < BITS // 2:
        raise DataError(f"most_bits must be from 0 to {BITS // 2 - 1}. Received: {most_bits}.")
    numbers, hashes = hash_examples(train, False, tell)
    pairs = []
    for test in against if isinstance(against, Sequence) else [against]:
        others, both = hash_examples(test, True, tell)
        alike = {}  # {(i, j): (bits, mirrored)}: the nearer of image and mirror image, if both are alike
        for mirrored in (False, True):
            for i, j, bits in near_pairs(hashes[:, 0], both[:, int(mirrored)], most_bits).tolist():
                alike[i, j] = min(alike.get((i, j), (BITS, False)), (bits, mirrored))
        for (i, j), (bits, mirrored) in alike.items():
            number, other = int(numbers[i]), int(others[j])
            name, other_name = train.source.name_of(number), test.source.name_of(other)
            pairs.append(Pair(number, name, f"{test.name} ({test.split})", other, other_name, bits, mirrored))
    pairs.sort(key=lambda pair: (pair.bits, pair.number, pair.against, pair.other))
    return Duplicates(train.name, train.split, train.num_examples, tuple(pairs))


def read_images(examples: "Examples", numbers: Sequence[int], channels: int = 3) -> list[np.ndarray]:
    """Reads images by number, each uint8 (h, w, channels) at its own size; `channels` is 3, or 1 for grey."""
    from keras_vit.data.reading.sources import whole_image
    from keras_vit.data.reading.stream import Stream

    source, places = examples.source, np.asarray(numbers, int)
    if not places.size:
        return []
    if isinstance(source, Stream):  # a stream's images are read into memory, in order
        order = np.unique(places)
        source, places = source.read_into_memory(order), np.searchsorted(order, places)
    return [source.read_part(data, whole_image, channels).numpy() for data in map(source.lookup, map(int, places))]

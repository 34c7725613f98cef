"""Samples of test sets, in tests/samples/: stratified, by a fixed seed, small enough to be committed.

    python tools/samples.py fashion-mnist FOLDER    # its four idx.gz files
    python tools/samples.py emoji EMOJI/test        # the test vendor's folder, by tools/emoji.py

tests/samples/README.md names their licences.
"""

import argparse
import gzip
import io
import struct
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit import data
from keras_vit.data.datasets.arrays import IMAGES, LABELS, read_pair

SAMPLES = Path(__file__).parents[1] / "tests" / "samples"
SEED = 0
SIZE_OF_SAMPLE = {"fashion-mnist": 500, "emoji": 150}


@dataclass(frozen=True)
class TestSet:
    """A test set of weights that ship.

    Args:
        dataset: whose classes the head predicts: a name of keras_vit.zoo.names.rows.
        name: what cards call it.
        scheme: of `data.load`.
        split: of `data.load`, of all its pictures.
        sample: file or folder of the sample in tests/samples/.
        data: the pictures to train and test on, with their licences.
    """

    __test__ = False  # no test of pytest's

    dataset: str
    name: str
    scheme: str
    split: str
    sample: str
    data: str

    def load(self, place):
        """The examples in a folder."""
        return data.load(f"{self.scheme}:{place}", self.split)


TEST_SETS = {
    "fashion-mnist": TestSet(
        dataset="fashion_mnist",
        name="fashion_mnist",
        scheme="fashion_mnist",
        split="test",
        sample="fashion_mnist",
        data="Fashion-MNIST (arXiv 1708.07747), Zalando SE, MIT",
    ),
    "emoji": TestSet(
        dataset="emoji",
        name="twemoji",
        scheme="folder",
        split="train+validation",
        sample="emoji.zip",
        data="to train on, Noto Emoji (emoji-datasource-google 16.0.0 and @iconify-json/noto-v1 1.2.5), Google, "
        "Apache-2.0, and Fluent Emoji (@lobehub/fluent-emoji-3d and -flat 1.1.0), Microsoft, MIT; to test on, Twemoji "
        "(emoji-datasource-twitter 16.0.0), Twitter and contributors, CC-BY-4.0; by tools/emoji.py",
    ),
}


def draw_numbers(labels, count):
    """The sorted numbers of `count` examples, of each class in proportion (n,) -> (count,)."""
    random = np.random.default_rng(SEED)
    places = np.concatenate([random.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)])
    # Evenly spaced over the examples in the order of their classes: of each its share, rounded.
    chosen = np.linspace(0, len(places), count, endpoint=False).astype(int)
    return np.sort(places[chosen])


def write_idx(path, magic, values):
    """A gzipped idx file of uint8, without a time."""
    header = struct.pack(f">{1 + values.ndim}i", magic, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype("uint8").tobytes(), mtime=0))


def write_fashion_mnist(place, out):
    """The sample as Fashion-MNIST's own files, of the test split alone."""
    images, labels = read_pair(place, "t10k")
    chosen = draw_numbers(labels, SIZE_OF_SAMPLE["fashion-mnist"])
    out.mkdir(parents=True, exist_ok=True)
    write_idx(out / "t10k-images-idx3-ubyte.gz", IMAGES, images[chosen, ..., 0])
    write_idx(out / "t10k-labels-idx1-ubyte.gz", LABELS, labels[chosen])


def write_emoji(place, out):
    """The sample as a zip of folders, the pictures as they are in lossless WebP."""
    paths = sorted(place.glob("*/*.png"))
    _, labels = np.unique([path.parent.name for path in paths], return_inverse=True)
    with zipfile.ZipFile(out, "w") as archive:
        for path in (paths[number] for number in draw_numbers(labels, SIZE_OF_SAMPLE["emoji"])):
            file = io.BytesIO()
            Image.open(path).save(file, "WEBP", lossless=True, quality=100, method=6)
            archive.writestr(zipfile.ZipInfo(f"{path.parent.name}/{path.stem}.webp"), file.getvalue())


def load_sample(tag, folder):
    """The examples of a tag's sample; `folder` takes what is unpacked, and must last as long as they are read."""
    test_set = TEST_SETS[tag]
    place = SAMPLES / test_set.sample
    if place.is_file():
        with zipfile.ZipFile(place) as archive:
            archive.extractall(folder)
        place = folder
    return test_set.load(place)


WRITERS = {"fashion-mnist": write_fashion_mnist, "emoji": write_emoji}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", choices=WRITERS)
    parser.add_argument("place", type=Path, help="the folder of the test set")
    arguments = parser.parse_args()
    WRITERS[arguments.tag](arguments.place, SAMPLES / TEST_SETS[arguments.tag].sample)
    with tempfile.TemporaryDirectory() as folder:
        sample = load_sample(arguments.tag, Path(folder))
        print(f"{sample.num_examples} pictures of {sample.num_classes} classes")


if __name__ == "__main__":
    main()

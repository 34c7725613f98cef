"""The named checkpoints: rows of registry.json, and files whose names follow the authors' grammar. These are AugReg's
52,268, and BiT's 285 fine-tuned on VTAB-1k. Imports neither TensorFlow nor Keras.
"""

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

from keras_vit.errors import UnknownNameError
from keras_vit.models import cost
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.models.variants import VARIANTS

ZOO = Path(__file__).parents[1]
LOCAL = "local"  # in place of an address
# Datasets with class names in labels/, one per line. ImageNet (ILSVRC-2012) and ImageNet-21k: WordNet's lemmas,
# in the order of the official heads. Fashion-MNIST: its authors' names. Emoji: the folders that tools/emoji.py makes.
LABEL_SETS = ("imagenet1k", "imagenet21k", "fashion_mnist", "emoji")


@functools.cache
def class_names(dataset: str | None) -> tuple[str, ...] | None:
    """The names of a dataset's classes; None if labels/ has none for it.

    >>> class_names("imagenet1k")[281]
    'tabby, tabby cat'
    """
    if dataset not in LABEL_SETS:
        return None
    return tuple((ZOO / f"labels/{dataset}.txt").read_text("utf-8").splitlines())


@dataclasses.dataclass(frozen=True)
class PublicCheckpoint:
    """A file of weights on the web, or in this package, and the facts about it; None if unknown."""

    url: str  # of the file; LOCAL for a file that comes with this package
    file: str | None = None  # its name in weights/, if it comes with this package
    record: dict[str, Any] | None = None  # training and measurements of such weights, as tools/ship.py writes them
    variant: str | None = None  # name in the table of variants, such as "ViT-B/16"
    tag: str | None = None  # name of the weights, unique for the variant
    collection: str | None = None  # the family of files it belongs to
    parameters: int | None = None  # of the loaded model, without a head that is all zeros
    num_classes: int | None = None  # outputs of the file's head
    valid_head: bool = True  # False for a head that is all zeros, so that the model can only return features
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the configuration, unlike the variant's
    resolution: int | None = None  # height and width of images in the last training, or the authors' evaluation
    # As in `keras_vit.models.Preprocessing`.
    crop: float | None = None
    crop_mode: Any = "center"
    interpolation: Any = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    pretraining: str | None = None  # the first dataset of the training
    dataset: str | None = None  # the last one; the head predicts its classes
    accuracy: float | None = None  # top-1 in percent on ImageNet's validation set; with a `record`, on its test set
    accuracy_source: str | None = None  # who reports it
    bytes: int | None = None  # size of the file
    # "exact", "listed" (the authors' listing, rounded) or "computed" (four bytes a parameter; the file is larger).
    bytes_source: str | None = None
    sha256: str | None = None  # of the file, if somebody recorded it
    source: str | None = None  # address of a description of the weights
    licence: str | None = None
    note: str | None = None  # further facts for users

    @property
    def name(self) -> str:
        """The name for `resolve`: VARIANT:tag of a row, COLLECTION/stem of a file with a grammar, else the URL."""
        if self.tag:
            return f"{self.variant}:{self.tag}"
        return f"{self.collection}/{self.url.rpartition('/')[2].removesuffix('.npz')}" if self.variant else self.url

    @property
    def labels(self) -> str | None:
        """Name of the set of classes that the head's outputs stand for, or None."""
        return self.dataset if self.valid_head and self.dataset in LABEL_SETS else None

    @property
    def history(self) -> dict[str, Any]:
        """Entries for a model card: "trained_on", "weights_from", "evaluated"; none for weights without a record."""
        record = self.record
        if record is None or self.accuracy is None:
            return {}
        measured = {"images": record["test_images"], "accuracy": round(self.accuracy / 100, 6)}
        return {
            "trained_on": record["trained_on"],
            "weights_from": record["weights_from"],
            "evaluated": {"dataset": record["tested_on"], "split": "test", **measured},
        }

    @property
    def preprocessing(self) -> Preprocessing | None:
        """The preprocessing of the authors' evaluation (bilinear for "area"); None if unknown."""
        if self.resolution is None:
            return None
        size, mean, std = (self.resolution,) * 2, tuple(self.mean), tuple(self.std)
        return Preprocessing(size, self.crop, self.interpolation, mean, std, self.crop_mode)

    @property
    def config(self) -> ViTConfig | ResNetConfig | None:
        """The configuration of the model that `zoo.load` returns, or None for a file of unknown variant."""
        if self.variant is None:
            return None
        config, num_classes = VARIANTS[self.variant].config, self.num_classes if self.valid_head else 0
        return dataclasses.replace(config, image_size=self.resolution, num_classes=num_classes, **self.fields)


@functools.cache
def read_registry():
    """Reads registry.json: "collections" hold the fields that rows share, "defaults" the tags of bare variants, and
    "grammars" the parts of the authors' file names.
    """
    return json.loads((ZOO / "registry.json").read_text("utf-8"))


@functools.cache
def checkpoints() -> tuple[PublicCheckpoint, ...]:
    """Every row of the registry as a `PublicCheckpoint`, in the order of the variants."""
    collections, rows = read_registry()["collections"], read_registry()["checkpoints"]
    return tuple(PublicCheckpoint(**collections[row["collection"]] | row) for row in rows)


def default_tag(variant: str) -> str | None:
    """The tag of a bare variant's weights, or None if it has no public weights."""
    return read_registry()["defaults"].get(variant)


AUGREG_ROOT = "https://storage.googleapis.com/vit_models/augreg/"
VTAB_ROOT = "https://storage.googleapis.com/bit_models/vtab/"

# The authors drop "ViT-" and write "+" and "/" as "_" (vit_jax/configs/models.py).
AUGREG_MODELS = read_registry()["grammars"]["augreg models"]
AUGREG_DATASETS = read_registry()["grammars"]["augreg datasets"]  # {name: (dataset, number of its classes)}
AUGREG_STEM = re.compile(
    rf"(?P<model>{'|'.join(AUGREG_MODELS)})-(?P<dataset>i1k|i21k)-(30|300)ep-lr_0\.001"
    r"-aug_(none|light[01]|medium[12]|strong[12])-wd_(0\.03|0\.1)-do_0\.[01]-sd_0\.[01]"
    r"(--(?P<task>imagenet2012|cifar100|oxford_iiit_pet|kitti|resisc45)-steps_(0|2|10|20)k"
    r"-lr_(0\.001|0\.003|0\.01|0\.03)-res_(?P<resolution>224|384))?"
)

# Classes per task as the VTAB benchmark defines them (arXiv 1910.04867).
VTAB_TASKS = read_registry()["grammars"]["vtab tasks"]
SMALL_IMAGES = ("cifar100", "dsprites-orientation", "dsprites-xpos", "eurosat", "svhn")  # under 96 x 96 pixels
VTAB_STEM = re.compile(rf"BiT-M-(?P<model>R50x1|R101x1|R50x3|R101x3|R152x4)-run[012]-(?P<task>{'|'.join(VTAB_TASKS)})")


def match_stem(pattern, stem, example):
    """The parts of a file name. Only the server knows which combinations of them exist."""
    found = pattern.fullmatch(stem)
    if found is None:
        raise UnknownNameError(f"The authors have no file {stem!r}. Their names are like {example}.")
    return found


def make_row(collection, **fields):
    """A row of a collection, with what follows from its configuration: parameters, and four bytes for each."""
    row: Any = PublicCheckpoint(**read_registry()["collections"][collection] | {"collection": collection} | fields)
    count = cost.count_parameters(row.config)
    return dataclasses.replace(row, parameters=count, bytes=4 * count, bytes_source="computed")


def parse_augreg(stem):
    """The checkpoint of AugReg (arXiv 2106.10270) with this file name, without ".npz".

    >>> stem = "R26_S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0--kitti-steps_2k-lr_0.01-res_384"
    >>> parse_augreg(stem).num_classes
    4
    """
    found = match_stem(AUGREG_STEM, stem, "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0")
    dataset, num_classes = AUGREG_DATASETS[found["task"] or found["dataset"]]
    return make_row(
        "augreg",
        url=f"{AUGREG_ROOT}{stem}.npz",
        variant=AUGREG_MODELS[found["model"]],
        num_classes=num_classes,
        resolution=int(found["resolution"] or 224),
        crop=None if found["task"] else 0.875,
        pretraining=AUGREG_DATASETS[found["dataset"]][0],
        dataset=dataset,
    )


def parse_vtab(stem):
    """The BiT-M model, fine-tuned on a task of VTAB-1k, with this file name, without ".npz".

    Its resolution follows from the size of the task's images by BiT-HyperRule (section 3.3 of its paper).

    >>> parse_vtab("BiT-M-R50x1-run0-caltech101").num_classes
    102
    """
    found = match_stem(VTAB_STEM, stem, "BiT-M-R50x1-run0-svhn")
    large = 480 if found["model"] == "R152x4" else 384
    return make_row(
        "vtab",
        url=f"{VTAB_ROOT}{stem}.npz",
        variant=found["model"],
        num_classes=VTAB_TASKS[found["task"]],
        resolution=128 if found["task"] in SMALL_IMAGES else large,
        dataset=found["task"],
    )


COLLECTIONS = {"augreg": (AUGREG_ROOT, parse_augreg), "vtab": (VTAB_ROOT, parse_vtab)}

"""The datasets of the paper as rows over TensorFlow Datasets: splits, labels, augmentation. No TensorFlow here."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """The examples of a TFDS split from `low` up to `high` per cent, rounded down, without the first `after` of them,
    and at most `most`.
    """

    name: str
    low: int = 0
    high: int = 100
    most: int | None = None
    after: int = 0

    def bounds(self, num_examples: int) -> tuple[int, int]:
        """(first, end) among the split's `num_examples`.

        >>> Part("train", 90, 100, 200).bounds(3680)
        (3312, 3512)
        """
        first, end = num_examples * self.low // 100, num_examples * self.high // 100
        first = min(end, first + self.after)
        return first, end if self.most is None else min(end, first + self.most)


@dataclass(frozen=True)
class DatasetRow:
    """A dataset by name; a split is None if the dataset has no such examples."""

    builder: str  # TFDS's name, with its configuration
    train: Part | None
    validation: Part | None
    test: Part | None
    label: str = "label"  # name of a function in `builders.LABELS`, or of the feature that holds the class
    classes: int | None = None  # their number, where `label` is a function
    gain: int = 1  # factor of the stored pixels
    augmentation: str = "inception"
    source: str = "arXiv 2010.11929, Appendix B.1.1"  # of its splits and labels


@dataclass(frozen=True)
class VTABRow(DatasetRow):
    """A task of VTAB-1k: 800 examples to train, 200 to validate, 1000 together (arXiv 1910.04867, section 3).

    The splits are those of google-research/task_adaptation's data classes. They vary no image; the paper follows
    Kolesnikov et al. (B.1.1), who crop and mirror those of most tasks (arXiv 1912.11370, Supplement F).
    """

    train: Part = Part("train", most=800)
    validation: Part = Part("validation", most=200)
    test: Part = Part("test")
    augmentation: str = "bit"
    source: str = "arXiv 1910.04867, task_adaptation/data"


# The parts and further fields that several tasks share.
NINETY: dict[str, Any] = {"train": Part("train", 0, 90, 800), "validation": Part("train", 90, most=200)}
SIXTY: dict[str, Any] = {
    "train": Part("train", 0, 60, 800),
    "validation": Part("train", 60, 80, 200),
    "test": Part("train", 80),
}
CLEVR = {**NINETY, "test": Part("validation"), "augmentation": "flip"}
DSPRITES: dict[str, Any] = {
    "train": Part("train", 0, 80, 800),
    "validation": Part("train", 80, 90, 200),
    "test": Part("train", 90),
    "classes": 16,
    "gain": 255,
}
NORB: dict[str, Any] = {"validation": Part("test", 0, 50, 200), "test": Part("test", 50)}

VTAB_ROWS = {
    # natural
    "vtab/caltech101": VTABRow("caltech101", **NINETY),
    "vtab/cifar100": VTABRow("cifar100", **NINETY),
    "vtab/dtd": VTABRow("dtd"),
    "vtab/oxford_flowers102": VTABRow("oxford_flowers102"),
    "vtab/oxford_iiit_pet": VTABRow(
        "oxford_iiit_pet", train=Part("train", 0, 80, 800), validation=Part("train", 80, most=200)
    ),
    "vtab/sun397": VTABRow("sun397/tfds"),
    "vtab/svhn": VTABRow("svhn_cropped", **NINETY),
    # specialized
    "vtab/patch_camelyon": VTABRow("patch_camelyon"),
    "vtab/eurosat": VTABRow("eurosat/rgb", **SIXTY),
    "vtab/resisc45": VTABRow("resisc45", **SIXTY),
    "vtab/diabetic_retinopathy": VTABRow("diabetic_retinopathy_detection/btgraham-300"),
    # structured
    "vtab/clevr_count_all": VTABRow("clevr", **CLEVR, label="clevr_count_all", classes=8),
    "vtab/clevr_closest_object_distance": VTABRow("clevr", **CLEVR, label="clevr_closest_object_distance", classes=6),
    "vtab/dmlab": VTABRow("dmlab", augmentation="flip"),
    "vtab/kitti_closest_vehicle_distance": VTABRow(
        "kitti", label="kitti_closest_vehicle_distance", classes=4, augmentation="flip"
    ),
    "vtab/dsprites_x_position": VTABRow("dsprites", **DSPRITES, label="dsprites_x_position", augmentation="none"),
    "vtab/dsprites_orientation": VTABRow(
        "dsprites", **DSPRITES, label="dsprites_orientation", augmentation="bit-no-flip"
    ),
    "vtab/smallnorb_azimuth": VTABRow("smallnorb", **NORB, label="label_azimuth", augmentation="bit-no-flip"),
    "vtab/smallnorb_elevation": VTABRow("smallnorb", **NORB, label="label_elevation"),
}
VTAB = tuple(VTAB_ROWS)

CATALOGUE: dict[str, DatasetRow] = {
    # The last of the training split are to validate on: the paper's development sets.
    "cifar10": DatasetRow("cifar10", Part("train", 0, 98), Part("train", 98), Part("test")),
    "cifar100": DatasetRow("cifar100", Part("train", 0, 98), Part("train", 98), Part("test")),
    "imagenet2012": DatasetRow("imagenet2012", Part("train", 0, 99), Part("train", 99), Part("validation")),
    "oxford_iiit_pet": DatasetRow("oxford_iiit_pet", Part("train", 0, 90), Part("train", 90), Part("test")),
    # The paper's Flowers: training is TFDS's 1,020 "train", as in big_vision/configs/transfer.py.
    "oxford_flowers102": DatasetRow("oxford_flowers102", Part("train", 0, 90), Part("train", 90), Part("test")),
    # Not built by TFDS itself: big_vision/configs/vit_i21k.py reads prepared files with one split, "full".
    "imagenet21k": DatasetRow(
        builder="imagenet21k",
        train=Part("full", after=51_200),
        validation=Part("full", most=51_200),
        test=None,
        source="big_vision/configs/vit_i21k.py",
    ),
    # 50,000 images to evaluate on; the labels are every class that is right (arXiv 2006.07159), float (n, 1000).
    "imagenet2012_real": DatasetRow(
        builder="imagenet2012_real",
        train=None,
        validation=None,
        test=Part("validation"),
        label="imagenet2012_real",
        classes=1000,
        source="arXiv 2006.07159",
    ),
    **VTAB_ROWS,
}

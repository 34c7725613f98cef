"""The datasets of the paper as rows over TensorFlow Datasets: splits, labels, augmentation. No TensorFlow here."""

from dataclasses import dataclass, replace


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
    """A dataset by name.

    Args:
        builder: TFDS's name, with its configuration.
        train, validation, test: a `Part` each; None if the dataset has no such examples.
        label: name of a function in `builders.LABELS`, or of the feature that holds the class.
        classes: number of classes, where `label` is a function.
        gain: factor of the stored pixels.
        augmentation: name of the training augmentation that suits it.
        source: where its splits and labels are from.
    """

    builder: str
    train: Part | None
    validation: Part | None
    test: Part | None
    label: str = "label"
    classes: int | None = None
    gain: int = 1
    augmentation: str = "inception"
    source: str = "arXiv 2010.11929, Appendix B.1.1"

    @property
    def parts(self) -> dict[str, Part | None]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def held_out_row(builder, percent, test="test", **fields):
    """A row whose validation examples are the last `percent` of the training split (the paper's development sets)."""
    kept = 100 - percent
    return DatasetRow(
        builder=builder,
        train=Part("train", high=kept),
        validation=Part("train", low=kept),
        test=Part(test),
        **fields,
    )


def vtab_row(builder, train="train", validation="validation", test="test", **fields):
    """A row of VTAB-1k: 800 examples to train, 200 to validate, 1000 together (arXiv 1910.04867, section 3).

    A split is a TFDS name or (name, low, high) in per cent, as in google-research/task_adaptation's data classes. They
    vary no image; the paper follows Kolesnikov et al. (B.1.1), who crop and mirror those of most tasks (arXiv
    1912.11370, Supplement F).
    """
    train, validation, test = (Part(s) if isinstance(s, str) else Part(*s) for s in (train, validation, test))
    fields = {"augmentation": "bit", "source": "arXiv 1910.04867, task_adaptation/data"} | fields
    return DatasetRow(
        builder=builder,
        train=replace(train, most=800),
        validation=replace(validation, most=200),
        test=test,
        **fields,
    )


NINETY = {"train": ("train", 0, 90), "validation": ("train", 90, 100)}
SIXTY = {"train": ("train", 0, 60), "validation": ("train", 60, 80), "test": ("train", 80, 100)}
EIGHTY = {"train": ("train", 0, 80), "validation": ("train", 80, 90), "test": ("train", 90, 100)}
NORB = {"train": "train", "validation": ("test", 0, 50), "test": ("test", 50, 100)}

VTAB_TASKS = {
    # natural
    "caltech101": vtab_row("caltech101", **NINETY),
    "cifar100": vtab_row("cifar100", **NINETY),
    "dtd": vtab_row("dtd"),
    "oxford_flowers102": vtab_row("oxford_flowers102"),
    "oxford_iiit_pet": vtab_row("oxford_iiit_pet", train=("train", 0, 80), validation=("train", 80, 100)),
    "sun397": vtab_row("sun397/tfds"),
    "svhn": vtab_row("svhn_cropped", **NINETY),
    # specialized
    "patch_camelyon": vtab_row("patch_camelyon"),
    "eurosat": vtab_row("eurosat/rgb", **SIXTY),
    "resisc45": vtab_row("resisc45", **SIXTY),
    "diabetic_retinopathy": vtab_row("diabetic_retinopathy_detection/btgraham-300"),
    # structured
    "clevr_count_all": vtab_row(
        "clevr", **NINETY, test="validation", label="clevr_count_all", classes=8, augmentation="flip"
    ),
    "clevr_closest_object_distance": vtab_row(
        "clevr", **NINETY, test="validation", label="clevr_closest_object_distance", classes=6, augmentation="flip"
    ),
    "dmlab": vtab_row("dmlab", augmentation="flip"),
    "kitti_closest_vehicle_distance": vtab_row(
        "kitti", label="kitti_closest_vehicle_distance", classes=4, augmentation="flip"
    ),
    "dsprites_x_position": vtab_row(
        "dsprites", **EIGHTY, label="dsprites_x_position", classes=16, gain=255, augmentation="none"
    ),
    "dsprites_orientation": vtab_row(
        "dsprites", **EIGHTY, label="dsprites_orientation", classes=16, gain=255, augmentation="bit-no-flip"
    ),
    "smallnorb_azimuth": vtab_row("smallnorb", **NORB, label="label_azimuth", augmentation="bit-no-flip"),
    "smallnorb_elevation": vtab_row("smallnorb", **NORB, label="label_elevation"),
}
VTAB = tuple(f"vtab/{task}" for task in VTAB_TASKS)

CATALOGUE: dict[str, DatasetRow] = {
    "cifar10": held_out_row("cifar10", 2),
    "cifar100": held_out_row("cifar100", 2),
    "imagenet2012": held_out_row("imagenet2012", 1, test="validation"),
    "oxford_iiit_pet": held_out_row("oxford_iiit_pet", 10),
    # The paper's Flowers: training is TFDS's 1,020 "train", as in big_vision/configs/transfer.py.
    "oxford_flowers102": held_out_row("oxford_flowers102", 10),
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
    **dict(zip(VTAB, VTAB_TASKS.values(), strict=True)),
}

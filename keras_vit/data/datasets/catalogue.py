"""The datasets of the paper as rows over TensorFlow Datasets: splits, labels, augmentation. No TensorFlow here."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Part:
    """The examples of a TFDS split from `low` to before `high` per cent, rounded down.

    Of these the first `after` are left out, and at most `most` taken.
    """

    name: str
    low: int = 0
    high: int = 100
    most: int | None = None
    after: int = 0

    def bounds(self, num_examples):
        """(first, end) among the split's `num_examples`.

        >>> Part("train", 90, 100, 200).bounds(3680)
        (3312, 3512)
        """
        first, end = num_examples * self.low // 100, num_examples * self.high // 100
        first = min(end, first + self.after)
        return first, end if self.most is None else min(end, first + self.most)


@dataclass(frozen=True)
class Row:
    """A dataset by name.

    Args:
        builder: TFDS's name, with its configuration.
        train, validation, test: a `Part` each; None where the dataset has no such examples.
        label: name of a function in `labels`, or of the feature that holds the class.
        classes: how many, where `label` is a function.
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
    source: str = "2010.11929, Appendix B.1.1"


def held_out(builder, percent, test="test", **fields):
    """A row whose validation examples are the last `percent` of the training split (the paper's development sets)."""
    kept = 100 - percent
    return Row(builder, Part("train", 0, kept), Part("train", kept, 100), Part(test), **fields)


def vtab(builder, train="train", validation="validation", test="test", **fields):
    """A row of VTAB-1k: 800 examples to train, 200 to validate, 1000 together (arXiv 1910.04867, section 3).

    A split is a TFDS name or (name, low, high) in per cent, as in google-research/task_adaptation's data classes.
    """
    train, validation, test = (Part(s) if isinstance(s, str) else Part(*s) for s in (train, validation, test))
    fields = {"augmentation": "none", "source": "arXiv 1910.04867, task_adaptation/data"} | fields
    return Row(builder, replace(train, most=800), replace(validation, most=200), test, **fields)


NINETY = {"train": ("train", 0, 90), "validation": ("train", 90, 100)}
SIXTY = {"train": ("train", 0, 60), "validation": ("train", 60, 80), "test": ("train", 80, 100)}
EIGHTY = {"train": ("train", 0, 80), "validation": ("train", 80, 90), "test": ("train", 90, 100)}
NORB = {"train": "train", "validation": ("test", 0, 50), "test": ("test", 50, 100)}

VTAB_TASKS = {
    # natural
    "caltech101": vtab("caltech101", **NINETY),
    "cifar100": vtab("cifar100", **NINETY),
    "dtd": vtab("dtd"),
    "oxford_flowers102": vtab("oxford_flowers102"),
    "oxford_iiit_pet": vtab("oxford_iiit_pet", train=("train", 0, 80), validation=("train", 80, 100)),
    "sun397": vtab("sun397/tfds"),
    "svhn": vtab("svhn_cropped", **NINETY),
    # specialized
    "patch_camelyon": vtab("patch_camelyon"),
    "eurosat": vtab("eurosat/rgb", **SIXTY),
    "resisc45": vtab("resisc45", **SIXTY),
    "diabetic_retinopathy": vtab("diabetic_retinopathy_detection/btgraham-300"),
    # structured
    "clevr_count_all": vtab("clevr", **NINETY, test="validation", label="clevr_count_all", classes=8),
    "clevr_closest_object_distance": vtab(
        "clevr", **NINETY, test="validation", label="clevr_closest_object_distance", classes=6
    ),
    "dmlab": vtab("dmlab"),
    "kitti_closest_vehicle_distance": vtab("kitti", label="kitti_closest_vehicle_distance", classes=4),
    "dsprites_x_position": vtab("dsprites", **EIGHTY, label="dsprites_x_position", classes=16, gain=255),
    "dsprites_orientation": vtab("dsprites", **EIGHTY, label="dsprites_orientation", classes=16, gain=255),
    "smallnorb_azimuth": vtab("smallnorb", **NORB, label="label_azimuth"),
    "smallnorb_elevation": vtab("smallnorb", **NORB, label="label_elevation"),
}
VTAB = tuple(f"vtab/{task}" for task in VTAB_TASKS)

CATALOGUE = {
    "cifar10": held_out("cifar10", 2),
    "cifar100": held_out("cifar100", 2),
    "imagenet2012": held_out("imagenet2012", 1, test="validation"),
    "oxford_iiit_pet": held_out("oxford_iiit_pet", 10),
    # The paper's Flowers: training is TFDS's 1,020 "train", as in big_vision/configs/transfer.py.
    "oxford_flowers102": held_out("oxford_flowers102", 10),
    # Not built by TFDS itself: big_vision/configs/vit_i21k.py reads prepared files with one split, "full".
    "imagenet21k": Row(
        "imagenet21k",
        Part("full", after=51_200),
        Part("full", most=51_200),
        None,
        source="big_vision/configs/vit_i21k.py",
    ),
    # 50,000 pictures to evaluate on; the labels are every class that is right (arXiv 2006.07159), float (n, 1000).
    "imagenet2012_real": Row(
        "imagenet2012_real",
        None,
        None,
        Part("validation"),
        label="imagenet2012_real",
        classes=1000,
        source="arXiv 2006.07159",
    ),
    **dict(zip(VTAB, VTAB_TASKS.values(), strict=True)),
}
